"""crane-run's settings: flags, over a TOML file, over defaults; checked before anything is started."""

import argparse
import ipaddress
import pathlib
import re

from . import LaunchError, profiles
from .backup import read_launched
from .config_file import read_config_file
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
  crane-run apache2
      the same by its profile, which knows what the server needs; --profiles lists them
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
           "placement": ("auto", "none"), "disk-format": ("ext4", "xfs"), "durability": ("disk", "memory"), "output-log": ("full", "hash"),
           "restart": ("always", "on-failure", "no"), "backstop": ("on", "off"), "egress": ("refuse", "primary"),
           "log-level": ("trace", "debug", "info", "warning", "error")}
DEFAULTS = {"replicas": None, "witnesses": 0, "client-address": None, "port-map": [], "state-dir": None, "schedule": "serial",
            "placement": "auto", "durability": "disk", "quantum": 1000, "isolation": "lxc", "w-timeout-us": "auto", "n-clock": "auto",
            "no-time-bubble": False, "backstop": "on", "heartbeat-ms": 50, "election-timeout-ms": 500, "mode": "full", "output-log": "full", "fresh": False, "restore": None,
            "log-level": "info", "detach": False, "timeout-s": 60, "no-restart": False, "restart": "always", "env": [],
            "cpus": 2, "memory-bytes": 0, "hostname": "crane", "own-address": [], "watchdog-s": 10, "endless-s": 60, "stop-s": 90, "user": "", "group": "", "capability": [],
            "system-call": [], "device": [], "new-privileges": False, "hide": [], "show": [], "disk-quota-bytes": 0, "disk-format": "ext4",
            "input-mib": 128, "output-mib": 512, "disk-reserve-mib": 64, "metrics-port": 0,
            "checkpoint-log-mib": 16, "checkpoint-every-s": 60, "no-repair": False,
            "accept-changes": False, "disturb": 0, "egress": "refuse", "egress-allow": [], "image": "", "image-store": "/var/lib/crane/images"}
# Changing one of these in the middle of a log would make the replay differ from the first run.
FIXED_BY_LOG = ("command", "cwd", "replicas", "mode", "schedule", "quantum", "isolation", "cpus", "memory-bytes",
                "hostname", "own-address", "user", "group", "capability", "system-call", "device", "new-privileges", "hide", "show", "backstop", "egress")
# What a run was like whose record does not name the setting, since there was none, where that is not the default.
BEFORE = {"backstop": "off"}
HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


