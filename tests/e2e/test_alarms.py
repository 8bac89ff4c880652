"""Alarms that need a hand are made to fire and to clear, and /metrics shows both. Others are where what raises them is tested:
fenced, diverged, clocks, no-primary, no-quorum, server-down (test_metrics), clients-wait (test_memory), audit-differs
(test_audit), disowned (test_members)."""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from support.paths import BUILD, free_port
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import PythonCounter, Redis
from support.three_hosts import ThreeHosts
from support.webclient import get
import test_base_images  # the module: its class by name would be run here again
from test_metrics import SAMPLE, Looked
from test_repair import FLIPPED, VALUE, flip
from test_restart import SavingRedis

MIB = 1 << 20
LOOP = "local i = 0; while i < tonumber(ARGV[1]) do i = i + 1 end; return i"


class Server(Looked):
    def test_one_that_is_frozen_while_the_others_go_on_and_its_lag(self):
        with self.looked_at(Redis) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            pids = [pid for pid in cluster.replica_pids(odd) if pid != cluster.craned_pid(odd)]
            with RedisClient(cluster.address(leads)) as redis, RedisClient(cluster.address(odd), timeout_s=20) as here:
                server = cluster.server_pid(odd)
                self.assertIn(server, pids)
                self.addCleanup(self.go_on, server)
                here("SET", "before", 1)
                os.kill(server, signal.SIGSTOP)
                self.await_alarm(odd, "server-frozen", use=lambda: redis("INCR", "counter"))
                for number in range(50):  # by the primary's copy of the output, on the same connection
                    self.assertEqual(here("INCR", "here"), number + 1)
                time.sleep(1)  # longer than those who wait for this server are kept
                self.assertEqual(here("GET", "here"), b"50")
                self.assertGreater(self.metrics(odd)["crane_admission_lag_entries"], 0)
                self.go_on(server)
                self.await_alarm(odd, "server-frozen", raised=False, use=lambda: redis("INCR", "counter"))
                wait_until(lambda: self.metrics(odd)["crane_admission_lag_entries"] == 0, 30, "it has caught up")
                for number in range(50, 100):  # by its own again, some time later
                    self.assertEqual(here("INCR", "here"), number + 1)
                self.assertEqual(here("GET", "before"), b"1")
            cluster.assert_identical()

    def go_on(self, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_a_request_that_computes_for_long(self):
        with self.looked_at(Redis, "--watchdog-s=1", "--endless-s=0") as cluster:
            leads = cluster.primary()
            with RedisClient(cluster.address(leads), timeout_s=110) as redis:
                redis("CONFIG", "SET", "busy-reply-threshold", 0)  # else it reads a clock now and then, and does not stand still
                rounds, took = 1_000_000, 0.0
                while took < 0.5:  # as long as it takes here
                    rounds, begin = rounds * 2, time.monotonic()
                    redis("EVAL", LOOP, 0, rounds)
                    took = time.monotonic() - begin
                with RedisClient(cluster.address(leads), timeout_s=110) as other:
                    other.send("EVAL", LOOP, 0, int(rounds * 8 / took))
                    self.await_alarm(leads, "server-stalled")
                    self.assertGreater(other.reply(), 0)
                    self.await_alarm(leads, "server-stalled", raised=False)

    def test_one_whose_processes_are_killed_again_and_again(self):
        with self.looked_at(Redis) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)

            def kill():
                try:
                    # One that is still being started is another matter: it is tried again 20 s later.
                    if "server-restarts" not in self.alarms(odd) and cluster.status()[odd]["server"] == "listening":
                        cluster.kill_server(odd)
                except (AssertionError, KeyError, OSError):
                    pass  # it has none now

            self.await_alarm(odd, "server-restarts", use=kill)
            self.assertGreaterEqual(self.metrics(odd)["crane_domain_restarts_total"], 5)
            self.await_alarm(odd, "server-restarts", raised=False)
            wait_until(lambda: self.ask(odd, "/health")[0] == 200, 60, "it serves again")
            cluster.assert_identical()

    def test_a_port_that_somebody_else_has(self):
        with self.looked_at(Redis) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            port = free_port()
            with socket.create_server((f"127.0.0.{odd}", port)):
                with RedisClient(cluster.address(leads)) as redis:
                    self.assertEqual(redis("CONFIG", "SET", "port", port), "OK")
                self.await_alarm(odd, "port-not-served")
                self.assertEqual(self.ask(odd, "/health")[0], 503)
                self.assertNotIn("port-not-served", self.alarms(leads))
            self.await_alarm(odd, "port-not-served", raised=False)


