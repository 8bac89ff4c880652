"""durability = "memory": no process that ends loses what was acknowledged; a host that stops loses its log, and says so."""

import os
import signal

from support.case import CraneTest
from support.cluster import ClusterError
from support.procs import read, wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis

MEMORY = ("--durability=memory",)
ANOTHER_BOOT = "00000000-0000-0000-0000-000000000000\n"


class DurabilityTest(CraneTest):
    lane = 3
    timeout_s = 180

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def mark(self, cluster, replica):
        return cluster.state / f"r{replica}" / "log-in-memory"

    def write(self, cluster, replica, first, last):
        with RedisClient(cluster.address(replica)) as client:
            for number in range(first, last):
                self.assertEqual(client("SET", f"k{number}", number), "OK")

    def wait_level(self, cluster):
        def level():
            rows = cluster.status()
            return len(rows) == 3 and all(row["server"] == "listening" and row["lag"] == 0 for row in rows.values())
        wait_until(level, 60, f"all are level\n{cluster.report()}")

    def test_killed_processes_lose_nothing_that_was_acknowledged(self):
        with self.crane(Redis, options=MEMORY) as cluster:
            self.write(cluster, 1, 0, 50)
            before = {n: row["counters"]["syncs"] for n, row in cluster.status().items()}
            self.write(cluster, 1, 50, 200)
            after = {n: row["counters"]["syncs"] for n, row in cluster.status().items()}
            self.assertEqual(after, before, "nothing waits for the disk")
            self.assertEqual({row["durability"] for row in cluster.status().values()}, {"memory"})
            self.assertIn("durability: memory", cluster.crane("status").stdout)
            for replica in (1, 2, 3):
                os.kill(cluster.craned_pid(replica), signal.SIGKILL)
            self.wait_level(cluster)
            with RedisClient(cluster.address(2)) as client:
                self.assertEqual(int(client("DBSIZE")), 200)
            cluster.assert_identical()

    def test_a_host_that_lost_its_memory_rejoins_and_votes_for_nothing_before(self):
        with self.crane(Redis, options=MEMORY) as cluster:
            self.write(cluster, 1, 0, 50)
            lost = next(n for n in (1, 2, 3) if n != cluster.primary())
            boot = read(self.mark(cluster, lost))
            self.mark(cluster, lost).write_text(ANOTHER_BOOT)
            cluster.kill_craned(lost)
            wait_until(lambda: read(self.mark(cluster, lost)) == boot, 60, f"it has begun anew\n{cluster.report()}")
            self.assertTrue((cluster.state / f"r{lost}" / "db.lost").is_dir())
            self.assertIn("This replica rejoins", read(cluster.state / f"r{lost}" / "craned.log"))
            self.wait_level(cluster)
            self.write(cluster, lost, 50, 100)
            wait_until(lambda: "rejoined:" in read(cluster.state / f"r{lost}" / "craned.log"), 30, "it votes again")
            cluster.assert_identical()

    def test_a_clean_end_is_on_disk_and_a_host_that_lost_all_is_refused_until_the_operator_decides(self):
        with self.crane(Redis, options=MEMORY) as cluster:
            self.write(cluster, 1, 0, 50)
            cluster.stop()
            self.assertEqual([self.mark(cluster, n).exists() for n in (1, 2, 3)], [False] * 3)
            cluster.start_again()
            with RedisClient(cluster.address(1)) as client:
                self.assertEqual(int(client("DBSIZE")), 50)
            cluster.stop()
            for replica in (1, 2, 3):
                self.mark(cluster, replica).write_text(ANOTHER_BOOT)
            with self.assertRaisesRegex(ClusterError, "what they acknowledged last may be missing"):
                cluster.start_again()
            verified = cluster.crane("log", "verify")
            self.assertIn("it was in memory when its host last stopped", verified.stdout)
            recovered = cluster.crane("recover", "--force-new-cluster")
            self.assertEqual(recovered.returncode, 0, recovered.stdout)
            self.assertEqual([self.mark(cluster, n).exists() for n in (1, 2, 3)].count(False), 1)

    def test_alone_it_is_refused(self):
        with self.assertRaisesRegex(ClusterError, "memory needs other replicas"):
            with self.crane(Redis, options=MEMORY, replicas=1):
                pass
