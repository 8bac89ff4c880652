"""Requests that compute for ever: each costs a restart of the server, at the same place on every replica."""

import os
import signal
import socket
import subprocess
import threading

from support.case import CraneTest
from support.databases import Postgres
from support.paths import Settings
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.redisclient import RedisError
from support.servers import Redis
from test_databases import sql
from test_programs import Program, ask

ENDLESS_S = 4
LOOP = "while true do end"
BUSY = "local t = 0 for i = 1, tonumber(ARGV[1]) do t = t + i end return 'done'"
PLPGSQL = "do $$ declare i bigint := 0; begin loop i := i + 1; end loop; end $$"


class Persistent(Redis):
    """Every acknowledged write is on its disk. Scripts may run as long as they like, so none looks at the clock."""

    def command(self):
        words = super().command()
        words[words.index("--appendonly") + 1] = "yes"
        return [*words, "--appendfsync", "always", "--busy-reply-threshold", "0"]


class Patient(Redis):
    """Scripts look at the clock now and then; others are answered when one has run for 0.2 s."""

    def command(self):
        return [*super().command(), "--busy-reply-threshold", "200"]


def ask_in_background(address, *words):
    """A request that nobody waits for any longer than its server lives."""
    def ask():
        try:
            with RedisClient(address, 120) as redis:
                redis(*words)
        except (OSError, RedisError):
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    return asking


