"""Replicas of which no majority agrees: the operator decides whose state counts, and the others begin from it."""

import os
import signal
import subprocess
import threading

import test_checkpoint  # the module: a class by name would be run here again
from support.case import CraneTest
from support.cluster import parse_json
from support.honest import Writer
from support.paths import CRANE
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis
from test_repair import VALUE, flip

VARIANTS = {n: VALUE.replace(b"client", b"cosmo%d" % n) for n in (1, 2, 3)}


class DecidedBase(CraneTest):
    lane = 2
    timeout_s = 240
    log, await_back = test_checkpoint.Checkpoint.log, test_checkpoint.Checkpoint.await_back

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.needs_criu()

    def make_differ(self, cluster, replicas):
        """No two servers hold the same, and clients have read what differs."""
        with RedisClient(cluster.address(cluster.primary())) as redis:
            redis("SET", "key", VALUE)
            wait_until(lambda: all(row["lag"] == 0 for row in cluster.status().values()), 20, "all have it")
            for n in replicas:
                self.assertGreater(flip(cluster.server_pid(n), VALUE, VARIANTS[n]), 0)
            self.assertEqual(redis("GET", "key"), VARIANTS[cluster.primary()])

            def told():
                redis("INCR", "more")
                status = cluster.crane("status")
                return status.returncode == 1 and "no majority agrees" in status.stdout and "crane base" in status.stdout

            wait_until(told, 30, f"it is said, and what to do\n{cluster.report()}")
        for n in replicas:  # as the host of each would say it, whoever leads
            alone = subprocess.run([CRANE, "status", "--state-dir", cluster.state / f"r{n}"], capture_output=True, text=True,
                                   timeout=30, check=False)
            self.assertEqual((alone.returncode, "no majority agrees" in alone.stdout), (1, True), alone.stdout + alone.stderr)

    def choose(self, cluster, replica):
        done = cluster.crane("base", replica, timeout_s=150)
        self.assertEqual(done.returncode, 0, done.stdout + cluster.report())

    def check_level(self, cluster, base, replicas=(1, 2, 3)):
        wait_until(lambda: cluster.crane("status").returncode == 0, 30, f"nothing is wrong\n{cluster.report()}")
        for n in replicas:
            with RedisClient(cluster.address(n)) as redis:
                self.assertEqual(redis("GET", "key"), VARIANTS[base])
                redis("INCR", "more")
        for row in cluster.status().values():
            if not row.get("witness"):
                self.assertEqual((row["fenced"], row["divergence"]["diverged"], row["generation"]), ("", [], 1), row)
        cluster.assert_identical()

    def test_no_two_of_three_agree(self):
        with self.crane(Redis) as cluster:
            stop = threading.Event()
            clients = [Writer(number, [cluster.address(n) for n in (1, 2, 3)], 1, stop) for number in range(3)]
            for client in clients:
                client.start()
            try:
                early = cluster.crane("base", 1)
                self.assertEqual((early.returncode, "nothing to decide" in early.stdout), (1, True), early.stdout)
                self.make_differ(cluster, (1, 2, 3))
                shown = parse_json(cluster.crane("diff", "--anew", "--json").stdout)
                self.assertFalse(shown["majority"])
                self.assertEqual([pair["verdict"] for pair in shown["pairs"]], ["different"] * 3)
                text = cluster.crane("diff", "--anew")
                self.assertEqual((text.returncode, "crane base" in text.stdout), (1, True), text.stdout)
                base = next(n for n in (1, 2, 3) if n != cluster.primary())
                self.choose(cluster, base)
                self.check_level(cluster, base)
                for odd in {1, 2, 3} - {base}:
                    self.assertIn("has come: the server is begun from it", self.log(cluster, odd))
                served = [len(client.took_s) for client in clients]
                wait_until(lambda: all(len(client.took_s) > before + 20 for client, before in zip(clients, served)), 30,
                           "honest clients are served")
            finally:
                stop.set()
                for client in clients:
                    client.join(30)
            with RedisClient(cluster.address(base)) as redis:
                self.assertEqual([one for client in clients for one in (*client.wrong, client.lost(redis)) if one], [])
            cluster.assert_identical()
            late = cluster.crane("base", base)
            self.assertEqual((late.returncode, "nothing to decide" in late.stdout), (1, True), late.stdout)

    def test_of_two_that_are_up_and_the_third_comes_back(self):
        """Its log leads to the decision, whatever its server would have been without."""
        with self.crane(Redis) as cluster:
            third = next(n for n in (1, 2, 3) if n != cluster.primary())
            up = [n for n in (1, 2, 3) if n != third]
            (supervisor,) = cluster.supervisor_pids()
            os.kill(supervisor, signal.SIGSTOP)  # else it would be back at once
            try:
                cluster.kill_craned(third)
                wait_until(lambda: third not in cluster.status(), 10, "it is gone")
                self.make_differ(cluster, up)
                gone = cluster.crane("base", third)
                self.assertEqual((gone.returncode, "not connected" in gone.stdout), (1, True), gone.stdout)
                base = cluster.primary()
                self.choose(cluster, base)
                with RedisClient(cluster.address(next(n for n in up if n != base))) as redis:
                    self.assertEqual(redis("GET", "key"), VARIANTS[base])
            finally:
                os.kill(supervisor, signal.SIGCONT)
            self.await_back(cluster, third)
            self.check_level(cluster, base)

    def test_base_that_takes_no_checkpoint_is_replaced_by_another(self):
        with self.crane(Redis) as cluster:
            self.make_differ(cluster, (1, 2, 3))
            first = next(n for n in (1, 2, 3) if n != cluster.primary())
            second = next(n for n in (1, 2, 3) if n not in (first, cluster.primary()))
            os.kill(cluster.server_pid(first), signal.SIGSTOP)

            # Where it sleeps at a place that it has been given already, its image can be taken though it is stopped.
            def left_behind():
                with RedisClient(cluster.address(cluster.primary())) as redis:
                    redis("INCR", "more")
                return cluster.status()[first]["unadmitted"] > 0

            wait_until(left_behind, 20, "it cannot come to where its state would count")
            with self.assertRaises(subprocess.TimeoutExpired):
                cluster.crane("base", first, timeout_s=5)
            for row in cluster.status().values():
                self.assertEqual("crane base" in row["fenced"], row["replica"] != first, row)
            calls = [call for entry in parse_json(cluster.crane("log", "--json", "--replica", second).stdout)["entries"]
                     for call in entry.get("calls", []) if call["call"] == "base"]
            self.assertEqual([call["detail"] for call in calls], [f"is replica {first}"])
            # Nobody may lead now: whoever does tries to hand over, and decides nothing meanwhile.
            wait_until(lambda: cluster.crane("base", second, timeout_s=150).returncode == 0, 150, "the other one counts")
            self.check_level(cluster, second)

    def test_two_servers_and_a_witness(self):
        with self.crane(Redis, options=("--witnesses=1",)) as cluster:
            self.make_differ(cluster, (1, 2))
            silent = cluster.crane("base", 3)
            self.assertEqual((silent.returncode, "witness" in silent.stdout), (1, True), silent.stdout)
            self.choose(cluster, 2)
            self.check_level(cluster, 2, (1, 2))

    def test_older_crane_is_not_given_what_it_does_not_know(self):
        cluster = self.crane(Redis)
        cluster.environment["CRANE_TEST_PROTOCOL"] = "5-5"
        with cluster:
            refused = cluster.crane("base", 1)
            self.assertEqual((refused.returncode, "older Crane" in refused.stdout), (1, True), refused.stdout)