class Disk(Looked):
    """Replica 2 has a small disk of its own."""

    def small_disk(self, cluster, *options):
        if os.geteuid() != 0:
            self.skipTest("only root mounts")
        small = cluster.state / "r2"
        small.mkdir(parents=True, mode=0o700)
        cluster.state.chmod(0o700)
        self.tool("mount", "-t", "tmpfs", "-o", ",".join(("size=600m", "mode=700", *options)), "crane-test", small)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", small], check=False))
        return small

    def test_one_without_inodes(self):
        cluster = self.looked_at(Redis)
        small = self.small_disk(cluster, "nr_inodes=4000")
        with cluster:
            other, neighbour = 1, small / "neighbour"
            with RedisClient(cluster.address(other)) as redis:
                redis("SET", "key", "value")
                neighbour.mkdir()
                for made in range(int(self.metrics(2)["crane_disk_free_files"]) - 150):
                    (neighbour / str(made)).touch()
                self.await_alarm(2, "disk-full", use=lambda: redis("INCR", "counter"))
                self.assertIn("more files can be made where", self.ask(2, "/status.json")[1])
                wait_until(lambda: redis("INCR", "counter") and cluster.primary() != 2, 30, "one that has room leads")
                self.assertNotIn("disk-full", self.alarms(other))
                # No inode is left at all: its log goes on in the files that it has, and so do the others.
                with contextlib.suppress(OSError):
                    for made in range(4000):
                        (neighbour / f"further-{made}").touch()
                before = redis("INCR", "counter")
                self.assertEqual(redis("INCR", "counter"), before + 1)
                shutil.rmtree(neighbour)
                self.await_alarm(2, "disk-full", raised=False, use=lambda: redis("INCR", "counter"))
                wait_until(lambda: cluster.status()[2]["lag"] == 0, 30, "it has come up with the others")
            cluster.assert_identical()
            self.assertEqual(cluster.status()[2]["counters"]["domain_restarts"], 0)
            cluster.stop()
            self.tool("umount", "-l", small)

    def test_one_that_is_full(self):
        cluster = self.looked_at(Redis, "--disk-reserve-mib=64")
        small = self.small_disk(cluster)
        with cluster:
            other = 1
            with RedisClient(cluster.address(other)) as redis:
                redis("SET", "key", "value")
                free = int(self.metrics(2)["crane_disk_free_bytes"])
                self.fill(small / "neighbour", free - 50 * MIB)
                self.await_alarm(2, "disk-full", use=lambda: redis("INCR", "counter"))
                # The alarm comes before the reserve is touched: it sees how fast room goes.
                wait_until(lambda: self.metrics(2)["crane_disk_free_bytes"] < 64 * MIB, 10, "the metric tells")
                wait_until(lambda: redis("INCR", "counter") and cluster.primary() != 2, 30, "one that has room leads")
                self.assertNotIn("disk-full", self.alarms(other))
                (small / "neighbour").unlink()
                self.await_alarm(2, "disk-full", raised=False, use=lambda: redis("INCR", "counter"))
            cluster.assert_identical()
            cluster.stop()
            self.tool("umount", "-l", small)

    def test_an_output_log_that_cannot_be_written(self):
        with self.looked_at(Redis) as cluster:
            log = cluster.state / "r3/output.log"
            with RedisClient(cluster.address(1)) as redis:
                log.rename(log.with_suffix(".moved"))
                log.mkdir()
                os.kill(cluster.craned_pid(3), signal.SIGHUP)
                self.await_alarm(3, "output-log", use=lambda: redis("INCR", "counter"))
                log.rmdir()
                self.await_alarm(3, "output-log", raised=False, use=lambda: redis("INCR", "counter"))
                self.assertGreater(redis("INCR", "counter"), 0)

    def fill(self, path, size):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


