"""A primary under load gives way to backups whose servers are slower, and only as long as they are."""

import os
import signal

from support.case import CraneTest, meanwhile
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis

# Some milliseconds: what the servers do is what takes the time, not the clients.
COMPUTES = "local s = 0 for i = 1, 500000 do s = s + i end redis.call('INCR', ARGV[1]) return s"
RUNS_S, STANDS_S = 0.01, 0.09


def slowing(pids):
    """They stand still nine tenths of the time."""
    def run(stop):
        while not stop.wait(RUNS_S):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            stop.wait(STANDS_S)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    return run


def asking(address, name):
    """A client that asks again at once."""
    def run(stop):
        with RedisClient(address) as redis:
            while not stop.is_set():
                redis("EVAL", COMPUTES, 0, name)

    return run


class Pace(CraneTest):
    timeout_s = 240

    def test_primary_gives_way_to_slower_backups_and_only_then(self):
        with self.crane(Redis) as cluster:
            primary = cluster.primary()
            backups = [replica for replica in (1, 2, 3) if replica != primary]

            def pace():
                return cluster.status()[primary]["pace"]

            with meanwhile(*[asking(cluster.address(primary), name) for name in range(4)]):
                with meanwhile(slowing([cluster.server_pid(replica) for replica in backups])):
                    wait_until(lambda: pace()["shut_percent"] > 0, 60, "the primary gives way")
                    found = pace()
                    self.assertIn(found["waits_for"], backups)
                    self.assertGreaterEqual(found["behind_ms"], 2000)
                wait_until(lambda: pace()["shut_percent"] == 0, 60, "it has all of its time again")
            cluster.assert_identical()
