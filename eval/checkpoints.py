#!/usr/bin/python3
"""Checkpoints of servers that run: how long one stands still, how large it is, how soon a replica is back from it.

usage: checkpoints.py [--rounds N] [--dip] [--json FILE] [SERVER …]

For each server three replicas are started and filled. In each round `crane checkpoint take` has the backups take one each;
then the craned of one of them is killed, the other's the next time, and the time is taken until that replica has caught up
and serves. Medians, and the paper's Table 2 beside them. A server stands still for the dump of its processes and the copy
of its files together; craned.log has what each of them took, and what each took to restore. A craned is killed when it has
lived long enough to be started again without a longer pause.

--dip: instead, what clients notice. Load goes to the primary for some seconds with nothing else, and for as long with one
checkpoint taken in it, A B B A…; the ratio of the medians is told. On a machine that three replicas share, what a backup
does for a checkpoint takes processors from the others.
"""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "takes")]

from checkpointed import LONG, OPTIONS, SERVERS, missing  # noqa: E402
from loads import LOADS  # noqa: E402
from support.cluster import Cluster  # noqa: E402
from support.procs import wait_until  # noqa: E402

HEALTHY_S = 9  # after which crane-run takes a replica that served for a sound one
RESTORED = "the server was restored:"
# Milliseconds for the process and for the file system: to dump, to restore (the paper's Table 2; MySQL there).
PAPER = {"apache": (33, 48, 3069, 237), "mariadb": (88, 81, 53473, 712)}
DIP_LOADS = {"redis": "redis-50", "memcached": "memcached", "apache": "apache-static"}
DIP_S = 8


def log_of(cluster, replica):
    path = cluster.state / f"r{replica}" / "craned.log"
    return path.read_text(errors="replace")


def moments(text, what):
    """When lines that contain `what` were logged, in seconds."""
    found = re.findall(r"^(\S+ \S+) \w+ r\d+: .*" + re.escape(what), text, re.MULTILINE)
    return [datetime.datetime.fromisoformat(stamp).timestamp() for stamp in found]


def last_numbers(text, pattern):
    found = re.findall(pattern, text)
    return [int(number) for number in found[-1]] if found else []


def dumped_ms(cluster, holders):
    """Medians of those who took one: standing still, of that for files."""
    pairs = [last_numbers(log_of(cluster, n), r"it stood still for (\d+) ms, (\d+) ms of them") for n in holders]
    return [statistics.median(values) for values in zip(*pairs)]


def wait_for_a_pause(cluster, victim):
    started = moments(log_of(cluster, victim), " starts, replica ")[-1]
    time.sleep(max(0.0, started + HEALTHY_S - time.time()))


def one_round(cluster, touch, number):
    before = {n: row["checkpoint"]["index"] for n, row in cluster.status().items()}
    touch(cluster)
    began = time.monotonic()
    done = cluster.crane("checkpoint", "take", timeout_s=200)
    took_ms = (time.monotonic() - began) * 1000
    if done.returncode != 0:
        raise RuntimeError(f"crane checkpoint take: {done.stdout}")
    holders = [n for n, row in cluster.status().items() if row["checkpoint"]["index"] > before[n]]
    sizes = json.loads(cluster.crane("checkpoint", "list", "--json").stdout)["checkpoints"]
    newest = max((row for row in sizes if row["replica"] == holders[0]), key=lambda row: row["index"])
    frozen_ms, files_ms = dumped_ms(cluster, holders)
    row = {"frozen_ms": frozen_ms, "dump_ms": frozen_ms - files_ms, "files_dump_ms": files_ms, "take_ms": took_ms,
           "bytes": newest["bytes"]}
    victim = holders[number % len(holders)]
    wait_for_a_pause(cluster, victim)
    restores = log_of(cluster, victim).count(RESTORED)
    killed = time.monotonic()
    cluster.kill_craned(victim)

    def back():
        status = cluster.status().get(victim, {})
        return status.get("server") == "listening" and status.get("lag") == 0 and \
            log_of(cluster, victim).count(RESTORED) > restores

    wait_until(back, 120, f"replica {victim} is back", poll_s=0.02)
    row["back_ms"] = (time.monotonic() - killed) * 1000
    row["files_restore_ms"], row["restore_ms"] = last_numbers(
        log_of(cluster, victim), RESTORED + r" its files in (\d+) ms, its processes in (\d+) ms")
    touch(cluster)  # or there is nothing that can be compared
    cluster.assert_identical()
    return row


