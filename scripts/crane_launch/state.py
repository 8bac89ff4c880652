"""The state directory of a cluster: who holds it, what was started from it, what an earlier run left."""

import errno
import fcntl
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import time

from . import LaunchError, processes

KILL_WAIT_S = 5


class State:
    """STATE/ and what is in it. `run` is the content of run.json."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.run = {}
        self._lock = None

    def replica_dir(self, number):
        return self.path / f"r{number}"

    # --- the lock -------------------------------------------------------------------------------

    def lock(self):
        """Keeps a second crane-run away for as long as this process lives."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+")  # pylint: disable=consider-using-with
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            raise LaunchError(f"{self.path} is in use by crane-run with pid {holder}: stop that one first (crane stop "
                              f"--state-dir {self.path}), or give this one another --state-dir") from error
        except OSError as error:
            raise LaunchError(f"{self.path}: {error.strerror}: give a directory you may write with "
                              "--state-dir") from error
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def is_locked(self):
        try:
            with open(self.path / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True

    # --- run.json -------------------------------------------------------------------------------

    def load(self):
        try:
            self.run = json.loads((self.path / "run.json").read_text())
        except FileNotFoundError:
            self.run = {}
        except ValueError as error:
            raise LaunchError(f"{self.path}/run.json is damaged ({error}): remove it, or use --fresh") from error

    def save(self):
        """By rename: a crash leaves the old record or the new one."""
        new = self.path / "run.json.new"
        new.write_text(json.dumps(self.run, indent=1) + "\n")
        os.replace(new, self.path / "run.json")

    def has_log(self):
        return any(any(folder.iterdir()) for folder in self.path.glob("r*/db") if folder.is_dir())

    def check_same(self, identity):
        """Refuses to go on from the log of another server: its replay would make no sense."""
        recorded = self.run.get("identity")
        if not self.has_log():
            return
        advice = "use --fresh to discard that log, or another --state-dir"
        if recorded is None:
            raise LaunchError(f"{self.path} holds a log, but no record of which server made it: {advice}")
        for name, value in identity.items():
            if recorded.get(name) != value:
                old, new = (" ".join(v) if isinstance(v, list) else v for v in (recorded.get(name), value))
                raise LaunchError(f"{self.path} holds the log of a run with another {name} ({old}; now {new}): {advice}")

    def discard_log(self):
        for folder in self.path.glob("r[0-9]*"):
            if folder.is_dir() and folder.name[1:].isdecimal():
                shutil.rmtree(folder, ignore_errors=True)
        self.run = {}

    def cluster_id(self):
        return self.run.get("cluster_id") or secrets.token_hex(16)

    # --- what an earlier run left -----------------------------------------------------------------

    def recorded_processes(self):
        pairs = [(row.get("pid"), row.get("start")) for row in self.run.get("replicas", [])]
        return [pair for pair in pairs if processes.is_alive(*pair)]

    def clean(self):
        """Ends and removes, by the ids on record, all that a run of this directory left. Returns what was found."""
        found = self.recorded_processes()
        names = {row["container"] for row in self.run.get("replicas", []) if row.get("container")}
        found = sorted({*found, *processes.find(lambda words, pid: self._is_ours(words, pid, names))})
        left = self._kill(found)
        for name in names:
            remove_cgroups(name)
        if names:
            remove_lxc_traces(self.path)
        self._unmount()
        for name in names:
            remove_tree(pathlib.Path("/dev/shm") / name)
        if left:
            raise LaunchError(f"processes of an earlier run do not end: {', '.join(str(pid) for pid, _ in left)}")
        return found

    def _is_ours(self, words, pid, names):
        if words[0].endswith("lxc-start") and len(words) > 3 and words[3] in names:
            return True
        if words[0].endswith("craned") or "craned" in " ".join(words[:2]):
            return any(word.startswith(f"{self.path}/r") and word.endswith("/craned.toml") for word in words)
        if words[0].endswith("crane-init"):
            return any(word.startswith(f"{self.path}/r") for word in words)
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"\0CRANE_TRANSPORT={self.path}/r".encode() in b"\0" + environment

    @staticmethod
    def _kill(found):
        for identity in found:
            processes.send_signal(*identity, signal.SIGKILL)
        return processes.wait_gone(found, KILL_WAIT_S)

    def _unmount(self):
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            point = line.split()[4]
            if point.startswith(f"{self.path}/"):
                subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)


def remove_tree(path):
    """A file or a folder, as it may be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_cgroups(name):
    """A container whose monitor was killed leaves its (empty) cgroups."""
    top = pathlib.Path("/sys/fs/cgroup")
    for folder in [*top.glob(f"lxc.*.{name}*"), *top.glob(f"*/lxc.*.{name}*")]:
        # LXC adds a number when the cgroup of a killed predecessor was still there.
        if re.fullmatch(rf"lxc\.(payload|monitor)\.{re.escape(name)}(-\d+)?", folder.name):
            for _ in range(50):
                try:
                    folder.rmdir()
                except OSError as error:
                    if error.errno == errno.EBUSY:  # its last processes are still being taken down
                        time.sleep(0.02)
                        continue
                break


def remove_lxc_traces(path):
    """LXC's lock files below /run, and the cgroup it steps into at an end, when no container uses it."""
    folder = pathlib.Path(f"/run/lxc/lock{path}")
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        remove_empty_parents(folder.parent)
    for base in (pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")):
        try:
            if not any(base.glob("lxc.monitor.*")):
                (base / "lxc.pivot").rmdir()
        except OSError:
            pass


def remove_empty_parents(folder):
    while str(folder).startswith("/run/lxc"):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
