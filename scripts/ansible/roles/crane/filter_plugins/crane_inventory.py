"""What is wrong with an inventory: each mistake by its name, and with what to do. No host is asked for it."""

import difflib
import ipaddress
import os
import pathlib
import re

ROLE = pathlib.Path(__file__).resolve().parents[1]
SHIPPED = ROLE.parents[1] / "profiles"
NAME = re.compile(r"crane_[a-z0-9_]+")
# Given for one run, or set by these playbooks; not among the defaults.
OF_A_RUN = ("crane_replica", "crane_host", "crane_old", "crane_backup", "crane_destroy", "crane_restart", "crane_asks")
PROFILE = {"crane_profile_packages": "texts", "crane_profile_units": "texts", "crane_profile_server": "texts",
           "crane_profile_environment": "mapping", "crane_profile_ports": "ports", "crane_profile_settings": "tables",
           "crane_profile_files": "files"}

# What a setting is to be.
KINDS = {
    "crane_replica": "replica", "crane_witness": "boolean", "crane_cluster": "name", "crane_profile": "text", "crane_peer_port": "port", "crane_address": "text",
    "crane_client_address": "text", "crane_virtual_address": "any text", "crane_virtual_id": "id", "crane_ports": "ports",
    "crane_settings": "tables", "crane_limits": "mapping", "crane_own_addresses": "own addresses", "crane_image_release": "word",
    "crane_image_name": "word", "crane_image_packages": "texts", "crane_image_files": "files", "crane_image_commands": "commands",
    "crane_image_exclude": "paths", "crane_package": "any text", "crane_criu": "path", "crane_lxc_units": "texts",
    "crane_time_daemon": "text", "crane_wait_s": "count", "crane_secrets": "path", "crane_images": "path", "crane_results": "path",
    "crane_authority_days": "count", "crane_certificate_days": "count", "crane_renewal_days": "count", "crane_checkpoint": "boolean"}

NUMBER, BOOLEAN, TEXT, TEXTS = "a whole number", "true or false", "a text", "a list of texts"


def each(kind, names):
    return dict.fromkeys(names.split(), kind)


# craned's settings, by table; "" are those of no table. tests/unit_py holds it against craned's own source.
TABLES = {
    "": {"cwd": TEXT, "stop_s": NUMBER, "restart": ("always", "on-failure", "no"), "log_level": ("trace", "debug", "info", "warning", "error")},
    "schedule": {"policy": ("serial", "parallel"), "placement": ("auto", "none"), "backstop": BOOLEAN,
                 **each(NUMBER, "quantum disturb_seed pin_cpu watchdog_s endless_s")},
    "bubble": {"enabled": BOOLEAN, **each(NUMBER, "w_timeout_us n_clock")},
    "pace": each(NUMBER, "behind_ms most_shut_percent"),
    "consensus": {"durability": ("disk", "memory"), **each(NUMBER, "heartbeat_ms election_timeout_ms max_election_timeout_ms"),
                  **each(BOOLEAN, "rejoin join")},
    "clock": each(NUMBER, "max_skew_ms slew_ppm"),
    "clients": each(NUMBER, "keepalive_idle_s keepalive_interval_s keepalive_probes"),
    "output_log": {"content": ("full", "hash"), "max_bytes": NUMBER},
    "checkpoint": {**each(BOOLEAN, "running repair accept_changes"), **each(NUMBER, "every_s log_mib ship_mb_per_s")},
    "memory": each(NUMBER, "input_mib output_mib"),
    "disk": each(NUMBER, "reserve_bytes"),
    "machine": {**each(NUMBER, "cpus memory_bytes"), "hostname": TEXT, "addresses": TEXTS},
    "confinement": {**each(TEXT, "user group"), **each(TEXTS, "capabilities system_calls devices hide show"), "new_privileges": BOOLEAN,
                    "disk_quota_bytes": NUMBER, "disk_format": ("ext4", "xfs")},
    "metrics": each(TEXT, "listen"),
    "admin": each(TEXT, "listen"),
    "egress": {"policy": ("refuse", "primary"), "allow": TEXTS},
}
# Those that are made of something else here, or that the playbooks have no use for.
ELSEWHERE = {
    "cluster_id": "it is made", "replica_id": "crane_replica", "state_dir": "crane_cluster", "server": "crane_profile",
    "environment": "crane_profile", "shim": "it is the package's", "init": "it is the package's", "tls": "it is made",
    "port_map": "crane_ports", "replica": "the inventory's hosts", "image": "crane_image_name and crane_image_release",
    "mode": "these playbooks know no other mode than full", "isolation": "these playbooks know containers alone",
    "witness": "crane_witness of a host"}


