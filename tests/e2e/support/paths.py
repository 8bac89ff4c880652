"""Where things are, and the settings of a test run that hold for all tests."""

import itertools
import os
import pathlib
import socket
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
if not BUILD.is_absolute():
    BUILD = ROOT / BUILD
CRANE_RUN = ROOT / "scripts" / "crane-run"
CRANE = ROOT / "scripts" / "crane"  # status and stop
CRANE_TOOL = BUILD / "bin" / "crane"  # all that reads logs
PROGRAMS = BUILD / "programs"
SHIM = BUILD / "lib" / "libcrane.so"
HOST_CLOCK = BUILD / "lib" / "host-clock.so"  # tests/nemesis/host_clock.c
# Debian's own interpreter: a server under test must be the real binary, not a wrapper in someone's PATH.
PYTHON = "/usr/bin/python3"

# Not /tmp: a container may have a /tmp of its own, and what lies here must be visible in it.
WORK_PARENT = pathlib.Path(os.environ.get("CRANE_E2E_DIR", "/var/tmp"))


class Settings:
    """Set once by the runner."""

    quick = False  # fewer rounds; tests say so in their output
    native = False  # run the servers bare: tries the tests themselves, shows nothing about Crane
    seed = 1
    keep = False  # keep the work directories


_ports = itertools.count(20000 + (os.getpid() * 37) % 9000)


def free_port():
    """A TCP port that nothing listens on, on any loopback address."""
    for port in _ports:
        if port >= 32000:  # below the ephemeral range: no client's port can take it
            raise RuntimeError("no free port below 32000")
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port


def work_dir(name):
    """A fresh directory that servers which give up root may enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"crane-e2e-{name}-", dir=WORK_PARENT))
    path.chmod(0o755)
    return path
