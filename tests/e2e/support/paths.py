"""Where things are, and the settings of a test run that hold for all tests."""

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


PORTS = range(20000, 32000)  # below the ephemeral range: no client's port can take one of them
_ports = iter(PORTS[(os.getpid() * 37) % 9000:])


def use_ports_of(lane, lanes):
    """This process runs beside others, and a port is only taken some time after it was found free."""
    global _ports  # pylint: disable=global-statement
    share = len(PORTS) // lanes
    _ports = iter(PORTS[lane * share:(lane + 1) * share])


def free_port():
    """A TCP port that nothing listens on, on any loopback address."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free port among {PORTS}")


def work_dir(name):
    """A fresh directory that servers which give up root may enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"crane-e2e-{name}-", dir=WORK_PARENT))
    path.chmod(0o755)
    return path
