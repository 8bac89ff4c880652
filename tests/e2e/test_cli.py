"""What an operator meets: messages that help, leftovers of a crash cleaned, commands that say what they compared."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

from support import procs
from support.case import CraneTest
from support.cluster import Cluster
from support.paths import BUILD, CRANE, CRANE_RUN, CRANE_TOOL, PYTHON, ROOT, SHIM, WORK_PARENT, free_port
from support.redisclient import Redis as RedisClient
from support.servers import Redis

HERE = pathlib.Path(__file__).resolve().parent


class CommandLine(CraneTest):
    lane = 3

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def fails_with(self, words, *expected, cwd=None):
        done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=False, cwd=cwd)
        text = done.stdout.decode()
        self.assertNotEqual(done.returncode, 0, text)
        for word in expected:
            self.assertIn(word, text)
        self.assertNotIn("Traceback", text)

    def test_help_and_version(self):
        for program in (CRANE_RUN, CRANE):
            self.assertIn("usage", self.tool(program, "--help").lower())
        self.assertRegex(self.tool(CRANE_RUN, "--version"), r"\d+\.\d+")

    def test_mistakes_get_messages(self):
        self.fails_with([CRANE_RUN, "--replicas", "2", "--", "/bin/true"], "replicas")
        self.fails_with([CRANE_RUN, "--no-such-option", "--", "/bin/true"], "no-such-option")
        with tempfile.TemporaryDirectory() as state:
            self.fails_with([CRANE_RUN, "--state-dir", state + "/state", "--", "/no/such/program"], "/no/such/program")
        self.fails_with([CRANE_RUN], "server", "--")

    def test_usage_errors_of_crane_name_the_mistake(self):
        for words, expected in ((["bogus"], "no verb bogus"), ([], "say what to do"), (["--bogus"], "the verb comes first"),
                                (["ca"], "init, issue or show"), (["ca", "bogus"], "bogus"),
                                (["status", "--bogus"], "--bogus"), (["diff", "/nope"], "/nope does not exist"),
                                (["log", "--from", "10", "--to", "2"], "--from 10 is behind --to 2"),
                                (["diff", "--anew", "--cluster", "h:1", "--cert", "c", "--key", "k"], "--anew reads the logs themselves"),
                                (["status", "--state-dir", ""], "--state-dir is empty")):
            done = subprocess.run([CRANE_TOOL, *words], capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)

    def test_program_crane_stops_as_the_script_does(self):
        with tempfile.TemporaryDirectory() as state:
            done = self.tool(CRANE_TOOL, "stop", "--json", "--state-dir", state)
            self.assertEqual(json.loads(done), {"stopped": [], "ended": [], "removed": []})

    def test_json_of_every_command(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address()) as redis:
                redis("SET", "a", 1)
            rows = cluster.status()
            self.assertEqual(sorted(rows), [1, 2, 3])
            self.assertEqual(sum(str(r["role"]).lower() in ("primary", "leader") for r in rows.values()), 1)
            compared = cluster.crane("diff", "--json")
            self.assertEqual(compared.returncode, 0, compared.stdout)
            json.loads(compared.stdout)
            self.assertRegex(cluster.crane("log").stdout.lower(), "connect|send")
            nobody = cluster.crane("health", "--replica", "9")
            self.assertEqual(nobody.returncode, 1, nobody.stdout)
            self.assertIn("replica 9 is not on this host", nobody.stdout)
            behind = cluster.crane("log", "--from", "99999999")
            self.assertEqual(behind.returncode, 1)
            self.assertRegex(behind.stdout, r"^crane log: replica 1: the log ends at #\d+$")

    def test_log_of_a_running_replica_that_has_more_than_one_file(self):
        with self.crane(Redis, options=("--checkpoint-log-mib=0",)) as cluster:  # nobody cuts it
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for n in range(100):
                    redis("SET", f"key{n % 4}", "x" * 1_000_000)
                    if n == 50:
                        self.assertRegex(cluster.crane("log", "--from", "1").stdout, "SET|send")
            files = sorted(path.name for path in (cluster.state / "r2" / "db").glob("log.0*"))
            self.assertGreaterEqual(len(files), 3, files)
            whole = json.loads(cluster.crane("log", "--replica", "2", "--json", timeout_s=90).stdout)
            indices = [entry["index"] for entry in whole["entries"]]
            self.assertEqual(indices, list(range(1, len(indices) + 1)))
            cluster.stop()
            verified = cluster.crane("log", "verify", timeout_s=90)
            self.assertEqual(verified.returncode, 0, verified.stdout)

    def test_log_of_a_running_replica_is_that_which_lies_on_its_disk(self):
        """It is asked for in pieces, and entries with more calls than a piece takes are completed; nothing is copied for it."""
        with self.crane(Redis, options=("--checkpoint-log-mib=0",)) as cluster:
            address = cluster.address(cluster.primary())
            clients = [socket.create_connection(address, timeout=20) for _ in range(600)]
            for client in clients:
                client.sendall(b"PING\r\n" * 3)
            for client in clients:
                client.recv(1)
                client.close()
            before = set(pathlib.Path("/tmp").glob("crane-log-*"))
            running = json.loads(cluster.crane("log", "--replica", "2", "--json", timeout_s=90).stdout)["entries"]
            part = json.loads(cluster.crane("log", "--replica", "2", "--from", "3", "--to", "5", "--json").stdout)["entries"]
            self.assertEqual(set(pathlib.Path("/tmp").glob("crane-log-*")), before)
            cluster.stop()
            lying = json.loads(cluster.crane("log", "--replica", "2", "--json", timeout_s=90).stdout)["entries"]
            self.assertGreater(len(running), 5)
            self.assertEqual(running, lying[:len(running)])
            self.assertEqual(part, lying[2:5])
            self.assertFalse([entry["index"] for entry in running if "calls_left_out" in entry])
            self.note(f"{len(running)} entries; the one with most calls has {max(len(entry.get('calls', ())) for entry in running)}")

    def test_diff_of_nothing_is_not_a_pass(self):
        with self.crane(Redis) as cluster:
            output = cluster.state / "r2" / "output.log"
            cluster.stop()
            output.unlink()
            done = cluster.crane("diff")
            self.assertNotEqual(done.returncode, 0, f"crane diff passed without replica 2's log:\n{done.stdout}")

    def test_diff_waits_for_a_replica_that_is_started_again(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for n in range(2000):
                    redis("SET", f"key{n}", n)
            leader = cluster.primary()
            os.kill(cluster.craned_pid(leader), signal.SIGKILL)
            done = cluster.crane("diff", "--wait", "60", "--json", timeout_s=90)
            self.assertEqual(done.returncode, 0, done.stdout)
            result = json.loads(done.stdout)
            self.assertTrue(result["identical"])
            self.assertGreaterEqual(min(log["records"] for log in result["logs"]), 2000)

    def test_next_start_cleans_what_a_crash_left(self):
        first = self.crane(Redis)
        with first:
            self.assertTrue(first.supervisor_pids(), "crane-run is not found")
            for pid in first.supervisor_pids() + [first.craned_pid(replica) for replica in (1, 2, 3)]:
                os.kill(pid, signal.SIGKILL)
            procs.wait_until(lambda: not first.living(), 10, "craned is gone")
            again = same_run(first)
            with again, RedisClient(again.address()) as redis:
                self.assertEqual(redis("PING"), "PONG")

    def test_server_that_cannot_be_scheduled_is_refused(self):
        self.built_program("static_server")
        from support.servers import Program
        server = Program("static_server")
        self.addCleanup(server.remove)
        self.fails_with([CRANE_RUN, "--detach", "--state-dir", server.site / "state", "--", *server.command()], "static")

    def test_launcher_that_ends_in_a_program_that_cannot_be_scheduled_is_refused(self):
        self.built_program("static_server")
        from support.servers import Program
        server = Program("static_server")
        self.addCleanup(server.remove)
        command = f"cd / && exec {' '.join(map(str, server.command()))}"
        self.fails_with([CRANE_RUN, "--detach", "--state-dir", server.site / "state", "--", "sh", "-c", command],
                        "static_server", "cannot be scheduled")

    def test_server_that_listens_and_ends_well_again_and_again_gets_a_hint(self):
        state = pathlib.Path(tempfile.mkdtemp(prefix="crane-e2e-ends-", dir=WORK_PARENT))
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        server = "import socket; s = socket.create_server(('0.0.0.0', 7000))"
        self.fails_with([CRANE_RUN, "--detach", "--state-dir", state / "state", "--port-map", f"7000:{free_port()}", "--",
                         PYTHON, "-c", server], "give the command that is the server", "status 0")

    def test_kernel_that_dispatches_no_system_calls_is_refused(self):
        """A server there would do less than the other replicas' servers, and nobody would know."""
        old_kernel = [sys.executable, "-B", HERE / "support" / "without_dispatch.py"]
        self.fails_with([*old_kernel, CRANE, "check"], "missing  backstop", "Linux 5.11", "--backstop off")
        server = Redis()
        self.addCleanup(server.remove)
        self.fails_with([*old_kernel, CRANE_RUN, "--detach", "--state-dir", server.site / "state", "--backstop", "on", "--",
                         *server.command()], "Linux 5.11", "--backstop off")
        cluster = self.crane(Redis, options=("--backstop", "off"))
        cluster.prefix = [str(word) for word in old_kernel]
        with cluster, RedisClient(cluster.address()) as redis:
            self.assertEqual(redis("PING"), "PONG")

    def test_replica_without_its_port_is_named(self):
        server = Redis(port=free_port())
        self.addCleanup(server.remove)
        cluster = Cluster(server.command(), server.port, name="taken")
        with socket.create_server(("127.0.0.2", server.port)):
            # Without --port-map, so that nothing can be known before the server listens.
            words = [CRANE_RUN, "--detach", "--state-dir", cluster.state, "--", *server.command()]
            with cluster_without_start(cluster):
                text = self.tool(*words)
                self.assertIn("replica 2: CANNOT SERVE CLIENTS: cannot listen on 127.0.0.2", text)
                self.assertRegex(text, f"replica 1: 127.0.0.1:{server.port} ")
                self.assertNotIn(f"replica 2: 127.0.0.2:{server.port}", text)

    def test_replica_that_lost_its_database_rejoins(self):
        first = self.crane(Redis)
        with first:
            with RedisClient(first.address()) as redis:
                for n in range(300):
                    redis("SET", f"key{n}", n)
            first.stop()
            shutil.rmtree(first.state / "r2/db")
            again = same_run(first)
            with again:
                with RedisClient(again.address(2)) as redis:
                    self.assertEqual(int(redis("GET", "key299")), 299)
                log = again.state / "r2/craned.log"
                self.assertIn("the database is new (rejoin = true)", log.read_text())
                procs.wait_until(lambda: "rejoined: this replica has all" in log.read_text(), 20, "replica 2 votes again")
                again.assert_identical()
                self.tool(CRANE_TOOL, "transfer", "2", "--state-dir", again.state)  # it leads, so it votes again
                with RedisClient(again.address(3)) as redis:
                    self.assertEqual(redis("SET", "after", 1), "OK")
                again.assert_identical()
            for lost in (2, 3):
                shutil.rmtree(first.state / f"r{lost}/db")
            self.fails_with([CRANE_RUN, "--detach", "--state-dir", first.state, "--", *first.command],
                            "replicas 2, 3 of 3 lost the log", "no majority", cwd=first.cwd)
            self.assertTrue((first.state / "r1/db").exists())


