"""Faults, one after another: each is over, and all replicas are back, before the next one."""

import os
import random
import signal
import time

from support.procs import wait_until

HOUR_MS = 3_600_000
BACK_S = 900  # a killed replica is started again, and its server has replayed all there is, by then
NEAR = 500  # entries by which a replica may lag while there is load


class Faults:
    def __init__(self, cluster, seed, say):
        self.cluster, self.say = cluster, say
        self.random = random.Random(f"faults {seed}")
        self.counts = {fault.__name__: 0 for fault in self.kinds()}
        self.waiting = []
        self.ends_asked = 0

    def kinds(self):
        return [self.kill_craned, self.stop_craned, self.kill_server, self.step_clock, self.restart_server]

    def one(self):
        if not self.waiting:  # every kind is met as often as any other
            self.waiting = self.kinds()
            self.random.shuffle(self.waiting)
        fault, replica = self.waiting.pop(), self.random.choice([1, 2, 3])
        begin = time.monotonic()
        fault(replica)
        self.counts[fault.__name__] += 1
        self.await_all()
        self.say(f"{fault.__name__} of replica {replica}; all back after {time.monotonic() - begin:.1f} s")

    def await_all(self):
        def back():
            rows = self.cluster.status()
            if len(rows) < 3 or any(row["server"] != "listening" for row in rows.values()):
                return False
            most = max(row["decided"] for row in rows.values())
            return all(row["admitted"] > most - NEAR for row in rows.values())  # and its server has replayed

        wait_until(back, BACK_S, "every replica is back", poll_s=0.2)

    def kill_craned(self, replica):
        self.cluster.kill_craned(replica)
        wait_until(lambda: self.cluster.craned_pid(replica), BACK_S, "a new craned")

    def stop_craned(self, replica):
        pid = self.cluster.craned_pid(replica)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(0.5, 3))  # the fault itself
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill_server(self, replica):
        self.cluster.kill_server(replica)

    def restart_server(self, _):
        """On all replicas, on the files that it leaves: those are kept, and the log is cut behind them."""
        done = self.cluster.crane("restart", timeout_s=BACK_S)
        assert done.returncode == 0, done.stdout
        self.ends_asked += 1

    def step_clock(self, replica):
        offset_ms = self.random.choice([0, 0, 30_000, -30_000, 3 * HOUR_MS, -3 * HOUR_MS])
        folder = self.cluster.state / f"r{replica}"
        # At most one clock is wrong at a time: what two wrong ones of three agree on is the time.
        for other in (1, 2, 3):
            if other != replica:
                (self.cluster.state / f"r{other}" / "clock-offset-ms").unlink(missing_ok=True)
        (folder / "clock-offset-ms.new").write_text(str(offset_ms))
        (folder / "clock-offset-ms.new").rename(folder / "clock-offset-ms")