def as_number(value):
    """Whole numbers, as extra variables and INI files give them, too; None: it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value) else None


def is_true(value):
    """As ansible's bool: INI files and extra variables give texts."""
    return value is True or str(value).lower() in ("true", "yes")


def as_address(value):
    try:
        return ipaddress.ip_address(str(value))
    except ValueError:
        return None


def nearest(name, names, least=0.75):
    found = difflib.get_close_matches(name, names, 1, least)
    return f": is {found[0]} meant?" if found else ""


# --- of what kind a value is: what is wanted where it is not, else ""


def in_range(low, high, what):
    def wanted(value):
        number = as_number(value)
        return "" if number is not None and low <= number <= high else f"is to be {what}, {low} to {high}"
    return wanted


def matching(pattern, what):
    def wanted(value):
        text = str(value) if as_number(value) is not None else value
        return "" if isinstance(text, str) and re.fullmatch(pattern, text) else f"is to be {what}"
    return wanted


def listing(one, what):
    def wanted(value):
        good = isinstance(value, (list, tuple)) and all(one(item) for item in value)
        return "" if good else f"is to be a list of {what}"
    return wanted


def text(value):
    return isinstance(value, str) and bool(value)


def word(value):
    """What may stand among a command's words: YAML takes 80 for a number."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def wanted_mapping(value):
    good = isinstance(value, dict) and all(isinstance(one, (str, int, float)) for one in value.values())
    return "" if good else "is to be a mapping of names to values, as {NAME: VALUE}"


def wanted_ports(value):
    good = isinstance(value, dict) and value and all(
        (as_number(port) or 0) in range(1, 65536) for pair in value.items() for port in pair)
    if not good:
        return "is to be a mapping of the server's ports to the clients', 1 to 65535 each, as {80: 8080}"
    clients = [as_number(port) for port in value.values()]
    twice = sorted({port for port in clients if clients.count(port) > 1})
    return f"has the clients' port {twice[0]} twice" if twice else ""


def file_entry(value):
    mode = value.get("mode", "0644") if isinstance(value, dict) else None
    return (isinstance(value, dict) and set(value) <= {"path", "content", "mode"} and text(value.get("path"))
            and value["path"].startswith("/") and isinstance(value.get("content"), str) and isinstance(mode, str))


def wanted_own(value):
    if not isinstance(value, (list, tuple)):
        return "is to be a list of addresses with the bits of their network, as [10.0.0.5/24]"
    seen = set()
    for one in value:
        try:
            own = ipaddress.ip_interface(one) if isinstance(one, str) and "/" in one else None
        except ValueError:
            own = None
        if own is None or own.ip.is_loopback or own.ip.is_multicast or own.ip.is_unspecified:
            return f"has {one}, which is to be an address of a host's own and the bits of its network, as 10.0.0.5/24"
        if own.ip in seen:
            return f"has {own.ip} twice"
        seen.add(own.ip)
    return ""


def wanted_boolean(value):
    return "" if isinstance(value, bool) or str(value).lower() in ("true", "false", "yes", "no") else "is to be true or false"


def of_kind(kind, value):
    if isinstance(kind, tuple):
        return value in kind
    if kind == TEXTS:
        return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    if kind == NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, bool if kind == BOOLEAN else str)


def wrong_settings(prefix, values, kinds):
    for key, value in values.items():
        if key not in kinds:
            return f"has {prefix}{key}, which craned does not know (craned(1)){nearest(str(key), kinds)}"
        kind = kinds[key]
        if not of_kind(kind, value):
            wanted = f"one of {', '.join(kind)}" if isinstance(kind, tuple) else kind
            return f"has {prefix}{key}, which is to be {wanted}, and is {value!r}"
    return ""


def wanted_tables(value):
    if not isinstance(value, dict):
        return "is to be a mapping of craned's tables, as {checkpoint: {log_mib: 64}}"
    for table, values in value.items():
        if table in ELSEWHERE:
            return f"has {table}, which is not for it: {ELSEWHERE[table]}"
        if table in TABLES[""]:
            wrong = wrong_settings("", {table: values}, TABLES[""])
        elif table not in TABLES:
            wrong = f"has {table}, which craned does not know (craned(1)){nearest(str(table), [*TABLES, *TABLES['']])}"
        elif not isinstance(values, dict):
            wrong = f"has {table}, which is to be a mapping of its keys, as {{{sorted(TABLES[table])[0]}: …}}"
        else:
            wrong = wrong_settings(f"{table}.", values, TABLES[table])
        if wrong:
            return wrong
    return ""


WANTED = {
    "replica": in_range(1, 255, "the replica's number in the cluster, of which no other has had it"),
    "port": in_range(1, 65535, "a port"),
    "id": in_range(1, 255, "a VRRP identifier that nobody else has in that network"),
    "count": in_range(1, 10 ** 6, "a whole number"),
    "name": matching(r"[a-z][a-z0-9-]{0,60}", "a name of lower-case letters, digits and dashes that begins with a letter"),
    "word": matching(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "a word of letters, digits, dots and dashes"),
    "text": lambda value: "" if text(value) else "is to be a text",
    "any text": lambda value: "" if isinstance(value, str) else "is to be a text",
    "path": matching(r"/.*", "an absolute path"),
    "paths": listing(lambda one: text(one) and re.fullmatch(r"/.*[^/]", one), "absolute paths without / at their end"),
    "texts": listing(lambda one: isinstance(one, str), "texts"),
    "commands": listing(lambda one: isinstance(one, (list, tuple)) and one and all(word(part) for part in one),
                        "commands, each a list of words, as [[a2enmod, dav_fs]]"),
    "files": listing(file_entry, "files, as [{path: /etc/NAME, content: \"…\", mode: \"0644\"}], with a mode in quotes"),
    "ports": wanted_ports, "mapping": wanted_mapping, "own addresses": wanted_own, "boolean": wanted_boolean, "tables": wanted_tables,
}


# --- names


def default_names():
    found = re.findall(r"^(crane_[a-z0-9_]+):", (ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"), re.MULTILINE)
    return set(found)


def profile_path(profile, playbooks):
    if "/" in profile:
        return pathlib.Path(profile if os.path.isabs(profile) else os.path.join(playbooks, profile))
    return SHIPPED / f"{profile}.yml"


def names_of_profiles(path):
    paths = [*SHIPPED.glob("*.yml"), path]
    return {name for one in paths if one.is_file() for name in NAME.findall(one.read_text(encoding="utf-8"))}


def unknown_names(names, known):
    """Names that nobody reads: of Crane's kind, or so near to one that it is meant."""
    mistakes = []
    for name in sorted(set(names) - known):
        close = nearest(name, sorted(known), 0.9)
        if name.startswith("crane_"):
            mistakes.append(f"{name} is no setting of Crane{nearest(name, sorted(known))} (all are in roles/crane/defaults/main.yml; a "
                            "variable of your own is to have another beginning)")
        elif close and not name.startswith("ansible_"):
            mistakes.append(f"{name} is no setting of Crane{close}")
    return mistakes


