"""A serial server that hands over a lot is kept on one core, as long as nobody else wants that one."""

import os
import subprocess

from support.case import CraneTest, meanwhile
from support.procs import wait_until
from support.servers import Apache


def load(address):
    """Clients without an end."""
    command = ["wrk", "-t1", "-c8", "-d1", f"http://{address[0]}:{address[1]}/compute.lua?1"]

    def run(stop):
        while not stop.is_set():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode != 0 or "Non-2xx" in done.stdout:
                raise OSError(done.stdout + done.stderr)

    return run


class Placement(CraneTest):
    timeout_s = 240

    def server_cores(self, cluster):
        """The sets of cores that the server's threads may use."""
        return {frozenset(os.sched_getaffinity(int(thread))) for pid in cluster.replica_pids(1) if pid != cluster.craned_pid(1)
                for thread in os.listdir(f"/proc/{pid}/task") if "libcrane.so" in open(f"/proc/{pid}/maps", encoding="utf-8").read()}

    def test_server_under_load_is_kept_on_a_core(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one core only")
        with self.crane(Apache, replicas=1, options=("--mode", "dmt")) as cluster:
            everywhere = {frozenset(os.sched_getaffinity(cluster.craned_pid(1)))}
            self.assertEqual(self.server_cores(cluster), everywhere)
            with meanwhile(load(cluster.address())):
                wait_until(lambda: cluster.status()[1]["core"] is not None and len(self.server_cores(cluster)) == 1 and
                           len(next(iter(self.server_cores(cluster)))) == 1, 150, "the server is kept on one core")
            self.assertEqual({frozenset(os.sched_getaffinity(cluster.craned_pid(1)))}, everywhere)

    def test_none_leaves_it_to_the_system(self):
        with self.crane(Apache, replicas=1, options=("--mode", "dmt", "--placement", "none")) as cluster:
            before = self.server_cores(cluster)
            with meanwhile(load(cluster.address())):
                begun = cluster.status()[1]["counters"]["calls"]
                wait_until(lambda: cluster.status()[1]["counters"]["calls"] > begun + 5000, 60, "there is load")
            self.assertIsNone(cluster.status()[1]["core"])
            self.assertEqual(self.server_cores(cluster), before)
