#!/usr/bin/python3
"""The evaluation: native against Crane, side by side. See README.md for what each number is.

usage: bench.py [--quick] [--rounds N] [--seconds S] [--json FILE] [--setups a,b] [--option=OPT …] [--compare FILE] [LOAD …]
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import against  # noqa: E402
from loads import LOADS, USUAL  # noqa: E402
from page import page  # noqa: E402
from report import aims, ceiling, medians, table  # noqa: E402
from setups import SETUPS, Crane  # noqa: E402
from support.paths import BUILD  # noqa: E402  (setups.py put tests/e2e into the path)

WARM_UP_S = 1.0
SYSCALL_RUN_S = 1.0


def parse_arguments():
    parser = argparse.ArgumentParser(description="Crane's evaluation")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of: {', '.join(LOADS)} (default: {', '.join(USUAL)})")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it works, not how fast it is")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default 5)")
    parser.add_argument("--setups", default=",".join(SETUPS), help=f"default {','.join(SETUPS)}")
    parser.add_argument("--option", action="append", default=[], metavar="OPT",
                        help="passed to crane-run, e.g. --option=--schedule=parallel")
    parser.add_argument("--json", type=pathlib.Path, default=BUILD / "bench.json", metavar="FILE")
    parser.add_argument("--compare", type=pathlib.Path, metavar="FILE",
                        help="an earlier run's JSON: say what is slower now; exits with 1 if anything is")
    options = parser.parse_args()
    try:
        options.compare = options.compare and against.read(options.compare)
    except ValueError as error:
        parser.error(str(error))
    options.setups = options.setups.split(",")
    for kind, given, known in (("load", options.loads, LOADS), ("setup", options.setups, SETUPS)):
        for name in given:
            if name not in known:
                parser.error(f"no {kind} {name}; there are: {', '.join(known)}")
    if options.quick:
        options.rounds, options.seconds = 1, 2
    options.loads = options.loads or list(USUAL)
    return options


def count_syscalls(setup, load):
    """System calls per request of the (primary's) server and craned, in a run of its own: counting slows it."""
    pids = ",".join(map(str, setup.pids()))
    output = BUILD / "bench-perf.txt"
    command = ["perf", "stat", "-x", ";", "-o", str(output), "-e", "raw_syscalls:sys_enter", "-p", pids]
    try:
        counter = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
    except OSError:
        return None  # no perf here
    time.sleep(0.3)
    results, _ = load.run(setup.addresses[:1], SYSCALL_RUN_S)
    counter.send_signal(2)
    counter.wait(20)
    for line in output.read_text().splitlines() if output.exists() else []:
        fields = line.split(";")
        if len(fields) > 2 and "sys_enter" in fields[2] and fields[0].isdigit():
            return int(fields[0]) / max(1, results[0].requests)
    return None


def measure(setup_name, load, options):
    """One measurement: start, warm up, measure, count system calls, compare the replicas, stop."""
    with SETUPS[setup_name][1](load.server, options.option) as setup:
        load.prepare(setup.addresses)
        load.run(setup.addresses, WARM_UP_S)
        before = setup.sample()
        results, client_cpu = load.run(setup.addresses, options.seconds)
        after = setup.sample()
        requests = sum(one.requests for one in results)
        per_copy = requests / len(results)
        if requests == 0:
            raise RuntimeError(f"{load.name} on {setup_name}: no request was answered")
        if errors := sum(one.errors for one in results):
            raise RuntimeError(f"{errors} of {requests} requests failed: figures would mean nothing\n{setup.report()}")
        cpu = [b - a for a, b in zip(before["cpu"], after["cpu"])]
        row = {
            "per_second": sum(one.per_second for one in results) / len(results),
            "p50_us": sum(one.p50_us for one in results) / len(results),
            "p99_us": max(one.p99_us for one in results),
            "cpu_ms": sum(cpu) / len(cpu) * 1000 / per_copy,
            "client_cpu_ms": client_cpu * 1000 / requests,
        }
        row |= per_request(before["counters"], after["counters"], per_copy)
        row["syscalls"] = count_syscalls(setup, load)
        if isinstance(setup, Crane) and len(setup.with_server()) > 1:
            row["identical"] = "same" if setup.identical() else "DIFFER"
        return row


def per_request(before, after, requests):
    if not after:
        return {}
    grown = {key: after[key] - before.get(key, 0) for key in after}
    row = {key: grown[key] / requests for key in ("handovers", "wakeups", "doorbells", "input_wakeups", "syncs")
           if key in grown}
    row["domain_cpu_ms"] = grown["domain_cpu"] * 1000 / requests
    row["craned_cpu_ms"] = grown["craned_cpu"] * 1000 / requests
    row["bubble_share"] = grown["bubbles"] / grown["batches"] if grown.get("batches") else 0.0
    return row


def measure_load(load, options, failures):
    """All setups, round by round (A B C, A B C, …), so that a slow minute of the machine hits all of them."""
    rounds = {name: [] for name in options.setups}
    for number in range(options.rounds):
        for name in options.setups:
            print(f"  {load.name} round {number + 1}/{options.rounds} {name}: ", end="", flush=True)
            try:
                row = measure(name, load, options)
            except (AssertionError, RuntimeError, TimeoutError, OSError, subprocess.TimeoutExpired) as error:
                failures.append(f"{load.name}, {name}: {str(error)[:2000]}")
                print(f"FAILED: {str(error).splitlines()[0][:120]}", flush=True)
                continue
            rounds[name].append(row)
            print(f"{row['per_second']:,.0f} ops/s, p50 {row['p50_us']:,.0f} us", flush=True)
    rows = {name: medians(measured) for name, measured in rounds.items() if measured}
    if "native" in rows:
        rows["ceiling"] = {"per_second": ceiling(rows["native"])}
    return rows, rounds


def write(run, about, reached, path):
    """The figures, and beside them a page for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1) + "\n")
    print(f"written: {path}")
    if not importlib.util.find_spec("matplotlib"):
        print("no page: matplotlib is missing: scripts/install_deps.sh --bench")
        return
    measured = {load: rows for load, rows in run["medians"].items() if rows}
    if measured:
        titles = {name: load.title for name, load in LOADS.items()}
        machine = f"{os.cpu_count()} CPUs, {run['machine']['system']} {run['machine']['release']} {run['machine']['machine']}"
        path.with_suffix(".html").write_text(page(measured, titles, [about, machine], reached))
        print(f"written: {path.with_suffix('.html')}")


def main():
    options = parse_arguments()
    if not shutil.which("wrk"):
        sys.exit("bench: wrk is missing: apt-get install wrk")
    results, raw, failures = {}, {}, []
    begin = time.time()
    for name in options.loads:
        load = LOADS[name]
        print(f"\n{load.title}", flush=True)
        results[name], raw[name] = measure_load(load, options, failures)
        print(table(results[name]), flush=True)
    about = (f"medians of {options.rounds} interleaved rounds of {options.seconds:g} s; {time.time() - begin:.0f} s in all"
             + ("; --quick: not figures to quote" if options.quick else ""))
    reached = aims(results)
    print("\n".join([f"\n{about}", *reached]))
    run = {"machine": platform.uname()._asdict(), "rounds": options.rounds, "seconds": options.seconds,
           "options": options.option, "medians": results, "raw": raw, "failures": failures}
    write(run, about, reached, options.json)
    losses = []
    if options.compare:
        lines, losses = against.compare(options.compare, run)
        print("\n".join(["\nAgainst the earlier run:", *lines]))
    for failure in failures:
        print(f"\nfailed: {failure}", file=sys.stderr)
    return 1 if failures or losses else 0


if __name__ == "__main__":
    sys.exit(main())
