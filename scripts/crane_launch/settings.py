"""crane-run's settings: flags, over a TOML file, over defaults; checked before anything is started."""

import argparse
import ipaddress
import pathlib
import tomllib

from . import LaunchError
from .layout import default_state_dir, version

DESCRIPTION = """\
Run a server, unmodified, on several replicas that stay identical, so that any
one of them may die without a lost request or a lost byte of state.

Clients connect to any client address, at the port that the server listens on
(or where --port-map puts it). All replicas run on this machine, each in a
container of its own."""

EPILOG = """\
examples:
  crane-run -- apache2 -DFOREGROUND
      Debian's Apache at 127.0.0.1:80, 127.0.0.2:80 and 127.0.0.3:80
  crane-run --port-map 80:8080 --detach -- apache2 -DFOREGROUND
      the same at port 8080, in the background; end it with: crane stop
  crane-run --config cluster.toml -- redis-server --port 7000
      settings from a file: the long options as keys, e.g.
          replicas = 3
          client-address = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
          port-map = ["80:8080"]
          schedule = "parallel"

Everything of a run is below the state directory: rN/stdout and rN/stderr of
the server, rN/craned.log, rN/output.log. A second run with the same command
and state directory goes on where the first one ended; --fresh starts anew."""

CHOICES = {"schedule": ("serial", "parallel"), "isolation": ("lxc", "none"), "mode": ("full", "dmt", "proxy"),
           "output-log": ("full", "hash"), "log-level": ("trace", "debug", "info", "warning", "error")}
DEFAULTS = {"replicas": None, "client-address": None, "port-map": [], "state-dir": None, "schedule": "serial",
            "quantum": 1000, "isolation": "lxc", "w-timeout-us": "auto", "n-clock": "auto", "no-time-bubble": False,
            "heartbeat-ms": 50, "election-timeout-ms": 500, "mode": "full", "output-log": "full", "fresh": False,
            "log-level": "info", "detach": False, "timeout-s": 60, "no-restart": False, "env": [], "cpus": 2,
            "memory-bytes": 0, "hostname": "crane", "watchdog-s": 10}
# Changing one of these in the middle of a log would make the replay differ from the first run.
FIXED_BY_LOG = ("command", "cwd", "replicas", "mode", "schedule", "quantum", "isolation", "cpus", "memory-bytes",
                "hostname")


