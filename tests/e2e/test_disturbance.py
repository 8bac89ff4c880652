"""Random CPU noise, pauses and moves between cores of any process of any replica: schedules and outputs stay equal."""

import collections
import os
import time

from support.case import CraneTest, together
from support.disturb import Disturber
from support.paths import Settings
from support.redisclient import Redis as RedisClient
from support.servers import Apache, Memcached, PythonCounter, Redis
from support.webclient import Connection, get
from test_apache import BODY
from test_memcached import counting


def until(deadline, job):
    """Repeats a client's job until the deadline; a connection that a view change ended counts as one interruption."""
    done = interrupted = 0
    while time.monotonic() < deadline:
        try:
            job(done)
            done += 1
        except OSError:
            interrupted += 1
            time.sleep(0.05)
    return done, interrupted


def apache_job(address):
    def job(number):
        with Connection(address) as connection:
            connection.request("PUT", f"/dav/p{number % 3}", BODY[: 100 + number % 5000])
            connection.request("GET", f"/dav/p{(number + 1) % 3}")
            connection.request("GET", "/compute.lua?1")

    return job


def redis_job(address):
    def job(number):
        with RedisClient(address) as redis:
            for turn in range(20):
                redis("INCR", "shared")
                redis("LPUSH", f"l{turn % 3}", number)
                redis("SRANDMEMBER", "set")
                redis("SADD", "set", turn)

    return job


class Disturbance(CraneTest):
    timeout_s = 600

    def schedule_hashes(self, cluster):
        """Of replicas that stand at the same logical clock. A timer may move one on between two looks: look again,
        but a difference at equal clocks that is still there at the next look is one."""
        seen = 0
        for _ in range(100):
            rows = list(cluster.status().values())
            hashes = {row.get("schedule_hash") for row in rows}
            same_place = len({(row.get("admitted"), row.get("clock")) for row in rows}) == 1
            seen = seen + 1 if same_place and len(hashes) > 1 else 0
            if len(hashes) == 1 or seen == 2:
                return hashes
            time.sleep(0.05)
        self.fail("the replicas never stood at the same logical clock")

    def seeds(self):
        count = 3 if Settings.quick else 20 if "CRANE_SOAK" in os.environ else 7
        return range(Settings.seed, Settings.seed + count)

    def check(self, server, make_job, clients=6, seconds=3.0, options=()):
        """One cluster, many seeds: what an earlier seed broke, every later diff shows too."""
        total = collections.Counter()
        with self.crane(server, options=options) as cluster:
            for seed in self.seeds():
                with self.subTest(seed=seed), Disturber(cluster, seed) as disturber:
                    deadline = time.monotonic() + seconds
                    jobs = [lambda: until(deadline, make_job(cluster.address())) for _ in range(clients)]
                    for done, interrupted in together(*jobs, timeout_s=60):
                        total["done"] += done
                        total["interrupted"] += interrupted
                    total["pauses"] += disturber.pauses
                    total["moves"] += disturber.moves
                cluster.assert_identical()
                self.assertLessEqual(len(self.schedule_hashes(cluster)), 1, f"schedule hashes differ, seed {seed}")
            self.note(f"{len(self.seeds())} seeds: {dict(total)}")
            self.assertGreater(total["done"], 0)

    def test_apache(self):
        self.check(Apache, apache_job)

    def test_redis(self):
        self.check(Redis, redis_job)

    def test_python(self):
        self.check(PythonCounter, lambda address: lambda number: get(address, "/entropy" if number % 5 == 0 else "/add"))

    def test_memcached(self):
        def make_job(address):
            return lambda number: counting(address, number, 10)

        self.check(Memcached, make_job)
