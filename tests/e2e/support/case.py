"""What the test files share: clusters that clean up after themselves, native twins, loads from many clients."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import threading
import time
import unittest

from .cluster import Cluster
from .native import NativeServer
from .paths import CRANE_RUN, PROGRAMS, Settings, free_port


class CraneTest(unittest.TestCase):
    """Base of all end-to-end tests. `timeout_s` bounds each test; the runner enforces it."""

    timeout_s = 180
    # Classes of lanes 1, 2 and 3 may run beside each other (run.py --lane): nothing of theirs depends on what others leave of the
    # machine, nor is anything of theirs the same by name. Those of lane 0 have it to themselves, also where a native twin would
    # do otherwise on a machine that is busy.
    lane = 0
    maxDiff = 4000

    def setUp(self):
        if not Settings.native and not CRANE_RUN.exists():
            self.skipTest(f"{CRANE_RUN} is not there")

    def needs_replicas(self):
        if Settings.native:
            self.skipTest("needs replicas; this is a --native run")

    def needs_criu(self):
        if not os.access(os.environ.get("CRANE_CRIU", "/opt/crane/criu/criu"), os.X_OK):
            self.skipTest("no CRIU: make deps says why")

    def crane(self, server_class, *arguments, **options):
        """A cluster of the server (or, in a --native run, the bare server)."""
        if Settings.native:
            return self.native(server_class, *arguments)
        server = server_class(*arguments)
        self.addCleanup(server.remove)
        return Cluster(server.command(), server.port, environment=server.environment, name=server.name, **options)

    def native(self, server_class, *arguments):
        server = server_class(*arguments, port=free_port())
        self.addCleanup(server.remove)
        return NativeServer(server.command(), server.port, environment=server.environment, name=server.name)

    def stopped(self, cluster, replica):
        """Its craned stands still until this is called."""
        pid = cluster.craned_pid(replica)
        os.kill(pid, signal.SIGSTOP)

        def go_on():
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.addCleanup(go_on)
        return go_on

    def note(self, text):
        """A line for the reader of the run: what was measured or left out."""
        print(f"      {text}", flush=True)

    def tool(self, *words, timeout_s=120):
        """Runs a client program; its output, or a failure that shows it."""
        words = [str(word) for word in words]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s, check=False)
        text = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, f"{' '.join(words)} exited with {done.returncode}\n{text[-2000:]}")
        return text

    def built_program(self, name):
        self.assertTrue((PROGRAMS / name).exists(), f"{PROGRAMS / name} is not built: run `make programs`")


@contextlib.contextmanager
def meanwhile(*jobs, patience_s=30):
    """Each job(stop) in a thread of its own until this is left, when the event `stop` is set. What one raised is raised."""
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job, stop) for job in jobs]
        try:
            yield
        finally:
            stop.set()
        for one in running:
            one.result(patience_s)


def together(*jobs, timeout_s=120):
    """Runs the callables at once, each in a thread; their results in order. The first failure is raised."""
    results, failures = [None] * len(jobs), []

    def run(place, job):
        try:
            results[place] = job()
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if failures:
        raise failures[0]
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError(f"a client is still at work after {timeout_s} s")
    return results