def build_parser():
    parser = argparse.ArgumentParser(prog="crane-run", usage="crane-run [options] -- server [argument ...]",
                                     description=DESCRIPTION, epilog=EPILOG, add_help=False, allow_abbrev=False,
                                     argument_default=argparse.SUPPRESS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--replicas", type=int, metavar="N", help="1, 3, 5 or 7 (default 3)")
    cluster.add_argument("--client-address", metavar="A1,A2,...",
                         help="where clients reach each replica (default 127.0.0.1,127.0.0.2,...)")
    cluster.add_argument("--port-map", action="append", metavar="LISTEN:CLIENT",
                         help="what listens on LISTEN is served to clients at CLIENT; may be repeated")
    cluster.add_argument("--state-dir", metavar="DIR", help=f"(default {default_state_dir()})")
    cluster.add_argument("--fresh", action="store_true", help="discard the log of an earlier run")
    cluster.add_argument("--isolation", choices=CHOICES["isolation"],
                         help="lxc: a container per replica (default); none: no container, no privilege needed")
    cluster.add_argument("--env", action="append", metavar="NAME[=VALUE]", help="set a variable of the server")
    how = parser.add_argument_group("scheduling and consensus")
    how.add_argument("--mode", choices=CHOICES["mode"],
                     help="full (default); dmt: deterministic threads alone, one replica; "
                          "proxy: ordering and log alone, one replica")
    how.add_argument("--schedule", choices=CHOICES["schedule"],
                     help="serial (default) is safe for any server; parallel for servers that synchronize by pthreads")
    how.add_argument("--quantum", type=int, metavar="N", help="operations a thread keeps its turn for (default 1000)")
    how.add_argument("--w-timeout-us", metavar="auto|N", help="idle time before a time bubble (default auto)")
    how.add_argument("--n-clock", metavar="auto|N", help="logical clocks in a time bubble (default auto)")
    how.add_argument("--no-time-bubble", action="store_true", help="admit input on arrival: replicas will diverge")
    how.add_argument("--heartbeat-ms", type=int, metavar="N", help="(default 50)")
    how.add_argument("--election-timeout-ms", type=int, metavar="N", help="(default 500)")
    how.add_argument("--watchdog-s", type=int, metavar="N",
                     help="name the thread that keeps the server still for so long (default 10; 0: never)")
    how.add_argument("--output-log", choices=CHOICES["output-log"], help="keep what is sent, or its hash only")
    running = parser.add_argument_group("running")
    running.add_argument("--config", metavar="FILE.toml", help="settings from a file; flags win over it")
    running.add_argument("--detach", action="store_true", help="return when the server is ready")
    running.add_argument("--timeout-s", type=float, metavar="N", help="for the start (default 60)")
    running.add_argument("--no-restart", action="store_true", help="leave a replica that died dead")
    running.add_argument("--log-level", choices=CHOICES["log-level"], help="(default info)")
    running.add_argument("--version", action="version", version=f"crane-run {version()}")
    running.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


class Settings(dict):
    """Settings by their option names ("client-address"); "command" and "cwd" besides."""

    def identity(self):
        return {name: self[name] for name in FIXED_BY_LOG}


def read_config_file(path):
    try:
        values = tomllib.loads(pathlib.Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LaunchError(f"{path}: {error}") from error
    known = set(DEFAULTS) | {"command"}
    values = {name.replace("_", "-"): value for name, value in values.items()}
    for name in values:
        if name not in known:
            raise LaunchError(f"{path}: {name} is not a setting; known are {', '.join(sorted(known))}")
    return values


def parse(arguments):
    """The settings of a command line, complete and checked. Raises LaunchError."""
    flags = {name.replace("_", "-"): value for name, value in vars(build_parser().parse_args(arguments)).items()}
    command = flags.pop("command", [])
    if command[:1] == ["--"]:
        command = command[1:]
    settings = Settings(DEFAULTS)
    config = flags.pop("config", None)
    settings["command"] = []
    if config:
        settings.update(read_config_file(config))
    settings.update(flags)
    if command:
        settings["command"] = command
    settings["cwd"] = str(pathlib.Path.cwd())
    return check(settings)


def number(settings, name, low, high):
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise LaunchError(f"--{name} must be a number from {low} to {high}, not {value}")


def auto_or_number(settings, name, high):
    value = settings[name]
    settings[name] = 0 if value == "auto" else int(value) if str(value).isdecimal() else -1
    if not 0 <= settings[name] <= high or (settings[name] == 0 and value != "auto"):
        raise LaunchError(f"--{name} must be auto or a number from 1 to {high}, not {value}")


def check(settings):
    if not settings["command"] or not all(isinstance(word, str) for word in settings["command"]):
        raise LaunchError("no server command: crane-run [options] -- server [argument ...]   (crane-run --help)")
    for name, allowed in CHOICES.items():
        if settings[name] not in allowed:
            raise LaunchError(f"--{name} must be one of {', '.join(allowed)}, not {settings[name]}")
    check_replicas(settings)
    for name, low, high in (("quantum", 1, 10**9), ("heartbeat-ms", 1, 60_000), ("election-timeout-ms", 3, 600_000),
                            ("timeout-s", 1, 86_400), ("cpus", 1, 1024), ("memory-bytes", 0, 2**62), ("watchdog-s", 0, 86_400)):
        number(settings, name, low, high)
    if settings["election-timeout-ms"] < 3 * settings["heartbeat-ms"]:
        raise LaunchError("--election-timeout-ms must be at least three times --heartbeat-ms")
    auto_or_number(settings, "w-timeout-us", 60_000_000)
    auto_or_number(settings, "n-clock", 10**9)
    settings["client-address"] = client_addresses(settings["client-address"], settings["replicas"])
    settings["port-map"] = port_map(settings["port-map"])
    settings["state-dir"] = pathlib.Path(settings["state-dir"] or default_state_dir()).resolve()
    return settings


def check_replicas(settings):
    single = settings["mode"] != "full"
    if settings["replicas"] is None:
        settings["replicas"] = 1 if single else 3
    if single and settings["replicas"] != 1:
        raise LaunchError(f"--mode {settings['mode']} runs one replica; leave --replicas out")
    if settings["replicas"] not in (1, 3, 5, 7):
        raise LaunchError(f"--replicas must be 1, 3, 5 or 7 (a majority must exist), not {settings['replicas']}")


def client_addresses(given, count):
    if given is None:
        return [f"127.0.0.{n}" for n in range(1, count + 1)]
    addresses = given.split(",") if isinstance(given, str) else list(given)
    if len(addresses) != count:
        raise LaunchError(f"--client-address names {len(addresses)} addresses for {count} replicas")
    if len(set(addresses)) != count:
        raise LaunchError("--client-address must give every replica an address of its own")
    for address in addresses:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise LaunchError(f"--client-address {address}: not an IP address") from error
    return addresses


def port_map(items):
    ports = {}
    for item in items:
        listen, colon, client = str(item).partition(":")
        good = colon and all(part.isdecimal() and 0 < int(part) < 65536 for part in (listen, client))
        if not good:
            raise LaunchError(f"--port-map {item}: write LISTEN:CLIENT, for example 80:8080")
        if int(listen) in ports or int(client) in ports.values():
            raise LaunchError(f"--port-map {item}: a port is mapped twice")
        ports[int(listen)] = int(client)
    return ports
