"""Servers that were decided on and cannot be started: nobody's, or only one replica's; and what a replay makes of them."""

import contextlib
import pathlib
import shutil
import signal
import time

from support.case import CraneTest
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Program, Redis

TRIED_AGAIN = "it is in use: it is tried once more"
ASKED_FOR_S = 20


class OwnRedis(Redis):
    """Of a program that can be put away."""

    def prepare(self):
        shutil.copy("/usr/bin/redis-server", self.site / "redis-server")

    def command(self):
        return [self.site / "redis-server", *super().command()[1:]]


@contextlib.contextmanager
def away(cluster):
    """As while a package is upgraded."""
    program = pathlib.Path(cluster.command[0])
    program.rename(program.with_suffix(".away"))
    try:
        yield
    finally:
        program.with_suffix(".away").rename(program)


class Unstarted(CraneTest):
    lane = 2

    def wait_unstarted(self, cluster, replicas):
        wait_until(lambda: all("could not be started" in cluster.status()[n].get("last_end", "") for n in replicas), 60,
                   "they cannot start it")

    def wait_serving(self, cluster):
        wait_until(lambda: all(row["server"] == "listening" for row in cluster.status().values()), 90,
                   "it is back by itself")
        cluster.assert_identical()

    def log(self, cluster, replica):
        return (cluster.state / f"r{replica}" / "craned.log").read_text()

    def start_again(self, cluster):
        """At the replay every program is there: what could not be started then must not run now."""
        cluster.stop()
        cluster.start_again()
        self.wait_serving(cluster)

    def test_program_that_is_away_for_a_while(self):
        """A server that ends then comes back when its program is there again, however the replicas come upon it."""
        self.built_program("struck")
        with self.crane(Program, "struck") as cluster:
            self.wait_serving(cluster)
            with away(cluster):
                cluster.crane("signal", str(int(signal.SIGTERM)))
                self.wait_unstarted(cluster, (1, 2, 3))
            self.wait_serving(cluster)
            self.start_again(cluster)

    def test_nothing_is_given_up_beside_an_older_crane(self):
        """It would run the server that the others say has run nowhere."""
        self.built_program("struck")
        cluster = self.crane(Program, "struck")
        cluster.environment["CRANE_TEST_PROTOCOL"] = "6-6"
        with cluster:
            self.wait_serving(cluster)
            with away(cluster):
                cluster.crane("signal", str(int(signal.SIGTERM)))
                wait_until(lambda: all("runs an older Crane: it is tried once more" in self.log(cluster, n) for n in (1, 2, 3)), 90,
                           "all try again")
            self.wait_serving(cluster)
            self.assertEqual({row["generation"] for row in cluster.status().values()}, {2})

    def test_replica_that_comes_late_does_not_run_what_the_others_could_not(self):
        self.built_program("struck")
        with self.crane(Program, "struck") as cluster:
            self.wait_serving(cluster)
            late = next(n for n in (1, 2, 3) if n != cluster.primary())
            others = [n for n in (1, 2, 3) if n != late]
            go_on = self.stopped(cluster, late)
            with away(cluster):
                cluster.crane("signal", str(int(signal.SIGTERM)))
                self.wait_unstarted(cluster, others)
                wait_until(lambda: cluster.status()[others[0]]["generation"] >= 3, 60, "one was given up")
            go_on()
            self.wait_serving(cluster)
            self.start_again(cluster)

    def test_replica_that_cannot_start_what_the_others_run(self):
        with self.crane(OwnRedis, options=("--checkpoint-log-mib", "0")) as cluster:
            self.wait_serving(cluster)
            late = next(n for n in (1, 2, 3) if n != cluster.primary())
            other = next(n for n in (1, 2, 3) if n != late)
            go_on = self.stopped(cluster, late)
            cluster.crane("restart")
            with RedisClient(cluster.address(other)) as redis:
                redis("SET", "key", "kept")
            with away(cluster):
                go_on()
                wait_until(lambda: TRIED_AGAIN in self.log(cluster, late), 60, "it tries again")
                self.assertEqual(cluster.status()[other]["generation"], 2)
            self.wait_serving(cluster)
            with RedisClient(cluster.address(late)) as redis:
                self.assertEqual(redis("GET", "key"), b"kept")
            self.start_again(cluster)

    def test_server_that_was_used_is_not_given_up(self):
        """The next one would begin without what this one's clients were told."""
        with self.crane(OwnRedis, options=("--checkpoint-log-mib", "0")) as cluster:
            self.wait_serving(cluster)
            cluster.crane("restart")
            with RedisClient(cluster.address(1)) as redis:
                redis("SET", "key", "kept")
            with away(cluster):
                for replica in (1, 2, 3):
                    cluster.kill_craned(replica)
                wait_until(lambda: all(TRIED_AGAIN in self.log(cluster, n) for n in (1, 2, 3)), 90, "all try again")
                # Also while a replica begins its server anew, again and again.
                until = time.monotonic() + ASKED_FOR_S
                while time.monotonic() < until:
                    refused = cluster.crane("restart")
                    self.assertNotEqual(refused.returncode, 0, refused.stdout)
                    self.assertNotIn("no other server serves yet", refused.stdout)
            self.wait_serving(cluster)
            self.assertEqual({row["generation"] for row in cluster.status().values()}, {2})
            with RedisClient(cluster.address(2)) as redis:
                self.assertEqual(redis("GET", "key"), b"kept")