# --- what the inventory says


def profile_mistakes(profile, playbooks):
    if not isinstance(profile, str) or not profile:
        return ["crane_profile is to be a profile's name, or the path of a file"]
    path = profile_path(profile, playbooks)
    if path.is_file():
        return []
    shipped = sorted(one.stem for one in SHIPPED.glob("*.yml"))
    if "/" in profile:
        return [f"crane_profile: there is no file {path}"]
    return [f"crane_profile: there is no profile {profile}{nearest(profile, shipped, 0.5)} There are {', '.join(shipped)}; one of your own is "
            "given by its path, with a / in it"]


def setting_names():
    return [*KINDS, *PROFILE]


def kind_mistakes(said):
    mistakes = []
    for name, kind in {**KINDS, **PROFILE}.items():
        if name == "crane_replica" and said.get(name) in (None, ""):
            mistakes.append("crane_replica is missing: a number of its own for each host, 1 to 255, as host1: {crane_replica: 1}")
            continue
        if name in PROFILE and name not in said:
            mistakes.append(f"{name} is missing in the profile {said.get('crane_profile')}")
            continue
        wanted = WANTED[kind](said.get(name))
        if wanted:
            mistakes.append(f"{name} {wanted}" + ("" if wanted.startswith("has ") else f", and is {said.get(name)!r}"))
    return mistakes


