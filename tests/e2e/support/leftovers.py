"""What a test leaves behind in the runner: processes that still have its output open, threads that nobody waits for.

Either would keep whoever reads that output waiting after the last test, and says that the test did not end what it
began.
"""

import os
import signal
import stat
import threading

from . import procs

ENDS_WITHIN_S = 5


def _output():
    """What names this process's output among the descriptors of others; None where it is nobody's own: a terminal."""
    mode = os.fstat(1).st_mode
    return os.readlink("/proc/self/fd/1") if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def _writers(output):
    """pid: start time, of all processes that could write there."""
    found = {}
    for pid in procs.all_pids():
        for descriptor in (1, 2):
            try:
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") == output:
                    found[pid] = procs.stat_fields(pid)[19]
            except (OSError, TypeError, IndexError):
                continue  # it has gone meanwhile, or is not ours to see
    return found


class Leftovers:
    """Compares with what was there when it was made."""

    def __init__(self):
        self._output = _output()
        self._before = _writers(self._output) if self._output else {}

    def _processes(self):
        if not self._output:
            return []
        return [pid for pid, start in _writers(self._output).items() if self._before.get(pid) != start]

    @staticmethod
    def _threads():
        return [thread for thread in threading.enumerate()
                if thread is not threading.main_thread() and not thread.daemon]

    def take(self):
        """Texts that name what does not end by itself soon; such processes are killed."""
        try:
            procs.wait_until(lambda: not self._processes() and not self._threads(), ENDS_WITHIN_S, "all has ended")
            return []
        except TimeoutError:
            said = [f"thread {thread.name}" for thread in self._threads()]
        for pid in self._processes():
            said.append(f"process {pid}: {procs.command_line(pid)[:200]}")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # at last
        return said
