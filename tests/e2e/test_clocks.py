"""Hosts' clocks that are wrong, step and are corrected: the server's time goes on, and keys live as long as they should."""

import time

from support.case import CraneTest
from support.paths import HOST_CLOCK
from support.procs import wait_until
from support.redisclient import Redis
from support.servers import Redis as RedisServer

HOUR_MS = 3_600_000


class RedisWithClocks(RedisServer):
    """The craneds of this server have clocks that can be set."""

    def prepare(self):
        super().prepare()
        self.environment["LD_PRELOAD"] = str(HOST_CLOCK)


def set_clock(cluster, replica, offset_ms):
    folder = cluster.state / f"r{replica}"
    (folder / "clock-offset-ms.new").write_text(str(offset_ms))
    (folder / "clock-offset-ms.new").rename(folder / "clock-offset-ms")


def server_time(redis):
    seconds, micros = redis("TIME")
    return int(seconds) + int(micros) / 1e6


class ClockTest(CraneTest):
    timeout_s = 240

    def clock_skew(self, cluster, replica):
        return cluster.status()[replica]["clock_skew"]

    def assert_time_goes_on(self, cluster, replica):
        """Timers end, no sooner than they should; keys expire, and only when they should."""
        for last_try in (False, False, True):
            try:
                return self.look_at_time(cluster, replica)
            except OSError:  # a hand-over resets clients
                if last_try:
                    raise

    def look_at_time(self, cluster, replica):
        with Redis(cluster.address(replica), timeout_s=60) as redis:
            redis("SET", "long", "x", "PX", 1_800_000)
            redis("SET", "short", "x", "PX", 600)
            begin, server_begin = time.monotonic(), server_time(redis)
            self.assertIsNone(redis("BLPOP", "nothing", 1))
            passed, server_passed = time.monotonic() - begin, server_time(redis) - server_begin
            self.assertEqual((redis("GET", "long"), redis("GET", "short")), (b"x", None))
            self.assertGreater(passed, 0.9, "a timer of a second ended too soon")
            self.assertLess(server_passed, passed + 1, "the server's clock jumped")
            self.assertLess(abs(server_time(redis) - time.time()), 2, "the server's clock is not real time")

    def test_clocks_off_by_hours_neither_stop_timers_nor_expire_keys(self):
        self.needs_replicas()
        with self.crane(RedisWithClocks, options=["--no-restart"]) as cluster:
            old = cluster.primary()
            with Redis(cluster.address(old)) as redis:
                redis("SET", "kept", "x", "PX", 1_800_000)
            # The primary's clock is set while it leads. It goes on serving, says so, and hands over.
            set_clock(cluster, old, 3 * HOUR_MS)
            self.assert_time_goes_on(cluster, old)
            new = wait_until(lambda: (now := cluster.primary()) != old and now, 60, "one with a right clock leads")
            wait_until(lambda: f"replica {old}'s clock is 10" in self.clock_skew(cluster, new)["alarm"], 60,
                       "the new primary has heard of it")
            wait_until(lambda: self.clock_skew(cluster, old)["host_s"], 60, "and has told what time it is")
            self.assertAlmostEqual(self.clock_skew(cluster, old)["host_s"], 10800, delta=5)
            self.assert_time_goes_on(cluster, new)
            # Its clock is right again, and the new primary's is behind when it is killed.
            set_clock(cluster, old, 0)
            wait_until(lambda: not self.clock_skew(cluster, new)["alarm"], 60, "nothing is said of clocks any more")
            set_clock(cluster, new, -3 * HOUR_MS)
            self.assert_time_goes_on(cluster, cluster.primary())
            leads = cluster.primary()
            cluster.kill_craned(leads)
            last = wait_until(lambda: (now := cluster.primary()) not in (leads, None) and now, 30, "another one leads")
            self.assert_time_goes_on(cluster, last)
            with Redis(cluster.address(last)) as redis:
                self.assertEqual(redis("GET", "kept"), b"x")
            cluster.assert_identical()

    def test_one_with_a_wrong_clock_does_not_lead_while_another_can(self):
        self.needs_replicas()
        with self.crane(RedisWithClocks, options=["--no-restart"]) as cluster:
            leads = cluster.primary()
            odd, good = sorted({1, 2, 3} - {leads})  # the lower number would ask for votes first
            set_clock(cluster, odd, 3 * HOUR_MS)
            wait_until(lambda: not cluster.status()[odd]["fit_to_lead"], 60, "it knows that its clock is wrong")
            cluster.kill_craned(leads)
            now = wait_until(lambda: (now := cluster.primary()) not in (leads, None) and now, 30, "another one leads")
            self.assertEqual(now, good)
            self.assert_time_goes_on(cluster, odd)

    def test_a_clock_that_all_share_is_stepped_and_corrected(self):
        self.needs_replicas()
        with self.crane(RedisWithClocks) as cluster:
            leads = cluster.primary()
            for offset_ms in (3 * HOUR_MS, 0, -3 * HOUR_MS):
                for replica in (1, 2, 3):
                    set_clock(cluster, replica, offset_ms)
                if offset_ms:
                    wait_until(lambda: "the cluster's clock is" in self.clock_skew(cluster, leads)["alarm"], 60,
                               "the step is told")
                self.assert_time_goes_on(cluster, leads)
            self.assertEqual(cluster.primary(), leads)
            cluster.assert_identical()


class StoodStillTest(CraneTest):
    timeout_s = 120

    def test_what_clients_said_while_all_stood_still_comes_before_the_time_that_passed(self):
        """As after a suspension of the machine: the server would close connections as idle on which it is being asked."""
        self.needs_replicas()
        with self.crane(RedisServer) as cluster:
            leads = cluster.primary()
            clients = [self.enterContext(Redis(cluster.address(leads), timeout_s=30)) for _ in range(100)]
            clients[0]("CONFIG", "SET", "timeout", 3)
            self.assertEqual({client("PING") for client in clients}, {"PONG"})
            go_on = [self.stopped(cluster, replica) for replica in (leads, *({1, 2, 3} - {leads}))]
            for client in clients:
                client.send("PING")
            time.sleep(5)  # more than the server lets anybody be idle
            for one in go_on:
                one()
            self.assertEqual([client.reply() for client in clients], ["PONG"] * len(clients))
            self.assertEqual(cluster.primary(), leads)
            cluster.assert_identical()
