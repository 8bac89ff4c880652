"""The server's environment: the operator's, without what belongs to her session and not to the server.

Every replica gets the same list, and a later run that goes on from the log gets the recorded one again.
"""

import os
import pathlib
import subprocess

from . import LaunchError

SESSION = {"_", "SHLVL", "OLDPWD", "PWD", "TERM", "COLORTERM", "DISPLAY", "WINDOWID", "XAUTHORITY", "MAIL", "LS_COLORS",
           "LESSOPEN", "LESSCLOSE", "PS1", "PS2", "PROMPT_COMMAND", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET",
           "MAINPID", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "STY", "TMUX", "TMUX_PANE", "LD_PRELOAD", "BUILD"}
SESSION_PREFIXES = ("SSH_", "XDG_", "DBUS_", "LISTEN_", "SUDO_", "CRANE_", "GPG_", "VTE_", "WATCHDOG_", "MEMORY_PRESSURE_")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
APACHE_ENVVARS = pathlib.Path("/etc/apache2/envvars")


def apache_envvars():
    """The text of this host's file; "" where there is none."""
    try:
        return APACHE_ENVVARS.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise LaunchError(f"{APACHE_ENVVARS}, from which apache2 takes its variables, cannot be read: {error}") from error


def server_environment(command, extra, source=None, envvars=apache_envvars):
    """Sorted NAME=value strings. `extra` holds NAME=value, or NAME to pass one through; `envvars` brings the text of the
    file that Debian's Apache has variables in."""
    source = dict(os.environ if source is None else source)
    chosen = {name: value for name, value in source.items()
              if name not in SESSION and not name.startswith(SESSION_PREFIXES)}
    chosen.setdefault("PATH", DEFAULT_PATH)
    if "/usr/sbin" not in chosen["PATH"].split(":"):
        chosen["PATH"] += ":/usr/sbin:/sbin"  # where Debian keeps servers; not in a user's PATH
    chosen.update(explicit_variables(extra, source))
    if pathlib.Path(command[0]).name == "apache2" and "APACHE_RUN_DIR" not in chosen:
        chosen.update(apache_variables(chosen, envvars()))
    return sorted(f"{name}={value}" for name, value in chosen.items())


def explicit_variables(extra, source=None):
    """Those of --env, by name."""
    source = os.environ if source is None else source
    chosen = {}
    for item in extra:
        name, equals, value = item.partition("=")
        if not name:
            raise LaunchError(f"--env {item}: write NAME=value, or NAME to pass it through")
        if not equals and name not in source:
            raise LaunchError(f"--env {name}: it is not set here; write {name}=value")
        chosen[name] = value if equals else source[name]
    return chosen


def difference_of_variables(run, extra):
    """How --env differs from what the log of `run` was made with: a list of texts, without the values (secrets)."""
    recorded = dict(str(item).partition("=")[::2] for item in run.get("environment", []))
    now = explicit_variables(extra)
    other = [f"another value of the variable {name} (--env)" if name in recorded else f"no variable {name} (--env)"
             for name, value in now.items() if recorded.get(name) != value]
    return other + [f"--env {name}, which is not given now" for name in run.get("env", []) if name not in now]


def apache_variables(environment, text):
    """Debian's Apache cannot read its configuration without what its control script takes from envvars."""
    if not text:
        return {}
    try:
        shown = subprocess.run(["/bin/sh", "-c", text + "\nenv -0"], env=environment, capture_output=True,
                               timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{APACHE_ENVVARS}, from which apache2 takes its variables, cannot be read: {error}") from error
    pairs = (item.partition("=") for item in shown.stdout.decode(errors="surrogateescape").split("\0") if item)
    return {name: value for name, _, value in pairs if name.startswith("APACHE_") or name == "LANG"}