def port_of(listen):
    """Of "ADDRESS:PORT"."""
    return as_number(str(listen).rpartition(":")[2])


def settings_of(said):
    """The profile's tables with the inventory's over them."""
    whole = {}
    for part in (said["crane_profile_settings"], said["crane_settings"]):
        for table, keys in part.items():
            whole[table] = {**whole.get(table, {}), **keys} if isinstance(keys, dict) else keys
    return whole


def ports_wanted(said):
    """[(port, address, what for)] that craned listens at."""
    wanted = [(as_number(said["crane_peer_port"]), said["crane_address"], "crane_peer_port")]
    for port in () if is_true(said["crane_witness"]) else said["crane_ports"].values():
        wanted.append((as_number(port), said["crane_client_address"], "crane_ports"))
    for table in ("metrics", "admin"):
        listen = settings_of(said).get(table, {}).get("listen", "")
        if listen:
            wanted.append((port_of(listen), str(listen).rpartition(":")[0].strip("[]"), f"listen of {table} (crane_settings)"))
    return wanted


def port_mistakes(said):
    wanted = ports_wanted(said)
    mistakes = [f"{what}: its port is to be 1 to 65535, after an address and a colon"
                for port, _, what in wanted if port is None or not 1 <= port <= 65535]
    for index, (port, address, what) in enumerate(wanted):
        for other_port, other_address, other in wanted[:index]:
            if port == other_port and overlaps(address, other_address):
                mistakes.append(f"port {port} is that of {other} and that of {what}: it must be another one than {other}")
    return mistakes


def overlaps(one, other):
    anywhere = ("0.0.0.0", "::", "", "*")
    return one == other or one in anywhere or other in anywhere


