#!/usr/bin/python3
"""Two builds of Crane side by side: is the newer one slower? Both must be built (make all programs).

usage: compare.py [--rounds N] [--seconds S] [--loads a,b] [--setups native,crane] [--no-consensus] [--after-option OPT]
                  [--json FILE] BEFORE AFTER     (two source trees)

Each round measures every load on BEFORE and on AFTER, every other round the other way round (A B B A), so that what a
measurement leaves behind (dirty pages, a warm disk) is not always the same one's burden: native and full Crane by bench.py
of that tree, so that a slow minute of the machine shows in the native figure beside it; then decided values a second by
bench-paxos. The ratios are of medians, AFTER over BEFORE: of Crane's rate, of its share of native, of CPU time an operation,
of decided values. A ratio within the spread of the native figures says nothing: more rounds do. AFTER may do more by itself
than BEFORE (take checkpoints of the server as it runs): --after-option=--checkpoint-log-mib=0 leaves that out.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench_paxos  # noqa: E402
from loads import USUAL  # noqa: E402

PAXOS_POINTS = ((1, 100), (64, 100), (64, 1024))  # in flight, bytes


def arguments():
    parser = argparse.ArgumentParser(description="two builds of Crane side by side")
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3, help="A B rounds (default 3)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default 5)")
    parser.add_argument("--loads", default=",".join(USUAL), help="default %(default)s; empty for consensus alone")
    parser.add_argument("--setups", default="native,crane", help="native, and one of bench.py's (default %(default)s)")
    parser.add_argument("--no-consensus", action="store_true", help="leave bench-paxos out")
    parser.add_argument("--after-option", action="append", default=[], metavar="OPT",
                        help="of AFTER's crane-run, which BEFORE does not know; may be repeated")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    for tree in (options.before, options.after):
        if not (tree / "build/bin/craned").exists():
            parser.error(f"{tree}: nothing is built there; run `make all programs` in it")
    return options


def measure_servers(tree, options, loads, extra, folder):
    """{load: {setup: row}} of one round, by the tree's own bench.py."""
    written = folder / "bench.json"
    command = ["/usr/bin/python3", "-B", tree / "eval/bench.py", "--rounds", 1, "--seconds", options.seconds,
               "--setups", options.setups, "--json", written, *(f"--option={one}" for one in extra), *loads]
    done = subprocess.run([str(word) for word in command], cwd=tree, env=os.environ | {"BUILD": str(tree / "build")},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare: {tree}/eval/bench.py failed:\n{done.stdout[-3000:]}")
    return json.loads(written.read_text())["medians"]


def measure_consensus(tree, seconds, folder):
    bench_paxos.BUILD = tree / "build"
    found = {}
    for in_flight, size in PAXOS_POINTS:
        found[f"{in_flight} in flight, {size} B"] = bench_paxos.measure_paxos(folder, in_flight, size, int(seconds))
        shutil.rmtree(folder / "paxos", ignore_errors=True)
    return found


def spread(values):
    return f"{statistics.median(values):10,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def table(rounds, loads, setup):
    """Lines; rounds: [{"before": (servers, consensus), "after": …}, …]."""
    for load in loads:
        shares, crane, cpu = {}, {}, {}
        for side in ("before", "after"):
            rates = {name: [one[side][0][load][name]["per_second"] for one in rounds] for name in ("native", setup)}
            crane[side] = statistics.median(rates[setup])
            shares[side] = crane[side] / statistics.median(rates["native"])
            p50 = statistics.median(one[side][0][load][setup]["p50_us"] for one in rounds)
            cpu[side] = statistics.median(one[side][0][load][setup]["cpu_ms"] for one in rounds)
            yield (f"{load:16} {side:7} native {spread(rates['native'])} {setup} {spread(rates[setup])} ops/s, "
                   f"p50 {p50:,.0f} us, {cpu[side]:.4f} ms of CPU, share {shares[side]:.3f}")
        yield (f"{load:16} after / before: {crane['after'] / crane['before']:.2f}; "
               f"{shares['after'] / shares['before']:.2f} of the share of native; {cpu['after'] / cpu['before']:.2f} of CPU")
    for point in rounds[0]["before"][1]:
        rates = {side: [one[side][1][point]["per_second"] for one in rounds] for side in ("before", "after")}
        ratio = statistics.median(rates["after"]) / statistics.median(rates["before"])
        yield (f"consensus, {point}: before {spread(rates['before'])}, after {spread(rates['after'])} decided/s; "
               f"after / before: {ratio:.2f}")


def main():
    options = arguments()
    loads = [name for name in options.loads.split(",") if name]
    rounds = []
    with tempfile.TemporaryDirectory(prefix="crane-compare-", dir=bench_paxos.WORK_PARENT) as name:
        folder = pathlib.Path(name)
        for number in range(options.rounds):
            measured = {}
            for side in ("before", "after") if number % 2 == 0 else ("after", "before"):
                tree = getattr(options, side).resolve()
                print(f"round {number + 1}/{options.rounds}: {side}", flush=True)
                extra = options.after_option if side == "after" else []
                servers = measure_servers(tree, options, loads, extra, folder) if loads else {}
                measured[side] = (servers, {} if options.no_consensus else measure_consensus(tree, options.seconds, folder))
            rounds.append(measured)
    print("\n".join(table(rounds, loads, options.setups.split(",")[-1])))
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
