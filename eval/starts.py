#!/usr/bin/python3
"""Elections that nothing forced: starts of three replicas on a busy machine, again and again.

usage: starts.py [--starts N] [--watch S] [--isolation none|lxc] [--idle] [--json FILE]

Every core has a process that computes and one that writes files and syncs them, as builds and other servers do. Each
start makes a new cluster, waits until it serves, and watches it for a while; nobody is killed. A view beyond the first
one with a primary is an election without cause. What the loops say of themselves (crane status --json, "loop") is
printed with it: who stood still, and in what.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "nemesis"))

import lab as labs  # noqa: E402

SPIN = "while :; do :; done"
SYNC = "while :; do dd if=/dev/zero of={file} bs=64k count=64 conv=fdatasync status=none; done"


class Load:
    """Computes and syncs on each core."""

    def __init__(self, path):
        self.commands = [text for core in range(os.cpu_count()) for text in (SPIN, SYNC.format(file=path / f"load-{core}"))]
        self.processes = []

    def __enter__(self):
        self.processes = [subprocess.Popen(["sh", "-c", command], start_new_session=True) for command in self.commands]
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes:
            os.killpg(process.pid, 9)
            process.wait()


def led(lab):
    """The views in which somebody was primary, from the replicas' logs."""
    views = set()
    for member in lab.members:
        text = member.log.read_text(errors="replace") if member.log.exists() else ""
        views |= {int(view) for view in re.findall(r"role primary, view (\d+)", text)}
    return sorted(views)


def one_start(options):
    """(seconds until it served, views led, what the loops say)"""
    with labs.Lab([labs.BUILD / "programs" / "registers", labs.SERVER_PORT], isolation=options.isolation) as lab:
        began = time.monotonic()
        lab.start()
        took = time.monotonic() - began
        time.sleep(options.watch)
        loops = {number: row.get("loop", {}) for number, row in lab.statuses(10).items()}
        return took, led(lab), loops


def run(options):
    rows, elections = [], 0
    for number in range(1, options.starts + 1):
        took, views, loops = one_start(options)
        rows.append({"seconds": round(took, 2), "views": views, "loops": loops})
        extra = len(views) - 1
        elections += extra
        if extra:
            print(f"start {number}: primaries in views {views}, served after {took:.1f} s: {json.dumps(loops)}", flush=True)
        if number % 50 == 0:
            print(f"{number} starts, {elections} elections without cause", flush=True)
    return rows, elections


def main():
    parser = argparse.ArgumentParser(description="Starts on a busy machine, and the elections that nothing forced")
    parser.add_argument("--starts", type=int, default=200, help="(default 200)")
    parser.add_argument("--watch", type=float, default=2, metavar="S", help="seconds after each start (default 2)")
    parser.add_argument("--isolation", choices=("none", "lxc"), default="none")
    parser.add_argument("--idle", action="store_true", help="without the load")
    parser.add_argument("--json", type=pathlib.Path, default=labs.BUILD / "starts.json", metavar="FILE")
    options = parser.parse_args()
    labs.enter()
    try:
        if options.idle:
            rows, elections = run(options)
        else:
            scratch = labs.work_dir()
            with Load(scratch):
                rows, elections = run(options)
    except labs.LabError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    longest = max((loop.get("longest_ms", 0) for row in rows for loop in row["loops"].values()), default=0)
    print(f"{len(rows)} starts: {elections} elections without cause ({'met' if elections == 0 else 'MISSED'}: none); "
          f"the longest that a loop stood still: {longest} ms")
    options.json.write_text(json.dumps({"starts": rows, "elections": elections}, indent=1) + "\n")
    return 0 if elections == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
