"""What runs on this machine, read from /proc."""

import os
import pathlib
import select
import signal
import time

TICKS = os.sysconf("SC_CLK_TCK")
KILLED_WITHIN_S = 30


def read(path, default=""):
    """A /proc file as text; `default` when the process has gone meanwhile."""
    try:
        return pathlib.Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return default


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid):
    return read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def stat_fields(pid):
    """The fields of /proc/PID/stat from the third on (state, ppid, …), or None."""
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2 :].split() if ")" in text else None


def parent(pid):
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def is_zombie(pid):
    fields = stat_fields(pid)
    return fields is None or fields[0] in "ZX"


def descendants(pid):
    """All living children and children's children of `pid`, without itself."""
    children = {}
    for other in all_pids():
        children.setdefault(parent(other), []).append(other)
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def cpu_seconds(pids):
    """User and system time of the processes and of their waited-for children."""
    total = 0
    for pid in pids:
        fields = stat_fields(pid)
        if fields:
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def namespace_pid(pid):
    """The pid that the process itself sees."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def listening(host, port, protocol="tcp"):
    """True if something listens on host:port, or takes datagrams there; asks the kernel, makes no connection."""
    packed = "".join(f"{int(part):02X}" for part in reversed(host.split(".")))
    wanted = {f"{packed}:{port:04X}", f"00000000:{port:04X}", f"{'0' * 32}:{port:04X}"}
    ready = {"tcp": "0A", "udp": "07"}[protocol]
    for table in (protocol, f"{protocol}6"):
        for line in read(f"/proc/net/{table}").splitlines()[1:]:
            fields = line.split()
            if fields[3] == ready and fields[1] in wanted:
                return True
    return False


def kill(pid):
    """And wait until it is gone: before, its sockets may still take a client that its end then cuts off."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        gone, _, _ = select.select([handle], [], [], KILLED_WITHIN_S)
        if not gone:
            raise AssertionError(f"process {pid} was killed and is not gone after {KILLED_WITHIN_S} s")
    finally:
        os.close(handle)


def end_group(process):
    """What was started in a session of its own, and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_until(condition, timeout_s, what, poll_s=0.02):
    """Waits for a condition; raises TimeoutError naming `what`."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(poll_s)


def tail(path, lines=15):
    text = read(path)
    return "\n".join(text.splitlines()[-lines:])
