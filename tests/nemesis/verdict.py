"""What a run has shown: linearizability by porcupine, lost writes, equal replicas, and the canaries that must fail."""

import json
import pathlib
import subprocess

from lab import BUILD, LabError

CHECKER = BUILD / "bin" / "nemesis-checker"


def write_history(path, operations):
    with open(path, "w", encoding="utf-8") as file:
        for one in sorted(operations, key=lambda one: one["call"]):
            file.write(json.dumps(one) + "\n")


def check_history(path, timeout_s=60):
    """What the checker found, as a dictionary; `linearizable` sums it up."""
    picture = pathlib.Path(path).with_suffix(".html")
    done = subprocess.run([str(CHECKER), "-timeout", f"{timeout_s}s", "-picture", str(picture), str(path)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=1200, check=False)
    if done.returncode not in (0, 1, 2) or not done.stdout:
        raise LabError(f"the checker ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout) | {"linearizable": done.returncode == 0}


def lost_writes(clients, found):
    """Acknowledged writes of registers that were written once, and are not there."""
    return [key for client in clients for key, value in client.unique.items() if found.get(key) != value]


def forge(operations):
    """The history with one answer replaced by an older one, which an acknowledged write had replaced before the read
    began; None if there is no such place."""
    writes = {}
    for one in sorted(operations, key=lambda one: one.get("return", 0)):
        if "return" not in one:
            continue
        before = writes.setdefault(one["key"], [])
        if one["op"] == "get" and len(before) > 1:
            old, new = before[-2], before[-1]
            if old["return"] < new["call"] and new["return"] < one["call"]:
                return [other | {"result": old["value"]} if other is one else other for other in operations]
        if one["op"] == "set":
            before.append(one)
    return None


def reorder(operations):
    """The history with one client's answers to two reads of one key exchanged, which a write lies between."""
    reads = {}
    for one in sorted(operations, key=lambda one: one["call"]):
        if one["op"] != "get" or "return" not in one or one["key"][0] != "k":
            continue
        first = reads.setdefault((one["client"], one["key"]), one)
        written = [other for other in operations if other["key"] == one["key"] and other["op"] == "set" and
                   other.get("return", one["call"]) < one["call"] and other["call"] > first["return"]]
        if first is not one and written and first["result"] != one["result"]:
            return [other | {"result": one["result"]} if other is first else
                    other | {"result": first["result"]} if other is one else other for other in operations]
    return None


def logs_hold(lab, line):
    """Numbers of the replicas whose output log does not hold the answer: their servers' registers were not the same."""
    return [member.number for member in lab.members if line.encode() not in (member.dir / "output.log").read_bytes()]
