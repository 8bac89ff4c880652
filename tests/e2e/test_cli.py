"""What an operator meets: messages that help, leftovers of a crash cleaned, commands that say what they compared."""

import json
import os
import signal
import subprocess
import tempfile

from support import procs
from support.case import CraneTest
from support.cluster import Cluster
from support.paths import CRANE, CRANE_RUN
from support.redisclient import Redis as RedisClient
from support.servers import Redis


class CommandLine(CraneTest):
    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def fails_with(self, words, *expected):
        done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=False)
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
            again = Cluster(first.command, first.server_port, name="again")
            again.state, again.cwd = first.state, first.cwd
            with again, RedisClient(again.address()) as redis:
                self.assertEqual(redis("PING"), "PONG")

    def test_server_that_cannot_be_scheduled_is_refused(self):
        self.built_program("static_server")
        from support.servers import Program
        server = Program("static_server")
        self.addCleanup(server.remove)
        self.fails_with([CRANE_RUN, "--detach", "--state-dir", server.site / "state", "--", *server.command()], "static")
