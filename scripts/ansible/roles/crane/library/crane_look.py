#!/usr/bin/python3
"""What a host is, before anything is changed on it."""

import json
import os
import platform
import re
import socket
import struct
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: crane_look
short_description: Look at a host that is to be a replica
description: Its system, addresses, clock, and who listens where. Changes nothing.
options:
  address:
    description: Where the others are to reach it.
    type: str
    required: true
  state:
    description: The cluster's state folder.
    type: str
    required: true
  config:
    description: What the replica's craned reads.
    type: str
    required: true
author: The Crane authors
"""
LISTENING = "0A"


def say(*words):
    """What a command says; nothing where it cannot."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "LC_ALL": "C"}, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def system():
    fields = {}
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            fields = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    except OSError:
        pass
    return {"system": fields.get("ID", "an unknown system").strip('"'),
            "release": fields.get("VERSION_ID", fields.get("VERSION_CODENAME", "")).strip('"')}


def addresses():
    try:
        links = json.loads(say("ip", "-json", "address", "show"))
    except ValueError:
        return []
    return sorted({one["local"] for link in links for one in link.get("addr_info", []) if "local" in one})


def resolved(name):
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def in_words(hexadecimal):
    """An address of /proc/net/tcp: words in the machine's order."""
    raw = b"".join(struct.pack("<I", int(hexadecimal[at:at + 8], 16)) for at in range(0, len(hexadecimal), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def owners(inodes):
    """{inode: (program, unit)} of the processes that hold these sockets."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            held = {link[8:-1] for link in links if link.startswith("socket:[")} & inodes
            if held:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as comm, open(f"/proc/{pid}/cgroup", encoding="utf-8") as groups:
                    units = re.findall(r"[^/\n]+\.service", groups.read())
                    found.update(dict.fromkeys(held, (comm.read().strip(), units[-1] if units else "")))
        except OSError:
            continue
    return found


def listening():
    rows = []
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name, encoding="ascii") as file:
                rows += [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
    rows = [row for row in rows if row[3] == LISTENING]
    who = owners({row[9] for row in rows})
    out = []
    for row in rows:
        address, port = row[1].split(":")
        program, unit = who.get(row[9], ("", ""))
        out.append({"address": in_words(address).replace("::ffff:", ""), "port": int(port, 16), "program": program, "unit": unit})
    return out


def time_daemon():
    """Which package is to keep the clock right; "": none is there."""
    for line in say("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Provides}\n").splitlines():
        words = line.replace(",", " ").split()
        if words[0] == "installed" and "time-daemon" in words[2:]:
            return words[1]
    return ""


def witness(config):
    """What the replica was deployed as; None: it was not."""
    try:
        with open(config, encoding="utf-8") as file:
            return "witness = true" in (line.rstrip() for line in file)
    except OSError:
        return None


def main():
    module = AnsibleModule({name: {"type": "str", "required": True} for name in ("address", "state", "config")}, supports_check_mode=True)
    contained = subprocess.run(["systemd-detect-virt", "--container", "--quiet"], check=False).returncode == 0 \
        if os.path.exists("/usr/bin/systemd-detect-virt") else False
    found = {"uid": os.geteuid(), "machine": platform.machine(), "addresses": addresses(), "resolved": resolved(module.params["address"]),
             "listening": listening(), "log": os.path.exists(os.path.join(module.params["state"], "db", "log.db")),
             "witness": witness(module.params["config"]),
             "contained": contained, "synchronised": say("timedatectl", "show", "--property=NTPSynchronized", "--value").strip() == "yes",
             "time_daemon": time_daemon(), "time": time.time(), **system()}
    module.exit_json(changed=False, found=found)


if __name__ == "__main__":
    main()
