"""Processes by identity: a pid alone may have become another's, a pid with its start time never does."""

import os
import pathlib
import select
import signal
import time
from concurrent.futures import ThreadPoolExecutor


def start_time(pid):
    """Field 22 of /proc/PID/stat; None for a process that is gone or a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(pid, start):
    return bool(pid) and start is not None and start_time(pid) == start


def send_signal(pid, start, number):
    """Signals that process and no other. False when it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_alive(pid, start):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def wait_gone(identities, timeout_s):
    """Those of the (pid, start) that still live after the time."""
    deadline = time.monotonic() + timeout_s
    for pid, start in identities:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if is_alive(pid, start):
            poller.poll(max(0, deadline - time.monotonic()) * 1000)
        os.close(descriptor)
    return [(pid, start) for pid, start in identities if is_alive(pid, start)]


def find(matches):
    """(pid, start) of every process for which matches(command line words, pid) holds."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")
            start = start_time(int(entry))
            if start is not None and matches(words, int(entry)):
                found.append((int(entry), start))
        except OSError:
            continue
    return found


def at_once(function, items):
    """The function's values, asked for at the same time; one after the other where no thread can be had."""
    items = list(items)
    try:
        with ThreadPoolExecutor(max_workers=len(items) or 1) as pool:
            return list(pool.map(function, items))
    except RuntimeError:
        return [function(item) for item in items]