def same_run(cluster):
    """The same server on the same state directory, once more."""
    again = Cluster(cluster.command, cluster.server_port, name="again")
    again.state, again.cwd = cluster.state, cluster.cwd
    return again


@contextlib.contextmanager
def cluster_without_start(cluster):
    """Stopped and looked after like any other, but started by the test."""
    cluster.start = lambda: None
    with cluster:
        yield cluster


class Craned(CraneTest):
    """craned as an operator of several hosts starts it."""
    lane = 3

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.dir = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp", prefix="crane-e2e-craned-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def configure(self, shim=SHIM, init=BUILD / "bin/crane-init", end=""):
        text = (f'cluster_id = "ab{os.getpid():08x}"\nreplica_id = 1\nstate_dir = "{self.dir}/state{end}"\nisolation = "none"\n'
                f'server = ["/usr/bin/redis-server", "--port", "{free_port()}", "--save", ""]\ncwd = "{self.dir}"\n'
                f'shim = "{shim}"\ninit = "{init}"\n'
                f'[[replica]]\nid = 1\npeer = "127.0.0.1:{free_port()}"\n')
        (self.dir / "craned.toml").write_text(text)
        return [BUILD / "bin/craned", "--config", self.dir / "craned.toml"]

    def test_without_shim_or_init_it_does_not_stay(self):
        for wrong in ({"shim": "/no/libcrane.so"}, {"init": "/no/crane-init"}):
            done = subprocess.run(self.configure(**wrong), capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(*wrong.values(), done.stderr)

    def mode_after_a_run(self, end=""):
        craned = subprocess.Popen(self.configure(end=end), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            procs.wait_until((self.dir / "state/control.sock").exists, 20, "craned answers")
            self.assertEqual(stat.S_IMODE((self.dir / "state/craned.log").stat().st_mode), 0o600)
            result = json.loads(self.tool(CRANE, "stop", "--json", "--state-dir", self.dir / "state"))
            self.assertEqual(result["stopped"], [1])
            self.assertEqual(craned.wait(20), 0)
        finally:
            craned.kill()
            craned.wait()
        return stat.S_IMODE((self.dir / "state").stat().st_mode)

    def test_mode_of_a_directory_that_was_there_is_the_operators(self):
        (self.dir / "state").mkdir()
        (self.dir / "state").chmod(0o750)
        self.assertEqual(self.mode_after_a_run(), 0o750)
        self.assertIn("others may look into", (self.dir / "state/craned.log").read_text())
        if os.geteuid() == 0:
            os.chown(self.dir / "state", 65534, -1)
            self.assertEqual(self.mode_after_a_run(), 0o750)
            self.assertIn("belongs to user 65534, who may change all", (self.dir / "state/craned.log").read_text())
        for end in ("", "/", "/."):  # of state_dir
            shutil.rmtree(self.dir / "state")
            self.assertEqual(self.mode_after_a_run(end), 0o700, f"state{end}")
            self.assertNotIn("others may look into", (self.dir / "state/craned.log").read_text())

    def test_example_is_a_right_configuration(self):
        words = [BUILD / "bin/craned", "--check-config", "--config"]
        text = (ROOT / "docs/examples/craned.toml").read_text()
        config, authority = self.dir / "craned.toml", self.dir / "ca"
        # As its comments say.
        cluster = re.search(r'^cluster_id = "(\w+)"', text, re.MULTILINE).group(1)
        self.assertIn(f"--cluster {cluster}\n", text)
        self.tool(CRANE, "ca", "init", "--dir", authority, "--cluster", cluster)
        self.tool(CRANE, "ca", "issue", "--dir", authority, "--replica", 1)
        text = text.replace("/etc/crane/tls", f"{authority}/replica-1")
        config.write_text(text.replace("/usr/local/lib/crane/libcrane.so", str(SHIM)).replace("/usr/local/lib/crane", str(BUILD)))
        self.assertIn("replica 1 of 3", self.tool(*words, config))
        # The start would fail, so it is not called right.
        config.write_text(text.replace("/usr/local/lib/crane", str(self.dir)))
        done = subprocess.run([*words, config], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f'shim = "{self.dir}/libcrane.so": No such file', done.stderr)
        done = subprocess.run([*words, "/no/such/file"], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(subprocess.run([words[0]], capture_output=True, timeout=20, check=False).returncode, 2)