class Endless(CraneTest):
    lane = 3
    timeout_s = 240
    options = ["--endless-s", str(ENDLESS_S)]

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def await_generation(self, cluster, generation, replicas=(1, 2, 3)):
        def serves():
            rows = cluster.status()
            return all(n in rows and rows[n]["generation"] == generation and rows[n]["server"] == "listening"
                       for n in replicas)

        wait_until(serves, 90, f"server number {generation} serves at replicas {replicas}")

    def assert_same_schedules(self, cluster):
        for row in cluster.status().values():
            self.assertEqual((row["divergence"]["schedule_differences"], row["fenced"]), (0, ""))
        cluster.assert_identical()

    def make_stand(self, cluster):
        ask_in_background(cluster.address(1), "EVAL", LOOP, 0)
        with RedisClient(cluster.address(2), 1) as redis, self.assertRaises(OSError):
            while True:
                redis("PING")

    def end_by_the_operator(self, cluster):
        done = cluster.crane("restart", "--within", 10)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.await_generation(cluster, 2)
        self.assert_same_schedules(cluster)

    def test_script_without_an_end_costs_a_restart(self):
        with self.crane(Persistent, options=self.options) as cluster:
            with RedisClient(cluster.address(2)) as redis:
                redis("SET", "kept", "value")
            asking = ask_in_background(cluster.address(2), "EVAL", LOOP, 0)
            self.await_generation(cluster, 2)
            asking.join(30)
            self.assertFalse(asking.is_alive())  # its connection ended
            with RedisClient(cluster.address(3)) as redis:
                self.assertEqual(redis("GET", "kept"), b"value")
            self.assertIn("stood at one place", cluster.status()[1]["last_end"])
            # Who replays it ends its server at the same place, whoever it is.
            for victim in (cluster.primary(), next(n for n in (1, 2, 3) if n != cluster.primary())):
                cluster.kill_craned(victim)
                self.await_generation(cluster, 2)
            with RedisClient(cluster.address(1)) as redis:
                self.assertEqual(redis("GET", "kept"), b"value")
            self.assert_same_schedules(cluster)

    def test_script_that_reads_the_clock_is_ended_by_another_client(self):
        with self.crane(Patient, options=self.options) as cluster:
            asking = ask_in_background(cluster.address(2), "EVAL", LOOP, 0)

            def busy():
                try:
                    with RedisClient(cluster.address(3), 60) as redis:
                        redis("PING")
                    return False
                except RedisError as error:
                    return str(error).startswith("BUSY")

            wait_until(busy, 60, "others are told that it is busy")
            with RedisClient(cluster.address(3), 60) as redis:
                self.assertEqual(redis("SCRIPT", "KILL"), "OK")
                self.assertEqual(redis("PING"), "PONG")
            asking.join(30)
            self.assertFalse(asking.is_alive())
            self.assertEqual({row["generation"] for row in cluster.status().values()}, {1})
            self.assert_same_schedules(cluster)

    def test_primary_dies_while_a_request_computes_for_ever(self):
        with self.crane(Persistent, options=self.options) as cluster:
            with RedisClient(cluster.address(1)) as redis:
                redis("SET", "kept", "value")
            primary = cluster.primary()
            backup = next(n for n in (1, 2, 3) if n != primary)
            ask_in_background(cluster.address(backup), "EVAL", LOOP, 0)
            wait_until(lambda: "it is to be ended there" in (cluster.state / f"r{primary}" / "craned.log").read_text(),
                       60, "the primary has asked for the end")
            cluster.kill_craned(primary)
            self.await_generation(cluster, 2)
            with RedisClient(cluster.address(primary)) as redis:
                self.assertEqual(redis("GET", "kept"), b"value")
            self.assert_same_schedules(cluster)

    def test_long_request_that_ends_is_answered(self):
        """Below the limit nothing happens, and files that are read or written are no standstill."""
        with self.crane(Persistent, options=self.options) as cluster:
            with RedisClient(cluster.address(2), 120) as redis:
                self.assertEqual(redis("EVAL", BUSY, 0, 5_000_000), b"done")
                for number in range(500 if Settings.quick else 3000):
                    redis("SET", f"k:{number}", "v" * 100)
                self.assertEqual(redis("BGREWRITEAOF")[:10], "Background"[:10])
            self.assertEqual({row["generation"] for row in cluster.status().values()}, {1})
            self.assert_same_schedules(cluster)

    def test_operator_restarts_a_server_that_computes_for_ever(self):
        """Which no signal reaches, and whose setting says that it may compute as long as it likes."""
        with self.crane(Persistent, options=["--endless-s", "0"]) as cluster:
            self.make_stand(cluster)
            self.end_by_the_operator(cluster)

    def test_operator_restarts_a_server_that_is_kept_from_computing(self):
        """It stands with its turn and takes no processor time: it was stopped from outside, on all replicas."""
        with self.crane(Persistent, options=["--endless-s", "0"]) as cluster:
            self.make_stand(cluster)
            for replica in (1, 2, 3):
                os.kill(cluster.server_pid(replica), signal.SIGSTOP)
            self.end_by_the_operator(cluster)

    def run_without_an_end(self, address, statement):
        words = [str(word) for word in Postgres.client(address)] + ["-c", statement]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @staticmethod
    def has_recovered(address):
        try:
            return sql(Postgres, address, "SELECT count(*), sum(n) FROM t;").strip() == "1000|500500"
        except OSError:
            return False

    def test_query_without_an_end_of_a_database(self):
        with self.crane(Postgres, options=self.options) as cluster:
            address = cluster.address(cluster.primary())
            sql(Postgres, address, "CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 1000);")
            endless = self.run_without_an_end(address, PLPGSQL)
            self.await_generation(cluster, 2)
            self.assertNotEqual(endless.wait(30), 0)
            wait_until(lambda: self.has_recovered(address), 60, "the database is there again, with all it had")
            self.assert_same_schedules(cluster)

    def test_operator_ends_a_server_that_writes_to_a_file_for_ever(self):
        """At the same write on every replica, which the next server's answer shows."""
        self.built_program("rewriting")
        with self.crane(Program, "rewriting", options=self.options) as cluster:
            with socket.create_connection(cluster.address(), 60) as client:
                before = max(row["clock"] for row in cluster.status().values())
                client.sendall(b"run\n")
                wait_until(lambda: min(row["clock"] for row in cluster.status().values()) > before + 500, 60, "it writes on every replica")
                self.assertEqual(cluster.crane("restart", "--within", 10).returncode, 0)
                self.await_generation(cluster, 2)
            answer = ask(cluster.address())
            self.assertIn("counted far", answer)
            cluster.kill_craned(cluster.primary())  # its replay writes as often
            self.await_generation(cluster, 2)
            self.assertEqual(ask(cluster.address()), answer)
            self.assert_same_schedules(cluster)