def measure(name, rounds):
    server_class, prepare, touch = SERVERS[name]
    server = server_class()
    try:
        with Cluster(server.command(), server.port, environment=server.environment, name=server.name,
                     options=OPTIONS.get(name, ())) as cluster:
            prepare(cluster)
            rows = [one_round(cluster, touch, number) for number in range(rounds)]
    finally:
        server.remove()
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def loaded_s(load, address, seconds, meanwhile):
    """Requests a second of a load, in the midst of which something is done."""
    done = []
    worker = threading.Thread(target=lambda: done.extend(load.run([address], seconds)[0]))
    worker.start()
    time.sleep(seconds / 4)
    meanwhile()
    worker.join()
    return done[0].per_second


def measure_dip(name, rounds):
    server_class, prepare, _ = SERVERS[name]
    load = LOADS[DIP_LOADS[name]]
    server = server_class()
    rates = {"without": [], "with": []}

    def take():
        done = cluster.crane("checkpoint", "take", timeout_s=200)
        if done.returncode != 0:
            raise RuntimeError(f"crane checkpoint take: {done.stdout}")

    try:
        with Cluster(server.command(), server.port, environment=server.environment, name=server.name,
                     options=("--checkpoint-log-mib=0",)) as cluster:
            prepare(cluster)
            address = cluster.address(cluster.primary())
            load.run([address], 1)
            for number in range(rounds):
                for kind in ("without", "with") if number % 2 == 0 else ("with", "without"):
                    rates[kind].append(loaded_s(load, address, DIP_S, take if kind == "with" else lambda: None))
            cluster.assert_identical()
    finally:
        server.remove()
    return rates


def tell_dips(names, rounds):
    results = {}
    for name in names:
        rates = results[name] = measure_dip(name, rounds)
        without, with_one = (statistics.median(rates[kind]) for kind in ("without", "with"))
        print(f"{name:12} {without:10,.0f} ops/s, with a checkpoint in {DIP_S} s {with_one:10,.0f}: {with_one / without:.3f}",
              flush=True)
    return results


def tell_table(names, rounds):
    results = {}
    print(f"{'':12} {'stands':>7}  {'processes, ms':>15}  {'files, ms':>15}  {'killed,':>8} {'archive':>8}   the paper, ms\n"
          f"{'server':12} {'still':>7}  {'dump':>7} {'restore':>7}  {'dump':>7} {'restore':>7}  {'back':>8} {'MB':>8}   "
          "processes dump, restore; files dump, restore", flush=True)
    for name in names:
        if missing(name):
            print(f"{name:12} not installed: {', '.join(missing(name))} (scripts/install_deps.sh --trials)", flush=True)
            continue
        row = results[name] = measure(name, rounds)
        paper = PAPER.get(name)
        print(f"{name:12} {row['frozen_ms']:7.0f}  {row['dump_ms']:7.0f} {row['restore_ms']:7.0f}  {row['files_dump_ms']:7.0f} "
              f"{row['files_restore_ms']:7.0f}  {row['back_ms']:8.0f} {row['bytes'] / 1e6:8.1f}   "
              f"{'{}, {}; {}, {}'.format(*paper) if paper else ''}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description="checkpoints of servers that run")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of: {', '.join(SERVERS)} (default all but {', '.join(LONG)})")
    parser.add_argument("--rounds", type=int, default=5, help="for each server (default 5)")
    parser.add_argument("--dip", action="store_true", help=f"what clients notice of one: {', '.join(DIP_LOADS)}")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    for name in options.servers:
        if name not in SERVERS:
            parser.error(f"no server {name}; there are: {', '.join(SERVERS)}")
    if options.dip:
        results = tell_dips([name for name in options.servers or DIP_LOADS if name in DIP_LOADS], options.rounds)
    else:
        results = tell_table(options.servers or [name for name in SERVERS if name not in LONG], options.rounds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
