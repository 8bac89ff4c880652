"""What is wrong with a host for what an inventory wants of it: each mistake by its name, and with what to do.

Nothing is asked here: what library/crane_look.py has found on the host is given.
"""

import ipaddress
import json
import re

ANYWHERE = ("0.0.0.0", "::", "", "*")


def is_true(value):
    """As ansible's bool: INI files and extra variables give texts."""
    return value is True or str(value).lower() in ("true", "yes")


def system_mistakes(look):
    mistakes = []
    if look["uid"] != 0:
        mistakes.append(f"the playbooks are root on the hosts, and were user {look['uid']}: ansible_user: root, or ansible_become: true")
    release = re.match(r"[0-9]+", look["release"])
    if look["system"] != "debian" or release is None or int(release.group()) < 12:
        mistakes.append(f"it has {look['system']} {look['release']}, and Crane needs Debian 12")
    if look["machine"] != "x86_64":
        mistakes.append(f"its processor is {look['machine']}, and Crane needs x86_64")
    return mistakes


def clock_mistakes(look):
    if look["contained"] or look["synchronised"] or not look["time_daemon"]:
        return []  # a container's clock is its machine's; what keeps it is installed where there is nothing
    return [f"its clock is not synchronised (timedatectl), though {look['time_daemon']} is installed: see that it is enabled, and reaches a "
            "time server"]


def own_address_mistakes(look, said):
    mistakes = []
    if not set(look["resolved"]) & set(look["addresses"]):
        there = ", ".join(look["addresses"]) or "none"
        found = f" (which it takes for {', '.join(look['resolved'])})" if look["resolved"] not in ([], [said["crane_address"]]) else ""
        mistakes.append(f"crane_address (else ansible_host) is {said['crane_address']}{found}, and no address of this host, which has {there}: "
                        "give the one at which the others reach it")
    if is_true(said["crane_witness"]):
        return mistakes  # it has no clients
    clients = ipaddress.ip_address(said["crane_client_address"])
    virtual = said["crane_virtual_address"].partition("/")[0]
    if not clients.is_unspecified and str(clients) not in look["addresses"] and str(clients) != virtual:
        mistakes.append(f"crane_client_address is {clients}, and no address of this host: give one, or 0.0.0.0 for all that it has")
    return mistakes


def overlaps(one, other):
    return one == other or one in ANYWHERE or other in ANYWHERE


def used_port_mistakes(look, said, wanted):
    """Ports that somebody else listens at; what this cluster's own unit has is well."""
    mistakes, own = [], f"crane@{said['crane_cluster']}.service"
    for port, address, what in wanted:
        places = look["resolved"] if address == said["crane_address"] else [address]
        for one in look["listening"]:
            if one["port"] == port and one["unit"] != own and any(overlaps(place, one["address"]) for place in places):
                who = one["unit"] or one["program"] or "somebody"
                mistakes.append(f"port {port} ({what}) is in use by {who}: end that (systemctl disable --now), or choose another port")
                break
    return mistakes


def foreign_members(look, said, founded, asks):
    """A host that the cluster has not had is no replica of it by being deployed to."""
    if not founded or look["log"] or asks not in ("check", "deploy"):
        return []
    return [f"it has no log in /var/lib/crane/{said['crane_cluster']}, and {said['crane_cluster']} has run. A new replica is added by "
            f"playbooks/add.yml; one that has lost its disk is made anew by playbooks/rejoin.yml. If the cluster is to begin anew, "
            "playbooks/destroy.yml first"]


def other_kind(look, said, asks):
    """The others take a replica for what it said when they came to know it. deploy looks at whether they run (tasks/running.yml)."""
    is_witness = look["witness"] is True
    if not look["log"] or look["witness"] is None or is_witness == is_true(said["crane_witness"]) or asks not in ("upgrade", "image", "reboot", "rejoin"):
        return []
    return [f"its replica is {'a' if is_witness else 'no'} witness, and crane_witness is {str(not is_witness).lower()}: take that back; or stop the "
            "cluster (playbooks/stop.yml), and deploy"]


def host_mistakes(look, said, wanted, founded=False, asks="deploy"):
    """All, as texts. look: what crane_look gave, or ansible's word on why it gave nothing; wanted: (port, address, what for)."""
    if look.get("unreachable"):
        return ["it cannot be reached (" + " ".join(str(look.get("msg", "")).split())[:300] + "): see ansible_host, ansible_user and ssh to it. "
                "One that is lost for good is replaced, or removed, and taken from the inventory"]
    if "found" not in look:
        said_of_it = look.get("module_stderr") or look.get("msg") or ""
        return ["it could not be looked at (python3 is to be there): " + " ".join(str(said_of_it).split())[:300]]
    found = look["found"]
    mistakes = system_mistakes(found) + own_address_mistakes(found, said) + other_kind(found, said, asks)
    if asks in ("check", "deploy", "add", "replace", "rejoin", "restore"):
        mistakes += used_port_mistakes(found, said, wanted) + foreign_members(found, said, founded, asks)
    if asks != "destroy":
        mistakes += clock_mistakes(found)
    return mistakes


def clocks_apart(looks, most_s=30):
    """Of hosts that were looked at at about the same time."""
    times = {name: look["found"]["time"] for name, look in looks.items() if "found" in look}
    if not times or max(times.values()) - min(times.values()) <= most_s:
        return []
    first, last = min(times, key=times.get), max(times, key=times.get)
    return [f"the clock of {last} is {times[last] - times[first]:.0f} s before that of {first}: have both kept right (timedatectl)"]


def rows_of(said):
    """Each replica that answers, of what crane status --json says on each host."""
    rows = []
    for text in said:
        try:
            rows += [row for row in json.loads(text)["replicas"] if row.get("alive")]
        except (ValueError, KeyError, TypeError):
            continue  # it has no replica, or nobody to ask it
    return rows


def why_not_counted(peer):
    for key, why in (("rejoining", "has lost its database and has not got all of it again"), ("needs_checkpoint", "waits for a checkpoint")):
        if peer.get(key):
            return why
    return "" if peer.get("connected") else "is not connected"


def unspared(said, replica):
    """Why the cluster cannot do without this replica's vote; "" where it can. said: what crane status --json says on the hosts."""
    kept = "Its replica was left as it is, with its vote"
    leading = [row for row in rows_of(said) if row.get("role") == "primary"]
    if not leading:
        return (f"nobody leads, so the others could give a replica that is made anew nothing. {kept}. See playbooks/status.yml, and bring back "
                "a majority; where one is lost for good, see docs/deployment.md, Backup, and what was lost")
    primary = max(leading, key=lambda row: row.get("view", 0))
    voters = [member["replica"] for member in primary["membership"]["members"] if member["voter"]]
    trouble = {peer["replica"]: why_not_counted(peer) for peer in primary["peers"]}
    lost = {number: trouble.get(number, "is not connected") for number in voters if number not in (replica, primary["replica"])}
    lost = {number: why for number, why in lost.items() if why}
    needed = len(voters) // 2 + 1
    left = sum(number != replica for number in voters) - len(lost)
    if left >= needed:
        return ""
    named = "".join(f"; replica {number} {why}" for number, why in lost.items())
    return (f"without it {left} of the {len(voters)} voters are left, and {needed} have to be there{named}. {kept}. "
            + ("Bring those back first" if lost else "Add another one first (playbooks/add.yml)"))


class FilterModule:
    """For ansible."""

    def filters(self):
        return {"crane_host_mistakes": host_mistakes, "crane_clocks_apart": clocks_apart, "crane_unspared": unspared}
