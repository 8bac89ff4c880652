"""Replicas that begin at a checkpoint instead of at the log's first entry: the files that a server has left."""

import os
import re
import signal

from support.case import CraneTest
from support.cluster import remove_tree
from support.databases import MariaDb
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Apache
from support.webclient import get
from test_databases import TRANSACTION, fill, sql
from test_restart import SavingRedis

SOME = 200  # keys


class Checkpoint(CraneTest):
    lane = 1
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def checkpoints(self, cluster, replica):
        return sorted(path.name for path in (cluster.state / f"r{replica}" / "checkpoints").glob("[0-9]*"))

    def take(self, cluster, generation):
        """A restart that the operator asks for keeps one on every replica, and the log is cut behind it."""
        done = cluster.crane("restart")
        self.assertEqual(done.returncode, 0, done.stdout)

        def kept():
            rows = cluster.status()
            return all(n in rows and rows[n]["generation"] == generation and rows[n]["server"] == "listening"
                       and rows[n]["checkpoint"]["index"] > 0
                       and rows[n]["first_log_index"] == rows[n]["checkpoint"]["index"] + 1 for n in (1, 2, 3))

        wait_until(kept, 60, "every replica keeps a checkpoint, and has cut its log behind it")
        return cluster.status()[1]["checkpoint"]["index"]

    def await_back(self, cluster, replica):
        decided = max((row["decided"] for row in cluster.status().values()), default=0)

        def back():
            """Level with the others: what it lacks of the log it may not even know of yet."""
            row = cluster.status().get(replica, {})
            return row.get("server") == "listening" and row["lag"] == 0 and row["decided"] >= decided

        wait_until(back, 60, f"replica {replica} is back")

    def log(self, cluster, replica):
        path = cluster.state / f"r{replica}" / "craned.log"
        return path.read_text() if path.exists() else ""

    def test_replica_begins_at_a_checkpoint(self):
        with self.crane(SavingRedis) as cluster:
            with RedisClient(cluster.address(1)) as redis:
                for number in range(SOME):
                    redis("SET", f"before:{number}", number)
            index = self.take(cluster, 2)
            cut = cluster.crane("log", "--to", "1")
            self.assertEqual((cut.returncode, cut.stdout),
                             (1, f"crane log: replica 1: the log begins at #{index + 1}: what is before is in a checkpoint, and was cut\n"))
            with RedisClient(cluster.address(2)) as redis:
                for number in range(SOME):
                    redis("SET", f"after:{number}", number)
            primary = cluster.primary()
            for victim in (next(n for n in (1, 2, 3) if n != primary), primary):
                cluster.kill_craned(victim)
                self.await_back(cluster, victim)
                self.assertIn(f"starting from the checkpoint at log index {index}", self.log(cluster, victim))
                with RedisClient(cluster.address(victim)) as redis:
                    self.assertEqual(redis("DBSIZE"), 2 * SOME)
                    self.assertEqual(redis("GET", f"before:{SOME - 1}"), str(SOME - 1).encode())
                    redis("SET", f"killed:{victim}", 1)
                    redis("DEL", f"killed:{victim}")
            for row in cluster.status().values():
                self.assertEqual((row["fenced"], row["divergence"]["schedule_differences"]), ("", 0))
            cluster.assert_identical()

    def test_whole_cluster_begins_at_a_checkpoint(self):
        """And goes on to the next server and the next checkpoint from there."""
        with self.crane(SavingRedis) as cluster:
            for generation in (2, 3, 4):
                with RedisClient(cluster.address(1)) as redis:
                    redis("SET", f"generation:{generation}", generation)
                index = self.take(cluster, generation)
                with RedisClient(cluster.address(3)) as redis:
                    redis("INCR", "counter")
                for replica in (1, 2, 3):
                    cluster.kill_craned(replica)
                for replica in (1, 2, 3):
                    self.await_back(cluster, replica)
                    self.assertIn(f"starting from the checkpoint at log index {index}", self.log(cluster, replica))
                with RedisClient(cluster.address(2)) as redis:
                    self.assertEqual(redis("GET", "counter"), str(generation - 1).encode())
                    for earlier in range(2, generation + 1):
                        self.assertEqual(redis("GET", f"generation:{earlier}"), str(earlier).encode())
            self.assertEqual(len(self.checkpoints(cluster, 1)), 2)  # older ones are gone
            cluster.assert_identical()

    def test_database_begins_at_a_checkpoint(self):
        with self.crane(MariaDb) as cluster:
            address = cluster.address(cluster.primary())
            fill(MariaDb, address)
            sql(MariaDb, address, TRANSACTION * 20)
            self.take(cluster, 2)
            sql(MariaDb, address, TRANSACTION * 20)
            backup = next(n for n in (1, 2, 3) if n != cluster.primary())
            cluster.kill_craned(backup)
            self.await_back(cluster, backup)
            self.assertIn("starting from the checkpoint", self.log(cluster, backup))
            sql(MariaDb, address, TRANSACTION * 20)
            self.assertEqual(sql(MariaDb, cluster.address(backup), "SELECT n FROM counters ORDER BY id;").split(),
                             ["60", "120"])
            cluster.assert_identical()

    def test_server_of_many_processes_begins_at_a_checkpoint(self):
        with self.crane(Apache) as cluster:
            before = get(cluster.address(2), "/10k.bin").digest
            self.take(cluster, 2)
            cluster.kill_craned(2)
            self.await_back(cluster, 2)
            self.assertEqual(get(cluster.address(2), "/10k.bin").digest, before)
            cluster.assert_identical()

    def fill(self, cluster, name, value="v"):
        with RedisClient(cluster.address(cluster.primary())) as redis:
            for number in range(SOME):
                redis("SET", f"{name}:{number}", value)

    def check_fetched(self, cluster, replica):
        wait_until(lambda: re.search("the checkpoint at log index [0-9]+ has come", self.log(cluster, replica)), 60,
                   f"replica {replica} has fetched a checkpoint")
        self.await_back(cluster, replica)
        with RedisClient(cluster.address(replica)) as redis:
            self.assertEqual(redis("DBSIZE"), 2 * SOME)
        for row in cluster.status().values():
            self.assertEqual((row["fenced"], row["divergence"]["schedule_differences"]), ("", 0))
        cluster.assert_identical()

    def test_replica_that_lost_all_it_had_gets_a_checkpoint(self):
        """The log that it would have needed is cut."""
        with self.crane(SavingRedis) as cluster:
            self.fill(cluster, "before")
            self.take(cluster, 2)
            self.fill(cluster, "after")
            victim = next(n for n in (1, 2, 3) if n != cluster.primary())
            remove_tree(cluster.state / f"r{victim}")
            self.check_fetched(cluster, victim)
            self.assertTrue(self.checkpoints(cluster, victim))

    def test_replica_behind_the_cut_log_gets_a_checkpoint(self):
        with self.crane(SavingRedis) as cluster:
            victim = next(n for n in (1, 2, 3) if n != cluster.primary())
            others = [n for n in (1, 2, 3) if n != victim]
            craned = cluster.craned_pid(victim)
            os.kill(craned, signal.SIGSTOP)
            try:
                self.fill(cluster, "before", b"v" * 100_000)  # more than may wait for it on the way
                done = cluster.crane("restart")
                self.assertEqual(done.returncode, 0, done.stdout)
                wait_until(lambda: all(cluster.status()[n]["first_log_index"] > 1 for n in others), 60, "a cut log")
                self.fill(cluster, "after")
            finally:
                os.kill(craned, signal.SIGCONT)
            self.check_fetched(cluster, victim)

    def test_replica_whose_checkpoint_is_damaged_gets_another(self):
        with self.crane(SavingRedis) as cluster:
            self.fill(cluster, "before")
            self.take(cluster, 2)
            self.fill(cluster, "after")
            victim = next(n for n in (1, 2, 3) if n != cluster.primary())
            folder = cluster.state / f"r{victim}" / "checkpoints" / self.checkpoints(cluster, victim)[-1]
            archive = folder / "files.tar.zst"
            data = bytearray(archive.read_bytes())
            data[len(data) // 2] ^= 1
            archive.write_bytes(data)
            cluster.kill_craned(victim)
            wait_until(lambda: "is of no use" in self.log(cluster, victim), 30, "the damage is said")
            self.check_fetched(cluster, victim)
