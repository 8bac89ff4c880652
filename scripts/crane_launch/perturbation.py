"""What no replica may show: CPU noise, short stops, moves between cores, from a seed."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

BURN = "import sys, time; end = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
LONGEST_STOP_S = 0.15  # below an election timeout


def descendants(pid):
    """The processes below a process, nearest first."""
    found = []
    for task in _listed(f"/proc/{pid}/task"):
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in map(int, children):
            found += [child, *descendants(child)]
    return found


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


class Perturbation:
    """Context manager. `replicas()` gives the pids of the craneds that run now."""

    def __init__(self, replicas, seed):
        self.replicas = replicas
        self.random = random.Random(seed)
        self.cores = sorted(os.sched_getaffinity(0))
        self.noise = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._make_noise()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for process in self.noise:
            process.kill()
            process.wait()

    def _run(self):
        while not self.over.wait(self.random.uniform(0.005, 0.1)):
            self.random.choice((self._stop_one, self._move_one, self._make_noise))()

    def _one(self):
        pids = self.replicas()
        return descendants(self.random.choice(pids)) if pids else []

    def _stop_one(self):
        """All of a replica's server, or one process of it."""
        pids = self._one()
        if pids and self.random.random() < 0.5:
            pids = [self.random.choice(pids)]
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        self.over.wait(self.random.uniform(0.005, LONGEST_STOP_S))
        for pid in pids:
            _signal(pid, signal.SIGCONT)

    def _move_one(self):
        cores = {self.random.choice(self.cores)} if self.random.random() < 0.7 else set(self.cores)
        for pid in self._one():
            for thread in _listed(f"/proc/{pid}/task"):
                try:
                    os.sched_setaffinity(int(thread), cores)
                except OSError:
                    pass

    def _make_noise(self):
        self.noise = [process for process in self.noise if process.poll() is None]
        if len(self.noise) < len(self.cores):
            # It ends by itself, whatever becomes of this process.
            self.noise.append(subprocess.Popen(  # pylint: disable=consider-using-with
                [sys.executable, "-ISc", BURN, str(self.random.uniform(0.05, 0.5))], stdin=subprocess.DEVNULL))


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass
