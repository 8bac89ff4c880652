"""Who holds a lock file (flock): the kernel's word, for a process that gives none of its own."""

import fcntl
import os
import pathlib
import re

LOCKS = pathlib.Path("/proc/locks")


def is_held(path):
    """Whether somebody else has it. One that is not there, or that cannot be looked at, is nobody's."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def holder_of(path, program=None):
    """The pid of a process of that program, of any if None, that holds the lock; None where nobody does, or cannot be seen."""
    if not is_held(path):
        return None
    try:
        wanted, lines = os.stat(path), LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for pid in sorted({int(words[4]) for words in map(str.split, lines) if words[1] == "FLOCK" and words[4].isdecimal()}):
        if pid != os.getpid() and has_open(pid, wanted) and (program is None or program_of(pid) == program):
            return pid
    return None


def has_open(pid, wanted):
    """By the file itself: /proc/locks names a device that stat() may call otherwise (overlay, btrfs)."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), wanted):
                return True
        except OSError:
            continue
    return False


def program_of(pid):
    """Its program's name; a script's, not its interpreter's."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    script = len(words) > 1 and os.path.basename(words[0]).startswith("python") and not words[1].startswith("-")
    return os.path.basename(words[1] if script else words[0])


def unit_of(pid):
    """The systemd service crane@NAME that it belongs to; "": to none."""
    try:
        groups = pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"/(crane@[^/\n]+\.service)", groups)
    return found[1] if found else ""
