"""The state directory of a cluster: who holds it, what was started from it, whose log it holds."""

import fcntl
import json
import os
import pathlib
import pwd
import secrets

from . import LaunchError
from .environment import difference_of_variables
from .leftovers import clean
from .log_files import LogFiles, holds_files
from .settings import BEFORE, DEFAULTS

NAMES = {"cwd": "working directory"}  # of settings, where the option's own name would say nothing


def shown(value):
    return " ".join(value) if isinstance(value, list) else str(value)


def differences(recorded, settings, besides=()):
    """What a run's record says otherwise than these settings, as text for each."""
    was = DEFAULTS | BEFORE | recorded
    return [f"another {NAMES.get(name, name)} ({shown(was.get(name))}; now {shown(value)})"
            for name, value in settings.identity().items() if name not in besides and was.get(name) != value]


class State:
    """STATE/ and what is in it. `run` is the content of run.json."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.run = {"replicas": []}
        self.recorded = False  # whether there was a run.json
        self.logs = LogFiles(self.path)
        self._lock = None

    def replica_dir(self, number):
        return self.path / f"r{number}"

    # --- whose it is -----------------------------------------------------------------------------

    def check_owner(self):
        """Another user's cluster can neither be asked nor ended: said at once."""
        if os.geteuid() == 0:
            return
        try:
            owner = self.path.stat().st_uid
        except FileNotFoundError:
            return
        except OSError as error:
            raise LaunchError(f"{self.path}: {error.strerror}: do this as the user who started the cluster, or as "
                              "root") from error
        if owner != os.geteuid():
            who = user_name(owner)
            raise LaunchError(f"{self.path} is {who}'s and not yours ({user_name(os.geteuid())}): do this as {who}"
                              f"{' or as root' if owner else ''}, or give a --state-dir of your own")

    def refuse_other_owner(self):
        """For a start: who owns the directory could put anything into it, and root's doing would follow."""
        owner = self.path.stat().st_uid
        if os.geteuid() == 0 and owner != 0:
            raise LaunchError(f"{self.path} is {user_name(owner)}'s, and root's cluster is not to be in another's hands: "
                              f"give it to root (chown root {self.path}), or choose another --state-dir")
        for name in ("control.sock", "craned.lock", "db"):
            if (self.path / name).exists():
                raise LaunchError(f"{self.path} is one replica's own directory ({name} is in it), and its craned would not "
                                  "be seen any more: give another --state-dir, and to look at that one: crane status "
                                  f"--state-dir {self.path}")

    def lock(self):
        """Keeps a second crane-run away for as long as this process lives."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Not what somebody has planted in a directory that others can write.
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
                                 0o600)
            self._lock = os.fdopen(descriptor, "a+")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.truncate(0)
            self._lock.write(f"{os.getpid()}\n")
            self._lock.flush()
        except BlockingIOError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            raise LaunchError(f"{self.path} is in use by crane-run with pid {holder}: stop that one first (crane stop "
                              f"--state-dir {self.path}), or give this one another --state-dir") from error
        except OSError as error:
            raise LaunchError(f"{self.path}: {error.strerror}: give a directory you may write, with space left, with "
                              "--state-dir") from error

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
        file = self.path / "run.json"
        self.run, self.recorded = {"replicas": []}, False
        try:
            run = json.loads(file.read_text())
            check_record(run)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LaunchError(f"{file}: {error.strerror}") from error
        except ValueError as error:
            raise LaunchError(f"{file} is damaged ({error}): remove it, or use --fresh") from error
        self.run, self.recorded = {"replicas": []} | run, True

    def save(self):
        """By rename: a crash leaves the old record or the new one. For its owner only: it holds the environment."""
        write_private(self.path / "run.json", json.dumps(self.run, indent=1) + "\n")
        self.recorded = True

    def cluster_id(self):
        return self.run.get("cluster_id") or secrets.token_hex(16)

    # --- its log ----------------------------------------------------------------------------------

    def has_log(self):
        """Whether there is a log, or has been one that was in use."""
        return any(holds_files(folder / "db") for folder in self.logs.folders()) or self._lost_all()

    def _lost_all(self):
        return self.run.get("ready") is True and (self.run.get("identity") or {}).get("mode") != "dmt"

    def was_ready(self):
        """False for a log that holds nothing but a start that failed. A record of old does not tell."""
        return self.run.get("ready", True)

    def was_restoring(self):
        """What is there is a backup that was being restored: nothing of it is of use."""
        return self.run.get("restoring", False)

    def was_restored(self):
        """What is there came from a backup, and has served nobody yet: not to be taken for a start that failed."""
        return self.run.get("restored", False) and not self.was_ready()

    def replicas_without_log(self, count):
        return [n for n in range(1, count + 1) if not holds_files(self.replica_dir(n) / "db")]

    def replicas_lost_with_memory(self, count):
        """Those whose log was in memory (durability = "memory") when this host last stopped."""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

        def is_lost(number):
            try:
                return (self.replica_dir(number) / "log-in-memory").read_text(encoding="ascii").strip() != boot
            except FileNotFoundError:
                return False
            except (OSError, UnicodeDecodeError):
                return True
        return [n for n in range(1, count + 1) if is_lost(n)]

    def difference(self, settings):
        """Why this log cannot go on under these settings, as text: its replay would make no sense. Or None."""
        recorded = self.run.get("identity")
        if recorded is None:
            return f"{self.path} holds a log, but no record of which server made it"
        other = differences(recorded, settings)
        if not other:
            other = difference_of_variables(self.run, settings["env"])
        return f"{self.path} holds the log of a run with {', and '.join(other)}" if other else None

    def clean(self):
        """Ends and removes, by the ids on record, all that a run of this directory left."""
        return clean(self.path, self.run)


def user_name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def check_record(run):
    """Raises ValueError for what is JSON, but no record of a run."""
    if isinstance(run, dict) and run.get("version", 1) != 1:
        raise ValueError(f"its version is {run['version']}, and this Crane knows 1: use the Crane that wrote it")
    kinds = {"identity": dict, "supervisor": dict, "replicas": list, "environment": list, "env": list, "ready": bool,
             "restoring": bool, "restored": bool}
    if not isinstance(run, dict):
        raise ValueError("it is no object")
    for name, kind in kinds.items():
        if name in run and not isinstance(run[name], kind):
            raise ValueError(f"its {name} is of the wrong kind")
    if not all(isinstance(row, dict) and isinstance(row.get("id"), int) for row in run.get("replicas", [])):
        raise ValueError("a replica in it has no id")
    for row in [*run.get("replicas", []), run.get("supervisor", {})]:
        if not all(isinstance(row.get(name) or 0, int) for name in ("pid", "start")):
            raise ValueError("a pid in it is no number")


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_private(path, text):
    """Replaces the file at once, readable by its owner only; on the disk when it returns. OSError leaves what was there."""
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_folder(path.parent)
    except OSError:
        new.unlink(missing_ok=True)
        raise
