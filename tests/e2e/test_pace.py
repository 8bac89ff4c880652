"""A primary under load gives way to backups whose servers are slower, and only as long as they are."""

import os
import signal
import threading
import time

from support.case import CraneTest
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis


# Some milliseconds: what the servers do is what takes the time, not the clients.
COMPUTES = "local s = 0 for i = 1, 500000 do s = s + i end redis.call('INCR', ARGV[1]) return s"


class Slowed:
    """The servers of replicas, stopped nine tenths of the time, until it is left."""

    RUNS_S, STANDS_S = 0.01, 0.09

    def __init__(self, pids):
        self.pids = pids
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def signal(self, number):
        for pid in self.pids:
            os.kill(pid, number)

    def run(self):
        while not self.stop.wait(self.RUNS_S):
            self.signal(signal.SIGSTOP)
            self.stop.wait(self.STANDS_S)
            self.signal(signal.SIGCONT)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(30)


class Clients:
    """Who asks again at once, until it is left."""

    def __init__(self, address, number):
        self.stop, self.errors = threading.Event(), []
        self.threads = [threading.Thread(target=self.run, args=(address, name)) for name in range(number)]

    def run(self, address, name):
        try:
            with RedisClient(address) as redis:
                while not self.stop.is_set():
                    redis("EVAL", COMPUTES, 0, name)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)


class Pace(CraneTest):
    timeout_s = 240

    def test_primary_gives_way_to_slower_backups_and_only_then(self):
        with self.crane(Redis) as cluster:
            primary = cluster.primary()
            backups = [replica for replica in (1, 2, 3) if replica != primary]

            def pace():
                return cluster.status()[primary]["pace"]

            with Clients(cluster.address(primary), 4) as clients:
                time.sleep(1)
                with Slowed([cluster.server_pid(replica) for replica in backups]):
                    wait_until(lambda: pace()["shut_percent"] > 0, 60, "the primary gives way")
                    found = pace()
                    self.assertIn(found["waits_for"], backups)
                    self.assertGreater(found["behind_ms"], 2000)
                wait_until(lambda: pace()["shut_percent"] == 0, 60, "it has all of its time again")
            self.assertEqual(clients.errors, [])
            cluster.assert_identical()
