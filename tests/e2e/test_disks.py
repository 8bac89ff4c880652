"""A server's disk that stands still, while the log's is well."""

import ctypes
import os
import pathlib
import subprocess
import time

import test_checkpoint  # the module: a class by name would be run here again
from support.case import CraneTest
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis as RedisServer
from test_restart import SavingRedis

STALL_S = 30 if "CRANE_SOAK" in os.environ else 10
QUOTA = ("--disk-quota-bytes=134217728",)  # so that the server's files have a file system of their own


class StoppedThread:
    """One thread of a process stands still, as if its disk did; its other threads run. Used in one thread."""

    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, pid, name):
        tasks = [task for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name]
        self.tid, = (int(task.name) for task in tasks)

    def _ptrace(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.tid), None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self._ptrace(self.SEIZE)
        self._ptrace(self.INTERRUPT)
        os.waitpid(self.tid, self.WALL)
        return self

    def __exit__(self, *_):
        self._ptrace(self.DETACH)


class Disks(CraneTest):
    timeout_s = 180
    await_back = test_checkpoint.Checkpoint.await_back

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def stall(self, cluster, replica):
        """Returns what ends it."""
        below = str(cluster.state / f"r{replica}") + "/"
        points = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
                  if line.split()[4].startswith(below) and " ext4 /dev/loop" in line]
        self.assertEqual(len(points), 1, points)
        subprocess.run(["fsfreeze", "--freeze", points[0]], check=True, timeout=30)
        frozen = [True]

        def thaw():
            if frozen:
                frozen.clear()
                subprocess.run(["fsfreeze", "--unfreeze", points[0]], check=True, timeout=30)

        self.addCleanup(thaw)
        return thaw

    def count(self, cluster, replicas, until):
        """Upwards, by one client that goes to the next of `replicas` when it is cut off; what was acknowledged."""
        known = turn = 0
        while time.monotonic() < until:
            try:
                with RedisClient(cluster.address(replicas[turn % len(replicas)]), timeout_s=5) as redis:
                    while time.monotonic() < until:
                        known = redis("INCR", "counter")
            except OSError:
                turn += 1
        return known

    def test_of_a_backup_costs_no_view_change(self):
        with self.crane(SavingRedis, options=QUOTA) as cluster:
            primary = cluster.primary()
            backup, other = (n for n in (1, 2, 3) if n != primary)
            view = cluster.status()[primary]["view"]
            self.assertGreater(self.count(cluster, [primary], time.monotonic() + 1), 0)
            thaw = self.stall(cluster, backup)
            with RedisClient(cluster.address(other)) as redis:  # one connection, never cut
                until = time.monotonic() + STALL_S
                known = 0
                while time.monotonic() < until:
                    known = redis("INCR", "other")
                rows = cluster.status()
                self.assertGreater(rows[backup]["lag"], 0, "its server stands still")
                thaw()
                self.await_back(cluster, backup)
                self.assertEqual(redis("INCR", "other"), known + 1)
            for row in cluster.status().values():
                self.assertEqual((row["view"], row["fenced"], row["counters"]["domain_restarts"]), (view, "", 0))
            cluster.assert_identical()

    def test_of_the_primary_costs_a_hand_over_and_no_service(self):
        with self.crane(SavingRedis, options=QUOTA) as cluster:
            old = cluster.primary()
            others = [n for n in (1, 2, 3) if n != old]
            before = self.count(cluster, others, time.monotonic() + 1)
            thaw = self.stall(cluster, old)

            def led_by_another():
                self.count(cluster, others, time.monotonic() + 0.2)
                return cluster.primary() != old

            wait_until(led_by_another, 20, "another replica leads")
            view = cluster.status()[others[0]]["view"]
            known = self.count(cluster, others, time.monotonic() + STALL_S / 2)
            self.assertGreater(known, before)
            thaw()
            self.await_back(cluster, old)
            with RedisClient(cluster.address(old)) as redis:
                self.assertGreaterEqual(redis("INCR", "counter"), known + 1)
            for row in cluster.status().values():
                self.assertEqual((row["view"], row["fenced"], row["counters"]["domain_restarts"]), (view, "", 0))
            cluster.assert_identical()

    def test_of_the_output_log_alone_costs_nobody_a_connection(self):
        with self.crane(RedisServer) as cluster:
            leader, view = cluster.primary(), cluster.status()[cluster.primary()]["view"]
            others = [n for n in (1, 2, 3) if n != leader]
            with RedisClient(cluster.address(leader)) as redis, RedisClient(cluster.address(others[0])) as other:
                redis("SET", "large", "x" * 100_000)
                with StoppedThread(cluster.craned_pid(leader), "crane-outlog"):
                    for _ in range(120):  # more than is waited for, and less than is lost
                        self.assertEqual(len(redis("GET", "large")), 100_000)
                    until = time.monotonic() + 3
                    while time.monotonic() < until:
                        redis("INCR", "counter")
                        other("INCR", "counter")
                self.assertGreater(redis("INCR", "counter"), 2)
                self.assertGreater(other("INCR", "counter"), 2)
            for row in cluster.status().values():
                self.assertEqual((row["leader"], row["view"], row["counters"]["domain_restarts"]), (leader, view, 0))
            cluster.assert_identical()
