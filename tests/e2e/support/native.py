"""The same server without Crane: what every answer is compared with, and what every figure is measured against."""

import os
import shutil
import signal
import subprocess

from . import procs
from .paths import work_dir


class NativeServer:
    """Context manager with the parts of Cluster's face that make sense for one bare server."""

    replicas = 1

    def __init__(self, command, port, *, environment=None, name="native", prefix=(), protocol="tcp"):
        self.command = [*map(str, prefix), *map(str, command)]
        self.port = port
        self.protocol = protocol
        self.environment = dict(environment or {})
        self.dir = work_dir(name)
        self.process = None

    def __enter__(self):
        with open(self.dir / "output", "wb") as sink:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=sink,
                                            stderr=subprocess.STDOUT, cwd=self.dir,
                                            env=os.environ | self.environment, start_new_session=True)
        try:
            procs.wait_until(self._ready, 30, f"{' '.join(self.command)} listens on {self.port}")
        except BaseException as error:
            error.add_note(procs.tail(self.dir / "output"))
            self._end()
            raise
        return self

    def _ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self.process.returncode}")
        return procs.listening("127.0.0.1", self.port, self.protocol)

    def __exit__(self, kind, error, trace):
        if error is not None:
            error.add_note("--- native output\n" + procs.tail(self.dir / "output"))
        self._end()

    def _end(self):
        try:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        for pid in self.pids():  # the session is ours alone
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.process.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)

    def pids(self):
        """Everything in the server's session."""
        return [p for p in procs.all_pids() if (f := procs.stat_fields(p)) and int(f[3]) == self.process.pid]

    def address(self, replica=1):
        return "127.0.0.1", self.port

    def cpu_seconds(self, replica=1):
        return procs.cpu_seconds(self.pids())

    # One server agrees with itself: lets --native try the tests.
    def assert_identical(self):
        return "one native server"

    def diff(self):
        return True, "one native server"

    def status(self):
        return {1: {"role": "primary"}}

    def primary(self, timeout_s=0):
        return 1
