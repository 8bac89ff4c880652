"""A serial server that hands over a lot is kept on one core, as long as nobody else wants that one."""

import contextlib
import os
import resource
import subprocess
import time

from support.case import CraneTest, meanwhile
from support.procs import read, wait_until
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


class Others:
    """What the machine's other work takes of its processors, as long as the cluster has the same processes."""

    QUIET_SHARE = 0.3  # of one core

    def __init__(self, cluster):
        self.cluster, self.quiet_s = cluster, 0
        self.at = self.now()

    def now(self):
        """(seconds, seconds of processors that others have had)."""
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq, steal = map(int, read("/proc/stat").split()[1:9])
        own = [read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in self.cluster.replica_pids(1)]
        ours = sum(int(fields[11]) + int(fields[12]) for fields in own if fields) / tick
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = (user + nice + system + irq + softirq + steal) / tick
        return time.monotonic(), busy - ours - clients.ru_utime - clients.ru_stime

    def look(self):
        """Adds up how long they wanted next to nothing."""
        (before, had), (after, have) = self.at, self.now()
        if after - before < 5:
            return
        self.quiet_s += (after - before) * ((have - had) / (after - before) < self.QUIET_SHARE)
        self.at = after, have


class Placement(CraneTest):
    timeout_s = 240

    def server_cores(self, cluster):
        """The sets of cores that the server's threads may use; of processes that come and go meanwhile, too."""
        found = set()
        for pid in cluster.replica_pids(1):
            if pid == cluster.craned_pid(1) or "libcrane.so" not in read(f"/proc/{pid}/maps"):
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found |= {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir(f"/proc/{pid}/task")}
        return found

    def kept(self, cluster):
        """False: there was hardly a time when nobody else wanted the core."""
        others, until = Others(cluster), time.monotonic() + 150

        def is_kept():
            cores = self.server_cores(cluster)
            return cluster.status()[1]["core"] is not None and len(cores) == 1 and len(next(iter(cores))) == 1

        while not is_kept():
            others.look()
            self.assertLess(others.quiet_s, 60, "the server is not kept on one core")
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
        return True

    def test_server_under_load_is_kept_on_a_core(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one core only")
        with self.crane(Apache, replicas=1, options=("--mode", "dmt")) as cluster:
            everywhere = {frozenset(os.sched_getaffinity(cluster.craned_pid(1)))}
            self.assertEqual(self.server_cores(cluster), everywhere)
            with meanwhile(load(cluster.address())):
                if not self.kept(cluster):
                    self.skipTest("others want every core of this machine")
            self.assertEqual({frozenset(os.sched_getaffinity(cluster.craned_pid(1)))}, everywhere)

    def test_none_leaves_it_to_the_system(self):
        with self.crane(Apache, replicas=1, options=("--mode", "dmt", "--placement", "none")) as cluster:
            before = self.server_cores(cluster)
            with meanwhile(load(cluster.address())):
                begun = cluster.status()[1]["counters"]["calls"]
                wait_until(lambda: cluster.status()[1]["counters"]["calls"] > begun + 5000, 60, "there is load")
            self.assertIsNone(cluster.status()[1]["core"])
            self.assertEqual(self.server_cores(cluster), before)