class Checkpoints(Looked):
    def setUp(self):
        super().setUp()
        self.needs_criu()

    def test_none_for_long_and_one_that_cannot_be_kept(self):
        with self.looked_at(Redis, "--checkpoint-log-mib=1000") as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            with RedisClient(cluster.address(leads)) as redis:
                for place in range(40):
                    redis("SET", f"key{place}", "x" * 50_000)
            wait_until(lambda: self.metrics(odd)["crane_checkpoint_log_bytes"] > 2_000_000, 30, "much was decided since the last")
            self.assertEqual(self.metrics(odd)["crane_checkpoint_timestamp_seconds"], 0)
            # Its folder's place is taken by a file.
            folder = cluster.state / f"r{odd}" / "checkpoints"
            if folder.exists():
                shutil.rmtree(folder)
            folder.write_text("")
            cluster.crane("checkpoint", "take")
            self.await_alarm(odd, "checkpoint")
            folder.unlink()
            folder.mkdir(mode=0o700)

            def take():
                if "checkpoint" in self.alarms(odd):
                    cluster.crane("checkpoint", "take")

            self.await_alarm(odd, "checkpoint", raised=False, use=take)
            wait_until(lambda: self.metrics(odd)["crane_checkpoint_log_bytes"] < 2_000_000, 60, "one is kept")
            self.assertAlmostEqual(self.metrics(odd)["crane_checkpoint_timestamp_seconds"], time.time(), delta=300)

    def test_a_replica_that_is_on_trial(self):
        with self.looked_at(Redis) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            seen = set()
            with RedisClient(cluster.address(leads)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                redis("GET", "key")

                def tried():
                    redis("INCR", "more")
                    try:
                        seen.update(self.alarms(odd))
                        return self.metrics(odd)["crane_repairs_total"] == 1 and not self.alarms(odd)
                    except OSError:
                        return False

                wait_until(tried, 90, "it was made anew, and is well")
            self.assertIn("on-trial", seen)
            cluster.assert_identical()


class Fetch(Looked):
    def test_a_checkpoint_that_nobody_has_whole(self):
        with self.looked_at(SavingRedis) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            go_on = self.stopped(cluster, odd)
            with RedisClient(cluster.address(leads)) as redis:
                for place in range(200):
                    redis("SET", f"key{place}", "x" * 100_000)  # more than may wait for it on the way
            self.begin_anew(cluster, odd)
            for n in {1, 2, 3} - {odd}:
                newest = max((cluster.state / f"r{n}/checkpoints").glob("[0-9]*/files.tar.zst"))
                data = bytearray(newest.read_bytes())
                data[len(data) // 2] ^= 1
                newest.write_bytes(data)
            go_on()
            self.await_alarm(odd, "checkpoint-fetch")
            self.begin_anew(cluster, odd)
            self.await_alarm(odd, "checkpoint-fetch", raised=False)
            wait_until(lambda: self.ask(odd, "/health")[0] == 200, 60, "it serves again")
            cluster.assert_identical()

    def begin_anew(self, cluster, odd):
        """The server of the others, which keeps a checkpoint of its files."""
        leads = next(n for n in (1, 2, 3) if n != odd)
        begun = self.metrics(leads)["crane_first_log_index"]
        done = cluster.crane("restart")
        self.assertEqual(done.returncode, 0, done.stdout)
        wait_until(lambda: self.metrics(leads)["crane_first_log_index"] > begun, 60, "the log is cut")


    def test_an_image_that_nobody_has(self):
        images = test_base_images.BaseImages("test_image_is_all_that_a_server_sees")
        images.setUp()
        self.addCleanup(images.doCleanups)
        file, name = images.image("one", 111)
        with images.cluster(file, f"--metrics-port={self.port}") as cluster:
            odd = next(n for n in (1, 2, 3) if n != cluster.primary())
            kept = images.store / (name.removeprefix("sha256:") + ".squashfs")
            aside = images.dir / "aside"
            kept.rename(aside)  # the servers that run have it mounted
            store = images.give_own_store(cluster, odd)
            wait_until(lambda: cluster.status().get(odd, {}).get("image_store") == str(store), 30, "it has another store")
            self.await_alarm(odd, "image-fetch")
            for n in {1, 2, 3} - {odd}:
                self.assertNotIn("image-fetch", self.alarms(n))
            aside.rename(kept)
            self.await_alarm(odd, "image-fetch", raised=False)
            images.wait_serving(cluster, 1, 2, 3)
            self.assertEqual([path.name for path in store.iterdir()], [kept.name])
            wait_until(lambda: not self.alarms(odd), 30, "all is well again")
            cluster.assert_identical()


class Schedule(Looked):
    def test_one_that_ran_differently_and_put_out_the_same(self):
        """What is shown as it is now goes when that replica is made anew; what was counted stays."""
        with self.looked_at(PythonCounter) as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)

            def use():
                get(cluster.address(leads), "/add")

            (cluster.state / f"r{odd}" / "shared" / "here").touch()
            self.assertEqual(get(cluster.address(leads), "/detour").body, b'{"path": "/detour"}')
            self.await_alarm(leads, "schedule-differs", use=use)
            self.assertEqual(self.metrics(leads)["crane_schedule_differs_replicas"], 1)
            self.assertEqual(self.metrics(leads)["crane_diverged_replicas"], 0)
            told = cluster.status()[leads]["divergence"]
            self.assertEqual([one["replica"] for one in told["schedule_differs"]], [odd])
            shown = cluster.crane("status")
            self.assertEqual(shown.returncode, 0, "it is a warning")
            self.assertIn(f"warning: the schedule of replica {odd} differs from that of replica {leads}", shown.stdout)
            done = cluster.crane("checkpoint", "restore", "--replica", odd)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.await_alarm(leads, "schedule-differs", raised=False, use=use)
            compared = self.metrics(leads)["crane_output_comparisons_total"]
            wait_until(lambda: (use(), self.metrics(leads)["crane_output_comparisons_total"] > compared + 10)[1], 30, "it is compared")
            self.assertNotIn("schedule-differs", self.alarms(leads))
            now = cluster.status()[leads]["divergence"]
            self.assertEqual(now["schedule_differs"], [])
            self.assertGreaterEqual(now["schedule_differences"], told["schedule_differences"])
            self.assertNotIn("warning", cluster.crane("status").stdout)
            cluster.assert_identical()


class Peers(Looked):
    def start(self, cluster, replica):
        craned = subprocess.Popen([str(BUILD / "bin" / "craned"), "--config", str(cluster.state / f"r{replica}" / "craned.toml")],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def end():
            craned.terminate()
            craned.wait(timeout=60)
        self.addCleanup(end)
        return end

    def test_one_that_is_down_and_one_with_other_settings(self):
        with self.looked_at(Redis, "--no-restart") as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            cluster.kill_craned(odd)
            self.await_alarm(leads, "peer-down")
            config = cluster.state / f"r{odd}" / "craned.toml"
            text = config.read_text()
            config.write_text(re.sub(r"(?m)^hostname = .*$", 'hostname = "another"', text))
            self.assertNotEqual(config.read_text(), text)
            end = self.start(cluster, odd)
            self.await_alarm(leads, "peer-down", raised=False)
            self.await_alarm(leads, "settings-differ")
            settings = {n: row["settings"] for n, row in cluster.status().items()}
            said = self.tool(BUILD / "bin/craned", "--check-config", "--config", config)
            self.assertTrue(said.strip().endswith(f"settings {settings[odd]}"), said)
            self.assertNotEqual(settings[odd], settings[leads])
            end()
            config.write_text(text)
            end = self.start(cluster, odd)
            self.await_alarm(leads, "settings-differ", raised=False)
            end()

    def test_more_clients_than_the_limit_of_open_files_has_room_for(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        cluster = self.looked_at(Redis)
        cluster.prefix = ["prlimit", "--nofile=1200:1200"]
        with cluster:
            leads = cluster.primary()
            room = int(self.metrics(leads)["crane_clients_max"])
            self.assertLess(room, 1200)
            held = []
            try:
                for _ in range(room + 1):  # what listens has a place, too: one of the last may hear at once that it is refused
                    with contextlib.suppress(ConnectionError):
                        held.append(socket.create_connection(cluster.address(leads), timeout=10))
                self.assertGreater(len(held), room - 10)
                self.await_alarm(leads, "clients-refused")
            finally:
                for one in held:
                    one.close()
            self.await_alarm(leads, "clients-refused", raised=False)
            with RedisClient(cluster.address(leads)) as redis:
                self.assertEqual(redis("INCR", "counter"), 1)


class Certificate(ThreeHosts):
    lane = 3

    def alarms(self, number):
        text = self.tool(*self.hosts.on(4, "curl", "-s", "-m", "10", f"http://{self.hosts.address(number)}:9464/metrics"))
        return {name.split('"')[1] for name, value in SAMPLE.findall(text) if name.startswith("crane_alarm{") and float(value)}

    def test_one_that_is_about_to_expire(self):
        for number in (1, 2, 3):
            self.issue(number, *(("--days", 20) if number == 2 else ()))
            self.start(number, f'[metrics]\nlisten = "{self.hosts.address(number)}:9464"\n')
        self.await_primary()
        wait_until(lambda: "certificate" in self.alarms(2), 30, "it says that its certificate ends soon")
        self.assertNotIn("certificate", self.alarms(1))
        self.issue(2)
        wait_until(lambda: "certificate" not in self.alarms(2), 120, "the new one is seen")
