"""Checkpoints of servers that run: images of their processes with live connections, and replicas that begin there."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading

import test_checkpoint  # the module: a class by name would be run here again
from support import procs
from support.case import CraneTest, together
from support.cluster import remove_tree
from support.databases import MariaDb, Postgres
from support.paths import CRANE_TOOL, PYTHON
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Apache, CivetWeb, Lighttpd, Memcached, Nginx, Program, PythonCounter, Redis, RedisIoThreads
from support.webclient import Connection, get
from test_databases import TRANSACTION, fill, sql
from test_memcached import Client as MemcachedClient
from test_programs import ask, fixed
from test_redis import pipelined
from test_restart import Counting, SavingRedis

SOME = 300  # commands


class OpenClient:
    """One client of a database that stays connected."""

    def __init__(self, server_class, address):
        words = [str(word) for word in server_class.client(address)] + ["--unbuffered"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def __call__(self, text):
        """The statements' one line of answer."""
        self.process.stdin.write(text.encode() + b"\n")
        return self.process.stdout.readline().decode().rstrip("\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Deaf(Program):
    """inotify has told it of something, and it never reads that."""

    text = ("import ctypes, socket, sys; c = ctypes.CDLL(None); fd = c.inotify_init1(0); c.inotify_add_watch(fd, b'/tmp', 0x100); "
            "open('/tmp/new', 'w').close(); s = socket.create_server(('0.0.0.0', int(sys.argv[1]))); s.accept()")

    def __init__(self):
        super().__init__("deaf")

    def prepare(self):
        pass

    def command(self):
        return [PYTHON, "-c", self.text, self.port]


class Quiet(Program):
    """Asks for no time, so that nothing is decided but what clients do."""

    text = ("import socket, sys; s = socket.create_server(('0.0.0.0', int(sys.argv[1])))\n"
            "while True: c = s.accept()[0]; c.sendall(c.recv(99)); c.close()")

    def __init__(self):
        super().__init__("quiet")

    def prepare(self):
        pass

    def command(self):
        return [PYTHON, "-c", self.text, self.port]

    @staticmethod
    def echo(address):
        with socket.create_connection(address, 30) as client:
            client.sendall(b"hello")
            return client.recv(99)


class FirstClient:
    """Of a server that comes back: it connects as soon as it can."""

    def __init__(self, address):
        self.address = address
        self.trying = threading.Thread(target=self.connect, daemon=True)
        self.left = threading.Event()
        self.redis = None

    def connect(self):
        while not self.redis and not self.left.wait(0.001):
            with contextlib.suppress(ConnectionRefusedError):
                self.redis = RedisClient(self.address)

    def __call__(self, *words):
        self.trying.join(60)
        return self.redis(*words)

    def __enter__(self):
        self.trying.start()
        return self

    def __exit__(self, *_):
        self.left.set()
        self.trying.join()
        if self.redis:
            self.redis.close()


class Images(CraneTest):
    lane = 2
    timeout_s = 240
    log, await_back = test_checkpoint.Checkpoint.log, test_checkpoint.Checkpoint.await_back
    checkpoints = test_checkpoint.Checkpoint.checkpoints

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.needs_criu()

    def take(self, cluster):
        """By the two backups, who then cut their logs."""
        done = cluster.crane("checkpoint", "take")
        self.assertEqual(done.returncode, 0, done.stdout + self.log(cluster, cluster.primary()))
        rows = cluster.status()
        holders = [n for n in rows if rows[n]["checkpoint"]["index"] > 0]
        self.assertGreaterEqual(len(holders), 2, rows)
        wait_until(lambda: all(cluster.status()[n]["first_log_index"] > 1 for n in holders), 30, "their logs are cut")
        return holders

    def begin_there(self, cluster, replica):
        cluster.kill_craned(replica)
        self.await_back(cluster, replica)
        self.assertIn("as it ran there", self.log(cluster, replica))

    def check_equal(self, cluster):
        for row in cluster.status().values():
            self.assertEqual((row["fenced"], row["divergence"]["schedule_differences"], row["generation"]), ("", 0, 1))
        cluster.assert_identical()

    def test_live_connections_neither_prevent_a_checkpoint_nor_are_lost_by_one(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis, \
                    RedisClient(cluster.address(cluster.primary())) as subscriber:
                subscriber("SUBSCRIBE", "news")
                for number in range(SOME):
                    redis("INCR", "counter")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    self.assertEqual(redis("INCR", "counter"), SOME + 1)
                    redis("DECR", "counter")
                redis("PUBLISH", "news", "one")
                self.assertEqual(subscriber.reply()[-1], b"one")
            self.check_equal(cluster)

    def test_log_that_grows_is_cut_on_all_replicas_without_being_asked(self):
        """The primary, which takes none itself while there are others, has one sent."""
        with self.crane(Redis, options=("--checkpoint-log-mib=1", "--checkpoint-every-s=1")) as cluster:
            value = "v" * 8192
            with RedisClient(cluster.address(cluster.primary())) as redis:
                def cut():
                    for number in range(50):
                        redis("SET", f"key:{number}", value)
                    rows = cluster.status()
                    return len(rows) == 3 and all(row["first_log_index"] > 1 for row in rows.values())

                wait_until(cut, 90, "every replica has cut its log")
                for victim in (1, 2, 3):
                    self.begin_there(cluster, victim)
            with RedisClient(cluster.address(2)) as redis:
                self.assertEqual(redis("DBSIZE"), 50)
            self.check_equal(cluster)

    def test_primary_that_comes_back_far_behind_the_others_checkpoint_begins_there(self):
        """Instead of replaying from the first entry on: it took no checkpoint itself."""
        slowly = "for i = 1, 100000 do end return redis.call('INCR', 'counter')"
        with self.crane(Redis) as cluster:
            first = cluster.primary()
            with RedisClient(cluster.address(first)) as redis:
                while cluster.status()[first]["decided"] < 7000:
                    for number in range(500):
                        redis("EVAL", slowly, "0")
                count = int(redis("GET", "counter"))
                self.assertNotIn(first, self.take(cluster))
            cluster.kill_craned(first)
            with FirstClient(cluster.address(first)) as newcomer:
                self.await_back(cluster, first)
                self.assertIn("has come: the server is begun from it", self.log(cluster, first))
                self.assertEqual(newcomer("INCR", "counter"), count + 1)
            self.check_equal(cluster)

    def test_whole_cluster_goes_on_as_it_ran(self):
        """A server that keeps all in memory."""
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for number in range(SOME):
                    redis("SET", f"key:{number}", number)
                self.take(cluster)
                redis("SET", "after", "it")
            for replica in (1, 2, 3):
                cluster.kill_craned(replica)
            for replica in (1, 2, 3):
                self.await_back(cluster, replica)
            with RedisClient(cluster.address(2)) as redis:
                self.assertEqual(redis("DBSIZE"), SOME + 1)
                redis("SET", "soon", "gone", "PX", "50")
                wait_until(lambda: redis("EXISTS", "soon") == 0, 10, "timers go on")
            self.check_equal(cluster)

    def test_server_of_many_processes(self):
        with self.crane(Apache) as cluster:
            before = get(cluster.address(2), "/10k.bin").digest
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                for _ in range(20):
                    self.assertEqual(get(cluster.address(victim), "/10k.bin").digest, before)
            self.check_equal(cluster)

    def check_web(self, server_class, path="/10k.bin"):
        with self.crane(server_class) as cluster:
            before = get(cluster.address(2), path).comparable()
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                for _ in range(10):
                    self.assertEqual(get(cluster.address(victim), path).comparable(), before)
            self.check_equal(cluster)

    def test_nginx(self):
        self.check_web(Nginx)

    def test_lighttpd(self):
        """Whose ETag is made of inode numbers."""
        self.check_web(Lighttpd)

    def test_civetweb(self):
        self.check_web(CivetWeb)

    def test_python_server(self):
        with self.crane(PythonCounter) as cluster:
            with Connection(cluster.address(cluster.primary())) as kept:
                for _ in range(5):
                    kept.request("GET", "/add")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    for path in ("/add", "/entropy"):
                        kept.request("GET", path)
                        get(cluster.address(victim), path)
            self.check_equal(cluster)

    def test_memcached(self):
        with self.crane(Memcached) as cluster:
            with MemcachedClient(cluster.address(cluster.primary())) as kept:
                kept.set("counter", b"10")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    kept.line("incr counter 1")
                    with MemcachedClient(cluster.address(victim)) as fresh:
                        fresh.line("incr counter 1")
                self.assertEqual(kept.get("counter"), b"14")
            self.check_equal(cluster)

    def test_server_whose_threads_look_at_memory(self):
        """The jumps of their loops are traps, and still are where the image goes on."""
        with self.crane(RedisIoThreads) as cluster:
            def work():
                address = cluster.address(cluster.primary())
                together(*(lambda n=n: pipelined(address, n, 500) for n in range(20)))

            work()
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                work()
            self.check_equal(cluster)

    def test_server_that_watches_files(self):
        self.built_program("watched")
        with self.crane(Program, "watched") as cluster:
            told = fixed(ask(cluster.address()))
            self.assertTrue(any(line.startswith("kept: 2 ") for line in told), told)
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                self.assertEqual(fixed(ask(cluster.address())), told)
            self.check_equal(cluster)

    def test_server_that_does_not_read_what_it_is_told_of_files(self):
        """An image would lose it."""
        with self.crane(Deaf) as cluster:
            done = cluster.crane("checkpoint", "take")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("has not read yet what inotify has told it", self.log(cluster, 2) + self.log(cluster, 3))

    def test_server_whose_schedule_is_traced(self):
        """Also where craned's files are for root alone, as under its unit."""
        self.built_program("watched")
        self.addCleanup(os.umask, os.umask(0o077))
        with self.crane(Program, "watched", options=("--env", "CRANE_TRACE=trace")) as cluster:
            told = fixed(ask(cluster.address()))
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                self.assertEqual(fixed(ask(cluster.address())), told)
            self.check_equal(cluster)

    def test_server_that_saves(self):
        with self.crane(SavingRedis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for number in range(SOME):
                    redis("SET", f"key:{number}", number)
                redis("BGREWRITEAOF")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    redis("SET", f"victim:{victim}", victim)
                    redis("BGREWRITEAOF")
                    redis("SAVE")
                self.assertEqual(redis("DBSIZE"), SOME + 2)
            self.check_equal(cluster)

    def test_database_of_many_processes(self):
        with self.crane(Postgres) as cluster:
            address = cluster.address(cluster.primary())
            fill(Postgres, address)
            sql(Postgres, address, TRANSACTION * 20)
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                sql(Postgres, address, TRANSACTION * 10)
            self.assertEqual(sql(Postgres, address, "SELECT n FROM counters ORDER BY id;").split(), ["40", "80"])
            self.check_equal(cluster)

    def test_all_that_a_process_can_have(self):
        """Files, their times and numbers, timers, sleepers, children, signals, memory and the time stamp counter."""
        self.built_program("imaged")
        with self.crane(Program, "imaged", options=("--backstop", "on")) as cluster:
            ask(cluster.address(cluster.primary()))
            for victim in self.take(cluster):
                ask(cluster.address(cluster.primary()))
                self.begin_there(cluster, victim)
                for _ in range(3):
                    said = ask(cluster.address(victim))
                    self.assertIn("pending 1, handled 0", said)
                    self.assertIn("of 100 that were made again 100 are others, 150 kept their number: 150", said)
                cluster.assert_identical()
            self.check_equal(cluster)

    def test_pids_beside_programs_outside_of_the_schedule_go_on(self):
        for program in ("numbered", "static_tool"):
            self.built_program(program)
        with self.crane(Program, "numbered", ("static_tool",)) as cluster:
            ask(cluster.address(cluster.primary()))
            for victim in self.take(cluster):
                ask(cluster.address(cluster.primary()))
                self.begin_there(cluster, victim)
                ask(cluster.address(victim))
                cluster.assert_identical()
            self.check_equal(cluster)

    def test_in_the_middle_of_every_call(self):
        """A thread waits in each call that can wait: on a replica that begins at an image of that each ends as elsewhere."""
        self.built_program("midcall")
        with self.native(Program, "midcall") as native:
            ask(native.address())
            expected = ask(native.address())
        with self.crane(Program, "midcall") as cluster:
            for _ in range(2):
                self.assertIn("wait", ask(cluster.address(cluster.primary())))
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                said = ask(cluster.address(cluster.primary()))
                self.assertEqual(said, expected)
                cluster.assert_identical()
            self.check_equal(cluster)

    def test_server_that_never_rests(self):
        """A thread of it works all the time: its images are taken between two batches."""
        self.built_program("restless")
        with self.crane(Program, "restless") as cluster:
            self.assertIn("after", ask(cluster.address(cluster.primary())))
            for one in (0, 1):
                self.begin_there(cluster, self.take(cluster)[one])
                self.assertIn("after", ask(cluster.address(cluster.primary())))
            self.check_equal(cluster)

    def test_database_with_open_transaction(self):
        """Of a client that stays, while the replicas that hold an image of it begin there."""
        with self.crane(MariaDb) as cluster:
            address = cluster.address(cluster.primary())
            fill(MariaDb, address)
            sql(MariaDb, address, TRANSACTION * 20)
            with OpenClient(MariaDb, address) as client:
                self.assertEqual(client("BEGIN; UPDATE counters SET n = n + 1 WHERE id = 1;"
                                        "SELECT n FROM counters WHERE id = 1;"), "21")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    self.assertEqual(sql(MariaDb, cluster.address(victim), "SELECT n FROM counters WHERE id = 1;"),
                                     "20\n")
                self.assertEqual(client("UPDATE counters SET n = n + 2 WHERE id = 2; COMMIT;"
                                        "SELECT n FROM counters WHERE id = 2;"), "42")
            sql(MariaDb, address, TRANSACTION * 10)
            for replica in (1, 2, 3):
                self.assertEqual(sql(MariaDb, cluster.address(replica), "SELECT n FROM counters ORDER BY id;").split(),
                                 ["31", "62"])
            self.check_equal(cluster)

    def test_database_on_a_disk_quota_of_xfs(self):
        """Its files are copied within that file system, which it goes on writing to."""
        with self.crane(MariaDb, options=("--disk-quota-bytes=671088640", "--disk-format=xfs")) as cluster:
            address = cluster.address(cluster.primary())
            fill(MariaDb, address)
            for _ in range(2):
                for victim in self.take(cluster):
                    sql(MariaDb, address, TRANSACTION * 10)
                    self.begin_there(cluster, victim)
            for replica in (1, 2, 3):
                self.assertEqual(sql(MariaDb, cluster.address(replica), "SELECT n FROM counters ORDER BY id;").split(),
                                 ["40", "80"])
            self.check_equal(cluster)

    def test_server_that_no_image_can_be_taken_of(self):
        self.built_program("queues")
        with self.crane(Program, "queues") as cluster:
            self.assertIn("asked 1 times", ask(cluster.address(1)))
            done = cluster.crane("checkpoint", "take")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            for row in cluster.status().values():
                self.assertIn("no image of the server was taken", row["checkpoint"]["error"])
            self.assertIn("no image of the server was taken", cluster.crane("status").stdout)
            self.assertIn("asked 2 times", ask(cluster.address(2)))
            cluster.kill_craned(3)
            self.await_back(cluster, 3)
            self.assertIn("asked 3 times", ask(cluster.address(3)))
            self.check_equal(cluster)

    def test_image_of_a_restored_server_is_fetched_by_one_that_lost_all(self):
        with self.crane(Postgres) as cluster:
            address = cluster.address(cluster.primary())
            fill(Postgres, address)
            for _ in range(2):
                sql(Postgres, address, TRANSACTION * 10)
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
            sql(Postgres, address, TRANSACTION * 10)
            # The others have cut their logs.
            victim = next(n for n, row in cluster.status().items() if row["first_log_index"] <= 1)
            pid = cluster.craned_pid(victim)
            remove_tree(cluster.state / f"r{victim}")
            if cluster.craned_pid(victim) == pid:
                cluster.kill_craned(victim)
            wait_until(lambda: "has come" in self.log(cluster, victim), 60, "it has fetched a checkpoint")
            self.await_back(cluster, victim)
            address = cluster.address(cluster.primary())
            sql(Postgres, cluster.address(victim), TRANSACTION * 10)
            self.assertEqual(sql(Postgres, address, "SELECT n FROM counters ORDER BY id;").split(), ["40", "80"])
            self.check_equal(cluster)

    def test_damaged_image_is_fetched_from_another(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for _ in range(SOME):
                    redis("INCR", "counter")
                victim = self.take(cluster)[0]
                image = next((cluster.state / f"r{victim}" / "checkpoints").glob("[0-9]*/image.tar.zst"))
                os.truncate(image, image.stat().st_size // 2)
                cluster.kill_craned(victim)
                wait_until(lambda: "has come" in self.log(cluster, victim), 60, "it has fetched another")
                self.await_back(cluster, victim)
                self.assertEqual(redis("INCR", "counter"), SOME + 1)
            self.check_equal(cluster)

    def test_restored_server_that_does_not_run_is_made_anew(self):
        """One that slept on a doorbell which nobody rang had stood still for ever."""
        with self.crane(Quiet, options=("--checkpoint-log-mib", "0")) as cluster:
            leader = cluster.primary()
            primary = cluster.address(leader)
            for _ in range(5):
                self.assertEqual(Quiet.echo(primary), b"hello")
            victim = next(n for n in self.take(cluster) if n != leader)
            self.begin_there(cluster, victim)
            os.kill(cluster.server_pid(victim), signal.SIGSTOP)
            self.assertEqual(Quiet.echo(primary), b"hello")
            wait_until(lambda: "the server that was restored from it does not run" in self.log(cluster, victim), 120, "it is noticed")
            self.await_back(cluster, victim)
            self.check_equal(cluster)

    def test_images_that_are_damaged_everywhere(self):
        """The primary has the only server then. Two that wait for a checkpoint had kept the lead from it, for ever."""
        with self.crane(Redis) as cluster:
            primary = cluster.primary()
            with RedisClient(cluster.address(primary)) as redis:
                for _ in range(SOME):
                    redis("INCR", "counter")
            holders = self.take(cluster)
            for image in cluster.state.glob("r*/checkpoints/[0-9]*/image.tar.zst"):
                os.truncate(image, image.stat().st_size // 2)
            for holder in holders:
                cluster.kill_craned(holder)
            for holder in holders:
                wait_until(lambda n=holder: "is fetched" in self.log(cluster, n), 30, "it lacks a checkpoint")
            craned = cluster.craned_pid(primary)
            os.kill(craned, signal.SIGSTOP)
            try:
                wait_until(lambda: cluster.status()[holders[0]]["leader"] in holders, 30, "one without a server leads")
            except TimeoutError:
                pass  # they had a new one already, or left it to each other
            finally:
                os.kill(craned, signal.SIGCONT)
            for replica in (1, 2, 3):
                self.await_back(cluster, replica)
            with RedisClient(cluster.address(primary)) as redis:
                self.assertEqual(redis("INCR", "counter"), SOME + 1)
            self.check_equal(cluster)

    def test_images_that_cannot_be_restored_any_more_are_not_fetched_again_and_a_new_one_is_taken(self):
        """A file of the host, which the server has open, has changed since they were taken."""
        self.built_program("imaged")
        with tempfile.NamedTemporaryFile(prefix="crane-held-", dir="/var/tmp") as held:
            held.write(b"as it was")
            held.flush()
            os.chmod(held.name, 0o644)
            with self.crane(Program, "imaged", options=("--backstop", "on", "--env", f"HELD={held.name}")) as cluster:
                ask(cluster.address(cluster.primary()))
                victim = self.take(cluster)[0]
                ask(cluster.address(cluster.primary()))
                held.write(b", and more")
                held.flush()
                cluster.kill_craned(victim)
                self.await_back(cluster, victim)
                said = self.log(cluster, victim)
                self.assertIn("is of no use", said)
                begun = re.findall(r"starting from the checkpoint at log index (\d+)", said)
                self.assertGreater(len(begun), 1)
                self.assertEqual(begun, sorted(set(begun), key=int))
                self.assertIn("pending 1, handled 0", ask(cluster.address(victim)))
                self.check_equal(cluster)

    def test_full_disk_costs_the_image_alone(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                folders = [cluster.state / f"r{n}" / "checkpoints" for n in (1, 2, 3)]
                for folder in folders:
                    folder.mkdir(exist_ok=True)
                    self.tool("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
                    self.addCleanup(subprocess.run, ["umount", "--lazy", str(folder)], stderr=subprocess.DEVNULL,
                                    check=False)
                self.assertNotEqual(cluster.crane("checkpoint", "take").returncode, 0)
                for number, row in cluster.status().items():
                    self.assertIn("could not be kept", row["checkpoint"]["error"], number)
                self.assertEqual(redis("INCR", "counter"), 1)
                for folder in folders:
                    self.tool("umount", folder)
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                self.assertEqual(redis("INCR", "counter"), 2)
            self.check_equal(cluster)

    def test_images_under_load_and_kills_while_they_are_taken(self):
        with self.crane(Redis) as cluster:
            addresses = [cluster.address(n) for n in (1, 2, 3)]
            clients = [Counting(addresses, f"key:{number}") for number in range(8)]
            for client in clients:
                client.start()
            try:
                self.take(cluster)
                for victim_of in (self.kill_helper, self.kill_criu, self.kill_taker):
                    order = subprocess.Popen([str(CRANE_TOOL), "checkpoint", "take", "--state-dir", str(cluster.state)],
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    try:
                        victim_of(cluster)
                    finally:
                        order.wait(150)
                    for replica in (1, 2, 3):
                        self.await_there(cluster, replica)
                self.take(cluster)
            finally:
                for client in clients:
                    client.done.set()
                for client in clients:
                    client.join()
            with RedisClient(addresses[0]) as redis:
                for client in clients:
                    client.check(redis, self)
            self.check_equal(cluster)

    @contextlib.contextmanager
    def packing_held_up(self, cluster, redis):
        """The replica whose image is being packed, by a process that does not go on before the end of this; the order for it."""
        for number in range(100):
            redis("SET", f"noise:{number}", os.urandom(1 << 20))
        order = subprocess.Popen([str(CRANE_TOOL), "checkpoint", "take", "--state-dir", str(cluster.state)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = []
        wait_until(lambda: found.append(self.packer_of(cluster)) or found[-1], 60, "an image is packed", poll_s=0.002)
        replica, packer = found[-1]
        os.kill(packer, signal.SIGSTOP)
        try:
            yield replica, order
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(packer, signal.SIGCONT)
            order.wait(150)

    def test_server_goes_on_while_its_image_is_packed(self):
        with self.crane(Redis) as cluster, RedisClient(cluster.address(cluster.primary())) as redis:
            with self.packing_held_up(cluster, redis) as (replica, order):
                for _ in range(100):
                    redis("INCR", "counter")
                decided = cluster.status()[cluster.primary()]["decided"]
                wait_until(lambda: cluster.status()[replica]["admitted"] >= decided, 30, "its server was given what was decided since")
            self.assertEqual(order.returncode, 0)
            self.check_equal(cluster)

    def test_server_that_is_lost_while_its_image_is_packed(self):
        with self.crane(Redis) as cluster, RedisClient(cluster.address(cluster.primary())) as redis:
            with self.packing_held_up(cluster, redis) as (replica, order):
                cluster.kill_server(replica)
                for _ in range(100):
                    redis("INCR", "counter")
                decided = cluster.status()[cluster.primary()]["decided"]
                wait_until(lambda: cluster.status().get(replica, {}).get("admitted", 0) >= decided, 60, "another server is there")
            self.assertEqual(order.returncode, 0)  # others took theirs, or this one another
            self.check_equal(cluster)

    def await_there(self, cluster, replica):
        """Under load: it never has all."""
        wait_until(lambda: cluster.status().get(replica, {}).get("server") == "listening", 60,
                   f"replica {replica} serves")

    def packer_of(self, cluster):
        """What packs a checkpoint now, and the replica that it does so for."""
        for replica in (1, 2, 3):
            craned = cluster.craned_pid(replica)
            for pid in procs.descendants(craned) if craned else ():
                program, *words = procs.command_line(pid).split(" ")
                if program.endswith("/tar") and any("/checkpoints/" in word for word in words):
                    return replica, pid
        return None

    def criu_of(self, cluster, program="crane-criu"):
        """What takes an image now, and the replica that it does so for."""
        for replica in (1, 2, 3):
            craned = cluster.craned_pid(replica)
            for pid in procs.descendants(craned) if craned else ():
                if procs.command_line(pid).split(" ")[0].rsplit("/", 1)[-1] == program:
                    return replica, pid
        return None

    def kill_helper(self, cluster):
        _, pid = wait_until(lambda: self.criu_of(cluster), 60, "an image is being taken", poll_s=0.001)
        os.kill(pid, signal.SIGKILL)

    def kill_criu(self, cluster):
        _, pid = wait_until(lambda: self.criu_of(cluster, "criu"), 60, "CRIU is at it", poll_s=0.001)
        os.kill(pid, signal.SIGKILL)

    def kill_taker(self, cluster):
        replica, _ = wait_until(lambda: self.criu_of(cluster), 60, "an image is being taken", poll_s=0.001)
        cluster.kill_craned(replica)
