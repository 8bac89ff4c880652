"""Disturbs a running cluster in ways that no replica may show: CPU noise, pauses, moves between cores, from a seed."""

import os
import random
import signal
import subprocess
import threading

from .paths import PYTHON


class Disturber:
    """Context manager. Pauses are shorter than the election timeout unless told otherwise."""

    def __init__(self, cluster, seed, *, replicas=None, max_pause_s=0.25, max_noise=2):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.replicas = replicas or list(range(1, cluster.replicas + 1))
        self.max_pause_s = max_pause_s
        self.max_noise = max_noise
        self.pauses = self.moves = 0
        self.cores = os.sched_getaffinity(0)
        self.failure = None
        self._noise = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disturber", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self._stop.set()
        self._thread.join(30)
        for child in self._noise:
            child.kill()
            child.wait()
        if self.failure and error is None:
            raise self.failure

    def _run(self):
        try:
            while not self._stop.wait(self.random.uniform(0.01, 0.15)):
                self.random.choice((self._pause_one, self._pause_one, self._pause_replica, self._make_noise, self._move_replica))()
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure  # raised again in __exit__, in the test's own thread

    def _pids(self):
        if not hasattr(self.cluster, "replica_pids"):
            return self.cluster.pids()
        return self.cluster.replica_pids(self.random.choice(self.replicas))

    def _pause(self, pids):
        stopped = [pid for pid in pids if _signal(pid, signal.SIGSTOP)]
        try:
            self._stop.wait(self.random.uniform(0.005, self.max_pause_s))
        finally:
            for pid in stopped:
                _signal(pid, signal.SIGCONT)
        self.pauses += bool(stopped)

    def _pause_one(self):
        if pids := self._pids():
            self._pause([self.random.choice(pids)])

    def _pause_replica(self):
        self._pause(self._pids())

    def _move_replica(self):
        cores = self.random.choice([{core} for core in self.cores] + [self.cores])
        for pid in self._pids():
            for thread in _threads(pid):
                _move(thread, cores)
        self.moves += 1

    def _make_noise(self):
        self._noise = [child for child in self._noise if child.poll() is None]
        if len(self._noise) < self.max_noise:
            length_s = self.random.uniform(0.05, 0.5)
            # It ends by itself, whatever becomes of this process: an orphan must not burn CPU for ever.
            burn = f"import time; end = time.monotonic() + {length_s:.2f}\nwhile time.monotonic() < end: pass"
            self._noise.append(subprocess.Popen([PYTHON, "-S", "-c", burn], stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def _signal(pid, number):
    try:
        os.kill(pid, number)
        return True
    except OSError:
        return False


def _threads(pid):
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _move(thread, cores):
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:
        pass  # it has ended
