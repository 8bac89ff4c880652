"""Where Crane's own files are, in the source tree and installed."""

import os
import pathlib

from . import LaunchError

HERE = pathlib.Path(__file__).resolve().parent.parent  # scripts/ in the tree, PREFIX/lib/crane installed


class Layout:
    """Paths of craned, crane-init and libcrane.so."""

    def __init__(self):
        in_tree = (HERE.parent / "Makefile").exists() and HERE.name == "scripts"
        build = os.environ.get("CRANE_BUILD") or (os.environ.get("BUILD", "build") if in_tree else "")
        if build:
            base = (HERE.parent / build).resolve()  # an absolute path stays itself
            self.bin, self.shim = base / "bin", base / "lib" / "libcrane.so"
        else:
            self.bin, self.shim = HERE / "bin", HERE / "libcrane.so"
        self.in_tree = in_tree
        self.craned = self.bin / "craned"
        self.init = self.bin / "crane-init"

    def check(self):
        """Refuses an incomplete build before anything is started."""
        for path in (self.craned, self.init, self.shim):
            if not path.exists():
                advice = "run make first" if self.in_tree else "reinstall Crane (make install)"
                raise LaunchError(f"{path} is missing: {advice}")


def version():
    for path in (HERE / "VERSION", HERE.parent / "VERSION"):
        if path.exists():
            return path.read_text().strip()
    return "unknown"


def default_state_dir():
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/crane/default")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise LaunchError("there is no home directory for the cluster's state: give a directory with --state-dir")
    return pathlib.Path(home) / ".local/state/crane/default"
