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


class Idle(CraneTest):
    timeout_s = 120

    def check(self, server, touch, timers_per_s):
        self.needs_replicas()
        seconds = 10 if Settings.quick else 30
        with self.crane(server) as cluster:
            touch(cluster.address())
            time.sleep(2)  # what the last client left behind: lingering closes, keep-alive limits
            before = {n: cluster.cpu_seconds(n) for n in range(1, cluster.replicas + 1)}
            first, calls = self.decided(cluster), self.client_calls(cluster)
            time.sleep(seconds)
            used = {n: (cluster.cpu_seconds(n) - before[n]) / seconds for n in before}
            last = self.decided(cluster)
            rate = (last - first) / seconds
            self.note(f"over {seconds} s: {rate:.1f} log entries/s, CPU per replica "
                      + ", ".join(f"{share * 100:.2f} %" for share in used.values()))
            self.assertEqual(self.client_calls(cluster), calls, "client calls were decided, and there was no client")
            self.assertLess(rate, timers_per_s)
            self.assertLess(max(used.values()), CPU_LIMIT)
            cluster.assert_identical()

    def decided(self, cluster):
        return max(row["decided"] for row in cluster.status().values())

    def client_calls(self, cluster):
        """Client calls that any replica has ever proposed."""
        return sum(row["counters"]["calls"] for row in cluster.status().values())

    def test_apache(self):
        self.check(Apache, lambda address: get(address, "/10k.bin"), APACHE_TIMERS_PER_S)

    def test_redis(self):
        def touch(address):
            with RedisClient(address) as redis:
                redis("PING")

        self.check(Redis, touch, REDIS_TIMERS_PER_S)
