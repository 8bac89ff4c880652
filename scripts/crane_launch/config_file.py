"""crane-run's configuration file: TOML, read strictly. A value of the wrong type is refused with the file, the key, what
was found and what to write; nothing is guessed, for a guess may discard a log."""

import pathlib
import tomllib

from . import LaunchError

BOOLEANS = ("fresh", "detach", "no-restart", "no-repair", "accept-changes", "no-time-bubble", "new-privileges")
INTEGERS = {"replicas": 3, "witnesses": 1, "quantum": 1000, "heartbeat-ms": 50, "election-timeout-ms": 500, "watchdog-s": 10,
            "endless-s": 60, "stop-s": 90, "cpus": 2, "memory-bytes": 8589934592, "disk-quota-bytes": 1073741824, "input-mib": 128, "output-mib": 512,
            "disk-reserve-mib": 256, "metrics-port": 9464, "checkpoint-log-mib": 64, "checkpoint-every-s": 300}
NUMBERS = {"timeout-s": 60}
AUTO_OR_INTEGER = ("w-timeout-us", "n-clock")
STRINGS = {"state-dir": "/var/lib/crane/web", "schedule": "serial", "placement": "auto", "backstop": "on", "isolation": "lxc", "disk-format": "ext4", "durability": "disk",
           "mode": "full", "output-log": "full", "log-level": "info", "restart": "always", "egress": "primary", "hostname": "crane", "user": "redis", "group": "redis",
           "image": "/srv/web.img", "image-store": "/var/lib/crane/images"}
# One item may stand alone: nothing else can be meant by it. A command line that is one string could mean two things.
LISTS = {"client-address": ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "port-map": ["80:8080"], "env": ["NAME=value"],
         "capability": ["CAP_NET_RAW"], "system-call": ["keyctl"], "device": ["/dev/fuse"], "hide": ["/srv/private"],
         "show": ["/etc/shadow"], "own-address": ["10.0.0.5/24"], "egress-allow": ["10.0.0.0/8:5432"]}
COMMAND = ["apache2", "-DFOREGROUND"]
KNOWN = sorted({*BOOLEANS, *INTEGERS, *NUMBERS, *AUTO_OR_INTEGER, *STRINGS, *LISTS, "command"})


def shown(value):
    """A value as TOML has it, for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return "a table" if isinstance(value, dict) else str(value)


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_text_list(value):
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def expectation(name, value, texts=STRINGS):
    """What is to be written for the key in place of `value`; None when `value` will do."""
    fits, wanted = True, ""
    if name in BOOLEANS:
        fits, wanted = isinstance(value, bool), f"{name} = true or {name} = false, without quotes"
    elif name in INTEGERS:
        fits, wanted = is_integer(value), f"a whole number without quotes, such as {name} = {INTEGERS[name]}"
    elif name in NUMBERS:
        fits = is_integer(value) or isinstance(value, float)
        wanted = f"a number without quotes, such as {name} = {NUMBERS[name]}"
    elif name in AUTO_OR_INTEGER:
        fits, wanted = value == "auto" or is_integer(value), f'{name} = "auto" or a whole number without quotes'
    elif name in texts:
        fits, wanted = isinstance(value, str), f"text in quotes, such as {name} = {shown(texts[name])}"
    elif name in LISTS:
        fits = isinstance(value, str) or is_text_list(value)
        wanted = f"a list of texts in quotes, such as {name} = {shown(LISTS[name])}"
    else:
        fits, wanted = is_text_list(value), f"a list, a word each, such as {name} = {shown(COMMAND)}"
    return None if fits else wanted


def read_toml(path):
    try:
        return tomllib.loads(pathlib.Path(path).read_bytes().decode())
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise LaunchError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}: give an existing file with --config") from error


def read_config_file(path, besides=None):
    """The file's settings by their option names, each of the type that it must have. `besides`: texts that it may have, too, each
    with an example."""
    besides = besides or {}
    values = {}
    for key, value in read_toml(path).items():
        name = key.replace("_", "-")
        if name not in KNOWN and name not in besides:
            raise LaunchError(f"{path}: {key} is not a setting; known are {', '.join(KNOWN)}")
        if name in values:
            raise LaunchError(f"{path}: {name} is given twice, as {name} and as {name.replace('-', '_')}: remove one")
        wanted = expectation(name, value, STRINGS | besides)
        if wanted:
            raise LaunchError(f"{path}: {key} = {shown(value)}: write {wanted}")
        # A list of addresses in one string is what the option takes, too.
        single = name in LISTS and isinstance(value, str)
        values[name] = (value.split(",") if name == "client-address" else [value]) if single else value
    return values
