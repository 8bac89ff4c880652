"""Checkpoints of servers that run: images of their processes with live connections, and replicas that begin there."""

import os

from support.case import CraneTest
from support.databases import MariaDb
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Apache, Redis
from support.webclient import get
from test_checkpoint import Checkpoint as Files
from test_databases import TRANSACTION, fill, sql

SOME = 300  # commands


class Images(CraneTest):
    timeout_s = 240
    log, await_back, checkpoints = Files.log, Files.await_back, Files.checkpoints

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        if not os.access(os.environ.get("CRANE_CRIU", "/opt/crane/criu/criu"), os.X_OK):
            self.skipTest("no CRIU: make deps says why")

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

    def test_database_with_open_transaction(self):
        with self.crane(MariaDb) as cluster:
            address = cluster.address(cluster.primary())
            fill(MariaDb, address)
            sql(MariaDb, address, TRANSACTION * 20)
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                sql(MariaDb, address, TRANSACTION * 10)
            self.assertEqual(sql(MariaDb, address, "SELECT n FROM counters ORDER BY id;").split(), ["40", "80"])
            self.check_equal(cluster)
