"""Profiles: what a server that is known needs to run under Crane, by a name. Files as for --config, and `tested` besides."""

import os
import pathlib
import re

from . import LaunchError
from .config_file import read_config_file
from .layout import HERE

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def folders():
    """The user's own come before the host's, and these before Crane's."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    own = [pathlib.Path(home) / "crane/profiles"] if os.path.isabs(home) else []
    return [*own, pathlib.Path("/etc/crane/profiles"), HERE / "profiles"]


def find(name):
    """The file of that name; None: there is no such profile."""
    if not NAME.fullmatch(name):
        return None
    return next((path for folder in folders() if (path := folder / f"{name}.toml").is_file()), None)


def read(path):
    """Its settings, and the version of the server that it was tried with."""
    values = read_config_file(path, besides={"tested": "Redis 7.0, Debian 12"})
    if not values.get("command"):
        raise LaunchError(f"{path}: command is missing: write the server's command line, a word each")
    return values, values.pop("tested", "")


def listing():
    """A line for each, for people."""
    found = {}
    for folder in reversed(folders()):
        for path in sorted(folder.glob("*.toml")):
            found[path.stem] = path
    lines = []
    for name, path in sorted(found.items()):
        values, tested = read(path)
        lines.append(f"{name:<12} {tested or 'not said':<28} {' '.join(values['command'])}")
    return "\n".join(lines)
