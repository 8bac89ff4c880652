"""What a run may leave on the machine when it is killed: processes, mounts, memory, cgroups, locks. Found by the ids on
record and by the state directory in their command lines, so that nothing of another's is touched."""

import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from . import LaunchError, processes

KILL_WAIT_S = 5
SHARED_MEMORY = pathlib.Path("/dev/shm")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
LXC_LOCKS = pathlib.Path("/run/lxc/lock")


class Cleaned:
    """What was found, and is gone."""

    def __init__(self):
        self.processes = []  # (pid, start)
        self.removed = []  # paths

    def __bool__(self):
        return bool(self.processes or self.removed)


def clean(path, run):
    """Ends and removes all that a run of the state directory `path`, on record in `run`, has left."""
    cleaned = Cleaned()
    names = {row["container"] for row in run["replicas"] if row.get("container")}
    found = [(row.get("pid"), row.get("start")) for row in run["replicas"]]
    found = [identity for identity in found if processes.is_alive(*identity)]
    cleaned.processes = sorted({*found, *processes.find(lambda words, pid: is_ours(words, pid, path, names))})
    for identity in cleaned.processes:
        processes.send_signal(*identity, signal.SIGKILL)
    left = processes.wait_gone(cleaned.processes, KILL_WAIT_S)
    if names:
        cleaned.removed += remove_cgroups(names) + remove_lxc_traces(path)
    cleaned.removed += unmount_containers(path)
    for name in sorted(names):
        cleaned.removed += remove_tree(SHARED_MEMORY / name)
    if left:
        raise LaunchError(f"processes of an earlier run do not end: {', '.join(str(pid) for pid, _ in left)}")
    return cleaned


def is_ours(words, pid, path, names):
    if words[0].endswith("lxc-start") and len(words) > 3 and words[3] in names:
        return True
    if words[0].endswith("craned") or "craned" in " ".join(words[:2]):
        return any(word.startswith(f"{path}/r") and word.endswith("/craned.toml") for word in words)
    if words[0].endswith("crane-init"):
        return any(word.startswith(f"{path}/r") for word in words)
    try:
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"\0CRANE_TRANSPORT={path}/r".encode(errors="surrogateescape") in b"\0" + environment


def our_mounts(path, mountinfo):
    """Not what an operator has mounted there: a replica's directory may be a disk of its own."""
    own = re.compile(rf"{re.escape(str(path))}/r\d+/(container(/.*)?|base)")
    points = [line.split(b" ")[4].decode(errors="surrogateescape") for line in mountinfo.splitlines()]
    return [point for point in points if own.fullmatch(point)]


def unmount_containers(path):
    mine = our_mounts(path, pathlib.Path("/proc/self/mountinfo").read_bytes())
    for point in mine:
        subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)
    return mine


def remove_tree(path):
    """A file or a folder, as it may be."""
    if not path.exists() and not path.is_symlink():
        return []
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LaunchError(f"{path}, which an earlier run left, cannot be removed: {error.strerror}") from error
    return [str(path)]


def remove_cgroups(names):
    """A container whose monitor was killed leaves its (empty) cgroups, below the cgroup that it was started in."""
    own = re.compile(rf"lxc\.(payload|monitor)\.({'|'.join(re.escape(name) for name in names)})(-\d+)?")
    found = []
    for base, folders, _ in os.walk(CGROUPS):
        # LXC adds a number when the cgroup of a killed predecessor was still there.
        mine = [name for name in folders if own.fullmatch(name)]
        folders[:] = [name for name in folders if name not in mine]
        found += [os.path.join(base, name) for name in mine]
    return [folder for folder in sorted(found) if remove_cgroup(folder)]


def remove_cgroup(top):
    for base, _, _ in os.walk(top, topdown=False):
        for _ in range(50):
            try:
                os.rmdir(base)
            except OSError as error:
                if error.errno == errno.EBUSY:  # its last processes are still being taken down
                    time.sleep(0.02)
                    continue
            break
    return not os.path.exists(top)


def remove_lxc_traces(path):
    """LXC's lock files below /run, and the cgroup it steps into at an end, when no container uses it. The folders above
    stay: another cluster's lxc-start may be making its own in them."""
    removed = []
    folder = pathlib.Path(f"{LXC_LOCKS}{path}")
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(str(folder))
    for base, folders, _ in os.walk(CGROUPS):
        if "lxc.pivot" in folders and not any(name.startswith("lxc.monitor.") for name in folders):
            try:
                os.rmdir(os.path.join(base, "lxc.pivot"))
                removed.append(os.path.join(base, "lxc.pivot"))
            except OSError:
                pass
    return removed
