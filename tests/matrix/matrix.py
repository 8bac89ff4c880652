#!/usr/bin/env python3
"""Tries servers of many kinds under Crane, each with its usual client, and prints a line for each.

usage: matrix.py [--quick] [--seeds N] [--exact] [--keep] [--json FILE] [--list | --packages] [NAME …]

A NAME selects the servers of that name or kind, and those whose name contains it. A server whose program is not installed
is `absent`; --require says that it fails then. The exit status is 0 if none failed.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]
import daemons  # noqa: E402
import files  # noqa: E402
import frameworks  # noqa: E402
import further  # noqa: E402
import mail  # noqa: E402
import more  # noqa: E402
import names  # noqa: E402
import others  # noqa: E402
import proxies  # noqa: E402
import rarer  # noqa: E402
import relays  # noqa: E402
import runtimes  # noqa: E402
import stores  # noqa: E402
import tongues  # noqa: E402
import udp  # noqa: E402
import unusual  # noqa: E402
import web  # noqa: E402
from entry import Entry  # noqa: E402
from support.paths import Settings  # noqa: E402
from trial import Trial  # noqa: E402

# One of each way to be built: threads, prefork, an event loop, co-processes, a runtime.
QUICK = ("apache-worker", "dovecot", "haproxy", "slapd", "mosquitto", "puma", "bind9", "starman", "gunicorn", "rsyncd")
GOOD = ("ok", "refused", "absent", "slow")


def entries():
    found = [value for module in (web, proxies, runtimes, mail, names, files, stores, more, udp, tongues, daemons, frameworks, further, others, rarer, relays, unusual) for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, Entry) and "name" in vars(value) and value.__module__ == module.__name__]
    assert len({entry.name for entry in found}) == len(found)
    return found


def selected(options):
    everything = entries()
    if options.exact:
        return [e for e in everything if e.name in options.names]
    if options.names:
        return [e for e in everything if any(name in e.name or name == e.kind for name in options.names)]
    return [e for e in everything if e.name in QUICK] if options.quick else everything


def main():
    parser = argparse.ArgumentParser(description="servers of many kinds under Crane")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exact", action="store_true", help="a NAME is the whole name")
    parser.add_argument("--quick", action="store_true", help="ten servers, one seed")
    parser.add_argument("--seeds", type=int, default=0, help="disturbances for each server (5; with --quick 1)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the state directories in /var/tmp/crane-e2e-matrix-*")
    parser.add_argument("--require", action="store_true", help="a server that is not installed fails")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages that it takes")
    options = parser.parse_args()
    chosen = selected(options)
    if options.packages:
        print("\n".join(sorted({package for entry in chosen for package in entry.packages})))
        return 0
    if options.list:
        print("\n".join(f"{entry.name:22} {entry.kind}" for entry in chosen))
        return 0
    Settings.keep = options.keep
    seeds = range(options.first_seed, options.first_seed + (options.seeds or (1 if options.quick else 5)))
    results = []
    for entry in chosen:
        begin = time.monotonic()
        result = Trial(entry, seeds).run()
        results.append(result)
        print(f"{result.line()}  ({time.monotonic() - begin:.0f} s)", flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps([dataclasses.asdict(r) for r in results], indent=1))
    good = ("ok", "refused", "slow") if options.require else GOOD
    bad = [result for result in results if result.verdict not in good]
    print("; ".join([f"{len(results) - len(bad)} of {len(results)} servers, {len({r.kind for r in results if r not in bad})} kinds"] +
                    [f"{result.name} {result.verdict}: {result.seen}" for result in bad]))
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
