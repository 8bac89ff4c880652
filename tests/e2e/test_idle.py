"""An idle server costs no consensus but for timers that are due, and next to no CPU."""

import time

from support.case import CraneTest
from support.paths import Settings
from support.redisclient import Redis as RedisClient
from support.servers import Apache, Redis
from support.webclient import get

CPU_LIMIT = 0.02
# Timers of the server itself: Redis runs its cron ten times a second; Apache's parent and listeners look around
# about once a second each. Anything much above is consensus for nothing.
REDIS_TIMERS_PER_S = 11
APACHE_TIMERS_PER_S = 6


class Watched:
    """A cluster that nobody asks anything, from here to the end of a time."""

    def __init__(self, cluster):
        self.cluster, self.began = cluster, time.monotonic()
        self.cpu_s = self.cpu_seconds()
        self.first, self.calls = self.decided(), self.client_calls()

    def cpu_seconds(self):
        return {n: self.cluster.cpu_seconds(n) for n in range(1, self.cluster.replicas + 1)}

    def decided(self):
        return max(row["decided"] for row in self.cluster.status().values())

    def client_calls(self):
        """Client calls that any replica has ever proposed."""
        return sum(row["counters"]["calls"] for row in self.cluster.status().values())

    def end(self, test, name, timers_per_s):
        seconds = time.monotonic() - self.began
        used = {n: (now - self.cpu_s[n]) / seconds for n, now in self.cpu_seconds().items()}
        rate = (self.decided() - self.first) / seconds
        test.note(f"{name}, over {seconds:.0f} s: {rate:.1f} log entries/s, CPU per replica "
                  + ", ".join(f"{share * 100:.2f} %" for share in used.values()))
        test.assertEqual(self.client_calls(), self.calls, "client calls were decided, and there was no client")
        test.assertLess(rate, timers_per_s)
        test.assertLess(max(used.values()), CPU_LIMIT)
        self.cluster.assert_identical()


class Idle(CraneTest):
    timeout_s = 120

    def test_servers_that_nobody_asks(self):
        self.needs_replicas()
        with self.crane(Apache) as apache, self.crane(Redis) as redis:
            get(apache.address(), "/10k.bin")
            with RedisClient(redis.address()) as client:
                client("PING")
            time.sleep(2)  # what the last client left behind: lingering closes, keep-alive limits
            watched = Watched(apache), Watched(redis)
            time.sleep(10 if Settings.quick else 30)
            watched[0].end(self, "Apache", APACHE_TIMERS_PER_S)
            watched[1].end(self, "Redis", REDIS_TIMERS_PER_S)