def address_mistakes(said):
    mistakes = []
    own = as_address(said["crane_address"])
    if own is not None and (own.is_unspecified or own.is_multicast):
        mistakes.append(f"crane_address is {own}, at which no other host can reach this one")
    if is_true(said["crane_witness"]):
        return mistakes  # it has no clients
    clients = said["crane_client_address"]
    if as_address(clients) is None:
        mistakes.append(f"crane_client_address is to be an address of the host, or 0.0.0.0 for all, and is {clients!r}")
    virtual = said["crane_virtual_address"]
    if not virtual:
        return mistakes
    try:
        whole = ipaddress.ip_interface(virtual)
    except ValueError:
        whole = None
    if whole is None or "/" not in virtual:
        return mistakes + [f"crane_virtual_address is to be an address with the length of its network's prefix, as 10.0.0.100/24, and is {virtual!r}"]
    if own is None:
        mistakes.append(f"crane_address is {said['crane_address']!r}: with a crane_virtual_address it is to be an address, not a name")
    elif own.version != whole.ip.version:
        mistakes.append(f"crane_virtual_address is {virtual}, of another kind than crane_address, {own}")
    if as_address(clients) is not None and not as_address(clients).is_unspecified and as_address(clients) != whole.ip:
        mistakes.append(f"crane_client_address is {clients}, so that nobody is served at crane_virtual_address: leave it out")
    return mistakes


def host_address(variables, name):
    return variables.get("crane_address") or variables.get("ansible_host") or name


def among_hosts(said, name, hosts):
    """Mistakes of this host with others: `hosts` are {name: variables}, as they stand in the inventory."""
    mistakes = []
    number, at = as_number(said["crane_replica"]), said["crane_address"]
    for other, variables in hosts.items():
        if other == name:
            continue
        if as_number(variables.get("crane_replica")) == number:
            mistakes.append(f"crane_replica is {number} of {name} and of {other}: each host has a number of its own")
        if str(host_address(variables, other)) == str(at):
            mistakes.append(f"crane_address (else ansible_host) is {at} of {name} and of {other}: each replica has a host of its own")
    virtual = str(said["crane_virtual_address"]).partition("/")[0]
    if virtual and virtual == str(at):
        mistakes.append(f"crane_virtual_address is {virtual}, which is {name}'s own: it is to be one that no host has")
    return mistakes


def number_mistakes(hosts, founded):
    """Of a cluster that is to begin. One that has run passes through other numbers as members come and go."""
    count = len(hosts)
    if founded or count % 2 == 1 and 3 <= count <= 7:
        return []
    return [f"group crane has {count} host{'s' if count != 1 else ''} ({', '.join(hosts)}): a cluster begins with 3, 5 or 7, so that a "
            "majority is left when some are lost. Take one out, or put one in"]


def witnesses(names, hosts):
    """Those of the hosts whose replica has no server."""
    return [name for name in names if is_true(hosts[name].get("crane_witness", False))]


def witness_mistakes(hosts):
    if len(witnesses(hosts, hosts)) < len(hosts):
        return []
    return [f"crane_witness is true of {'all hosts' if len(hosts) != 1 else 'the only host'} ({', '.join(hosts)}): at least one has to run the server"]


def inventory_mistakes(said, name, variables, hosts, founded=False, playbooks="."):
    """All, as texts. said: the settings as they come out for this host; variables: what the inventory says of it."""
    path = profile_path(said["crane_profile"], playbooks)
    known = default_names() | set(OF_A_RUN) | set(PROFILE) | names_of_profiles(path)
    mistakes = unknown_names(variables, known) + kind_mistakes(said) + number_mistakes(hosts, founded) + witness_mistakes(hosts)
    if not mistakes:  # what follows takes the values for what they are to be
        mistakes = port_mistakes(said) + address_mistakes(said) + among_hosts(said, name, hosts)
    package = said.get("crane_package")
    if text(package) and not os.path.isfile(package):
        mistakes.append(f"crane_package: there is no file {os.path.normpath(package)}; make deb makes it, and empty it is `crane` from the "
                        "hosts' package sources")
    return mistakes


def as_lines(mistakes, name):
    return "".join(f"\n  {name}: {one}." for one in mistakes)


class FilterModule:
    """For ansible."""

    def filters(self):
        return {"crane_setting_names": lambda _: setting_names(), "crane_profile_mistakes": profile_mistakes, "crane_lines": as_lines,
                "crane_inventory_mistakes": inventory_mistakes, "crane_ports_wanted": ports_wanted, "crane_witnesses": witnesses}