def build_parser():
    parser = argparse.ArgumentParser(prog="crane-run", usage="crane-run [options] -- server [argument ...]\n       crane-run [options] PROFILE",
                                     description=DESCRIPTION, epilog=EPILOG, add_help=False, allow_abbrev=False,
                                     argument_default=argparse.SUPPRESS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--replicas", type=int, metavar="N", help="1, 3, 5 or 7 (default 3)")
    cluster.add_argument("--witnesses", type=int, metavar="N",
                         help="so many of the replicas, the last ones, vote and keep the log, and run no server (default 0)")
    cluster.add_argument("--client-address", metavar="A1,A2,...",
                         help="where clients reach each replica (default 127.0.0.1,127.0.0.2,...)")
    cluster.add_argument("--port-map", action="append", metavar="LISTEN:CLIENT",
                         help="what listens on LISTEN is served to clients at CLIENT; may be repeated")
    cluster.add_argument("--state-dir", metavar="DIR", help="(default /var/lib/crane/default for root, else ~/.local/state/crane/default)")
    cluster.add_argument("--fresh", action="store_true", help="discard the log of an earlier run")
    cluster.add_argument("--restore", metavar="FILE", help="begin with the server and its files as in this backup (crane backup)")
    cluster.add_argument("--image", metavar="FILE|sha256:...",
                         help="begin the server in /, on the files of this base image (crane image make) instead of this host's")
    cluster.add_argument("--image-store", metavar="DIR", help="where images are kept (default /var/lib/crane/images)")
    cluster.add_argument("--isolation", choices=CHOICES["isolation"],
                         help="lxc: a container per replica (default); none: no container, no privilege needed")
    cluster.add_argument("--env", action="append", metavar="NAME[=VALUE]", help="set a variable of the server")
    cluster.add_argument("--restart", choices=CHOICES["restart"],
                         help="when a server that served and has ended is started again, on all replicas (default always)")
    may = parser.add_argument_group("what the server may do in its container")
    may.add_argument("--user", metavar="NAME", help="start it as this user, in all groups of his (default: as crane-run)")
    may.add_argument("--group", metavar="NAME", help="with this group first")
    may.add_argument("--capability", action="append", metavar="NAME", help="leave it this capability; may be repeated")
    may.add_argument("--system-call", action="append", metavar="NAME", help="allow it this system call; may be repeated")
    may.add_argument("--device", action="append", metavar="PATH", help="give it this device; may be repeated")
    may.add_argument("--new-privileges", action="store_true", help="let its set-user-ID programs work")
    may.add_argument("--hide", action="append", metavar="PATH", help="do not show it this path; may be repeated")
    may.add_argument("--show", action="append", metavar="PATH", help="show it this path, usually hidden; may be repeated")
    may.add_argument("--disk-quota-bytes", type=int, metavar="N", help="what it may write to disk (default 0: no limit)")
    may.add_argument("--disk-format", choices=CHOICES["disk-format"],
                     help="of a disk quota's file system (default ext4); with xfs, which needs a quota of at least 335544320 bytes, "
                          "a checkpoint copies no data while the server waits")
    may.add_argument("--own-address", action="append", metavar="ADDRESS/BITS",
                     help="an address that it finds on its interface eth0, such as those that clients come to (default 192.0.0.8/24); "
                          "may be repeated")
    may.add_argument("--egress", choices=CHOICES["egress"],
                     help="connections that it opens to the outside: refuse (default), or primary: the primary makes them")
    may.add_argument("--egress-allow", action="append", metavar="ADDRESS[/BITS][:PORT]",
                     help="to these addresses alone (default: to any); may be repeated")
    how = parser.add_argument_group("scheduling and consensus")
    how.add_argument("--mode", choices=CHOICES["mode"],
                     help="full (default); dmt: deterministic threads alone, one replica; "
                          "proxy: ordering and log alone, one replica")
    how.add_argument("--schedule", choices=CHOICES["schedule"],
                     help="serial (default) is safe for any server; parallel for servers that synchronize by pthreads")
    how.add_argument("--placement", choices=CHOICES["placement"],
                     help="auto (default) keeps the threads of a serial server on one core while nobody else wants it; "
                          "none leaves them to the system")
    how.add_argument("--quantum", type=int, metavar="N", help="operations a thread keeps its turn for (default 1000)")
    how.add_argument("--backstop", choices=CHOICES["backstop"],
                     help="on (default) serves also the system calls that the server makes past the C library's functions; "
                          "off leaves them alone")
    how.add_argument("--w-timeout-us", metavar="auto|N", help="idle time before a time bubble (default auto)")
    how.add_argument("--n-clock", metavar="auto|N", help="logical clocks in a time bubble (default auto)")
    how.add_argument("--no-time-bubble", action="store_true", help="admit input on arrival: replicas will diverge")
    how.add_argument("--disturb", type=int, metavar="SEED",
                     help="for tests (crane verify): random delays where threads hand over, others on each replica")
    how.add_argument("--heartbeat-ms", type=int, metavar="N", help="(default 50)")
    how.add_argument("--election-timeout-ms", type=int, metavar="N", help="(default 500)")
    how.add_argument("--durability", choices=CHOICES["durability"],
                     help="disk (default): what is acknowledged is on the disks of a majority; memory: in their memory, faster, and "
                          "lost when most hosts stop at once")
    how.add_argument("--watchdog-s", type=int, metavar="N",
                     help="name the thread that keeps the server still for so long (default 10; 0: never)")
    how.add_argument("--endless-s", type=int, metavar="N",
                     help="end and start again a server that computes for so long, and does nothing else (default 60; "
                          "0: never)")
    how.add_argument("--stop-s", type=int, metavar="N",
                     help="a server that is asked to end (crane restart) has so long before it is ended (default 90)")
    how.add_argument("--input-mib", type=int, metavar="N",
                     help="memory for what clients have sent and the server has not read (default 128, the most)")
    how.add_argument("--output-mib", type=int, metavar="N",
                     help="memory for what the server has sent and clients have not taken (default 512)")
    how.add_argument("--disk-reserve-mib", type=int, metavar="N",
                     help="input stops when less is free where the log is (default 64)")
    how.add_argument("--checkpoint-log-mib", type=int, metavar="N",
                     help="checkpoints of the running server when the log has grown by so much (default 16; 0: only when asked)")
    how.add_argument("--checkpoint-every-s", type=int, metavar="N", help="at the earliest so long after the last (default 60); then also when the server has computed for 10 s")
    how.add_argument("--no-repair", action="store_true",
                     help="leave a replica that differs from the majority as it is, to be looked at")
    how.add_argument("--accept-changes", action="store_true",
                     help="go on with the log although the server's program, libraries or named files have changed since")
    how.add_argument("--output-log", choices=CHOICES["output-log"], help="keep what is sent, or its hash only")
    running = parser.add_argument_group("running")
    running.add_argument("--config", metavar="FILE.toml", help="settings from a file; flags win over it")
    running.add_argument("--detach", action="store_true", help="return when the server is ready")
    running.add_argument("--timeout-s", type=float, metavar="N", help="for the start (default 60)")
    running.add_argument("--no-restart", action="store_true", help="leave a replica that died dead")
    running.add_argument("--metrics-port", type=int, metavar="PORT",
                         help="serve replica N's metrics, health and a page for browsers at 127.0.0.N:PORT (default 0: do not)")
    running.add_argument("--log-level", choices=CHOICES["log-level"], help="(default info)")
    running.add_argument("--profiles", action=ListProfiles, nargs=0, help="show the profiles that there are, and end")
    running.add_argument("--version", action="version", version=f"crane-run {version()}")
    running.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


class ListProfiles(argparse.Action):
    def __call__(self, parser, *_):
        print(profiles.listing())
        parser.exit()


class Settings(dict):
    """Settings by their option names ("client-address"); "command" and "cwd" besides."""

    def __init__(self, values):
        super().__init__(values)
        self.source = {}  # name -> the file that it comes from
        self.launched = None  # of a backup: how the server in it was started

    def identity(self):
        return {name: self[name] for name in FIXED_BY_LOG}

    def called(self, name):
        """The setting as the operator wrote it, for messages."""
        return f"{self.source[name]}: {name}" if name in self.source else f"--{name}"


def parse(arguments):
    """The settings of a command line, complete and checked. Raises LaunchError."""
    flags = {name.replace("_", "-"): value for name, value in vars(build_parser().parse_args(arguments)).items()}
    command = flags.pop("command", [])
    settings = Settings(DEFAULTS)
    config = flags.pop("config", None)
    settings["command"] = []
    # Behind "--" a command is what it says, whatever profiles there are.
    profile = profiles.find(command[0]) if len(command) == 1 else None
    if profile:
        command = []
        from_profile, _ = profiles.read(profile)
        settings.update(from_profile)
        settings.source = {name: str(profile) for name in from_profile if name not in flags}
    if command[:1] == ["--"]:
        command = command[1:]
    if config is not None:
        from_file = read_config_file(config)
        if profile:
            from_file.pop("command", None)  # it was asked for by name
        settings.update(from_file)
        settings.source |= {name: config for name in from_file if name not in flags}
    settings.update(flags)
    if settings["image"] and not settings["image"].startswith("sha256:"):
        settings["image"] = str(pathlib.Path(settings["image"]).absolute())  # crane-run works in /, when detached
    if settings["restore"] is not None:
        adopt_backup(settings, {*flags, *settings.source})
    if command:
        settings["command"] = command
        settings.source.pop("command", None)
    try:
        if not settings.launched:
            settings["cwd"] = "/" if settings["image"] else str(pathlib.Path.cwd())
        settings["image-store"] = str(absolute_dir(settings["image-store"], settings.called("image-store")))
    except OSError as error:
        raise LaunchError(f"the working directory cannot be had ({error.strerror}): change to one that exists") from error
    return check(settings)


def adopt_backup(settings, given):
    """What the server in it was started with holds, as it would for a log: it runs on. `given`: names of settings that the
    operator has chosen, which are compared later."""
    settings["restore"] = pathlib.Path(settings["restore"]).resolve()
    settings.launched = read_launched(settings["restore"])
    identity = BEFORE | settings.launched["identity"]
    recorded = {name: value for name, value in identity.items() if name in FIXED_BY_LOG}
    for name, value in (recorded | settings.launched["options"]).items():
        if name not in given:
            settings[name] = value
    if "port-map" not in given:
        settings["port-map"] = [f"{listen}:{client}" for listen, client in settings.launched.get("port_map", {}).items()]


def number(settings, name, low, high):
    if not low <= settings[name] <= high:
        raise LaunchError(f"{settings.called(name)} must be a number from {low} to {high}, not {settings[name]}")


def auto_or_number(settings, name, high):
    text = str(settings[name])
    value = 0 if text == "auto" else int(text) if text.isdecimal() and len(text) < 20 else -1
    if not 0 <= value <= high or (value == 0 and text != "auto"):
        raise LaunchError(f"{settings.called(name)} must be auto or a number from 1 to {high}, not {text}")
    settings[name] = value


def texts_of(settings):
    for name, value in settings.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield name, item


def check(settings):
    if not settings["command"]:
        raise LaunchError("no server command: crane-run [options] -- server [argument ...]   (crane-run --help)")
    if not settings["command"][0]:
        raise LaunchError("the server command begins with an empty word: crane-run [options] -- server [argument ...]")
    for name, text in texts_of(settings):
        if "\0" in text:
            raise LaunchError(f"{settings.called(name)} holds a zero byte, which no program can be given")
    for item in settings["env"]:
        if not item.partition("=")[0]:
            raise LaunchError(f"{settings.called('env')} {item}: write NAME=value, or NAME to pass it through")
    for name, allowed in CHOICES.items():
        if settings[name] not in allowed:
            raise LaunchError(f"{settings.called(name)} must be one of {', '.join(allowed)}, not {settings[name]}")
    check_egress(settings)
    check_replicas(settings)
    check_durability(settings)
    if settings["image"] and settings["isolation"] != "lxc":
        raise LaunchError(f"{settings.called('image')} is for containers, not for --isolation none")
    for name, low, high in (("quantum", 1, 10**9), ("heartbeat-ms", 1, 60_000), ("election-timeout-ms", 3, 600_000),
                            ("timeout-s", 1, 86_400), ("cpus", 1, 1024), ("memory-bytes", 0, 2**62),
                            ("disk-quota-bytes", 0, 2**62), ("watchdog-s", 0, 86_400), ("endless-s", 0, 86_400), ("stop-s", 1, 86_400), ("input-mib", 1, 128),
                            ("output-mib", 1, 2**20), ("disk-reserve-mib", 1, 2**30), ("metrics-port", 0, 65_535),
                            ("checkpoint-log-mib", 0, 2**20), ("checkpoint-every-s", 1, 1_000_000), ("disturb", 0, 2**40)):
        number(settings, name, low, high)
    if settings["election-timeout-ms"] < 3 * settings["heartbeat-ms"]:
        raise LaunchError("--election-timeout-ms must be at least three times --heartbeat-ms")
    if not HOSTNAME.fullmatch(settings["hostname"]):
        raise LaunchError(f"{settings.called('hostname')} must be 1 to 63 letters, digits, dots and dashes, not "
                          f"{settings['hostname']!r}")
    check_own_addresses(settings)
    auto_or_number(settings, "w-timeout-us", 60_000_000)
    auto_or_number(settings, "n-clock", 10**9)
    settings["client-address"] = client_addresses(settings)
    settings["port-map"] = port_map(settings)
    if settings["state-dir"] is None:
        settings["state-dir"] = default_state_dir()
    settings["state-dir"] = absolute_dir(settings["state-dir"], settings.called("state-dir"))
    return settings


def check_own_addresses(settings):
    """What each must be besides, craned says."""
    for text in settings["own-address"]:
        try:
            own = ipaddress.ip_interface(text)
        except ValueError:
            own = None
        if own is None or "/" not in text or own.is_loopback or own.is_multicast or own.is_unspecified:
            raise LaunchError(f"{settings.called('own-address')} must be an address of a host's own, not a loopback one, and the bits of "
                              f"its network, such as 10.0.0.5/24, not {text!r}")
    if settings["own-address"] and (settings["isolation"] != "lxc" or settings["mode"] == "proxy"):
        raise LaunchError(f"{settings.called('own-address')} is for a server with a network of its own: not for --isolation none or --mode "
                          "proxy")


def check_egress(settings):
    """Each rule is craned's to read; it says which one it cannot."""
    if settings["egress-allow"] and settings["egress"] != "primary":
        raise LaunchError(f"{settings.called('egress-allow')} has no meaning without --egress primary")
    if settings["egress"] == "primary" and settings["mode"] == "proxy":
        raise LaunchError(f"{settings.called('egress')} primary is not for mode proxy, where the server connects by itself")


def check_durability(settings):
    if settings["durability"] == "disk":
        return
    called = settings.called("durability")
    if settings["mode"] != "full":
        raise LaunchError(f"{called} memory is for mode full: in mode {settings['mode']} no other replica has the log")
    if settings["replicas"] == 1:
        raise LaunchError(f"{called} memory needs other replicas to copy the log from when a host has lost its own; use disk")


def absolute_dir(path, called):
    """A directory that was given, or a refusal; an empty word is most likely a variable that is not set."""
    if not str(path):
        raise LaunchError(f"{called} is empty: give a directory, or leave it out for the default")
    try:
        return pathlib.Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise LaunchError(f"{called} {path}: {getattr(error, 'strerror', None) or error}") from error


def check_replicas(settings):
    single = settings["mode"] != "full"
    if settings["replicas"] is None:
        settings["replicas"] = 1 if single else 3
    if single and settings["replicas"] != 1:
        raise LaunchError(f"--mode {settings['mode']} runs one replica; leave --replicas out")
    if settings["replicas"] not in (1, 3, 5, 7):
        raise LaunchError(f"{settings.called('replicas')} must be 1, 3, 5 or 7 (a majority must exist), not "
                          f"{settings['replicas']}")
    most = settings["replicas"] - 1
    if not 0 <= settings["witnesses"] <= most:
        raise LaunchError(f"{settings.called('witnesses')} must be 0 to {most}, not {settings['witnesses']}: of "
                          f"{settings['replicas']} replica{'s' if most else ''} at least one has to run the server")


def client_addresses(settings):
    given, count, called = settings["client-address"], settings["replicas"], settings.called("client-address")
    if given is None:
        return [f"127.0.0.{n}" for n in range(1, count + 1)]
    addresses = [address.strip() for address in (given.split(",") if isinstance(given, str) else given)]
    for address in addresses:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise LaunchError(f"{called} {address}: not an IP address") from error
    if len(addresses) != count:
        raise LaunchError(f"{called} names {len(addresses)} addresses for {count} replicas")
    if len({ipaddress.ip_address(address) for address in addresses}) != count:
        raise LaunchError(f"{called} must give every replica an address of its own")
    return addresses


def port_map(settings):
    ports, called = {}, settings.called("port-map")
    for item in settings["port-map"]:
        listen, colon, client = item.partition(":")
        good = colon and all(part.isdecimal() and len(part) <= 5 and 0 < int(part) < 65536 for part in (listen, client))
        if not good:
            raise LaunchError(f"{called} {item}: write LISTEN:CLIENT, for example 80:8080")
        if int(listen) in ports or int(client) in ports.values():
            raise LaunchError(f"{called} {item}: a port is mapped twice")
        ports[int(listen)] = int(client)
    return ports
