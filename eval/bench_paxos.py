#!/usr/bin/python3
"""Consensus alone: values decided by three replicas on this machine, durably, side by side with Debian's etcd.

usage: bench_paxos.py [--quick] [--rounds N] [--seconds S] [--json FILE]

Both systems have three nodes on loopback, sync to the same file system and keep the same number of values outstanding.
etcd gets puts over gRPC from its own Go client at its leader, over 1, 8 and 64 connections, of which the best counts.
bench-paxos has no clients: values are proposed in the leader's process, as craned does, so the ratio is that of what
each system offers its user, and etcd's CPU is that of its three servers without the client's. Medians of rounds; the
systems take turns, and the one that is not measured does not run.
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
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

from support.paths import BUILD, WORK_PARENT, free_port  # noqa: E402
from support.procs import cpu_seconds, wait_until  # noqa: E402

SIZES = (100, 1024)
IN_FLIGHT = (1, 4, 16, 64, 256)
CONNECTIONS = (1, 8, 64)
THROUGHPUT_AIM = 10  # times etcd's, at 64 in flight
ETCDLOAD = BUILD / "load" / "etcdload"


def output_of(words, timeout_s):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def measure_paxos(directory, in_flight, size, seconds):
    port = free_port()
    while any(free_port() != port + number for number in (1, 2, 3)):  # three in a row, above it
        port = free_port()
    return output_of([BUILD / "bin" / "bench-paxos", "--json", "--in-flight", in_flight, "--size", size, "--seconds",
                      seconds, "--port", port, "--directory", directory / "paxos"], 60 + seconds)


class Etcd:
    """Three nodes, from nothing; context manager."""

    def __init__(self, directory):
        self.directory = directory / "etcd"
        self.nodes = [{"name": f"n{n}", "client": free_port(), "peer": free_port()} for n in (1, 2, 3)]

    def __enter__(self):
        cluster = ",".join(f"{node['name']}=http://127.0.0.1:{node['peer']}" for node in self.nodes)
        self.processes = []
        try:
            for node in self.nodes:
                client, peer = (f"http://127.0.0.1:{node[kind]}" for kind in ("client", "peer"))
                words = ["etcd", "--name", node["name"], "--data-dir", self.directory / node["name"],
                         "--listen-client-urls", client, "--advertise-client-urls", client,
                         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                         "--initial-cluster", cluster, "--initial-cluster-state", "new", "--log-level", "error"]
                self.processes.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.leader = wait_until(self.find_leader, 30, "etcd has a leader", poll_s=0.1)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def metrics(node):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node['client']}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def find_leader(self):
        return next((node for node in self.nodes if self.metrics(node).get("etcd_server_is_leader") == "1"), None)

    def state(self):
        found = self.metrics(self.leader)
        return (cpu_seconds([process.pid for process in self.processes]),
                float(found["etcd_disk_wal_fsync_duration_seconds_count"]))

    def measure(self, in_flight, size, seconds):
        """The best of what different numbers of connections give."""
        best = None
        for connections in CONNECTIONS:
            if connections > in_flight:
                break
            before = self.state()
            row = output_of([ETCDLOAD, "-endpoint", f"127.0.0.1:{self.leader['client']}", "-in-flight", in_flight, "-size",
                             size, "-seconds", seconds, "-connections", connections], 60 + seconds)
            after = self.state()
            if row["errors"]:
                raise RuntimeError(f"{row['errors']} puts failed: figures would mean nothing")
            row["cpu_us"] = (after[0] - before[0]) * 1e6 / row["puts_in_all"]
            row["syncs"] = (after[1] - before[1]) / row["puts_in_all"]
            row["connections"] = connections
            if best is None or row["per_second"] > best["per_second"]:
                best = row
        return best


def median_row(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def table(results, sizes, in_flights):
    lines = [f"{'bytes':>5} {'in flight':>9} | {'decided/s':>9} {'p50 us':>7} {'p99 us':>7} {'CPU us':>7} {'syncs':>6} | "
             f"{'etcd/s':>7} {'p50 us':>7} {'p99 us':>7} {'CPU us':>7} {'syncs':>6} | {'times':>6}"]
    for size in sizes:
        for in_flight in in_flights:
            ours, etcd = results[size, in_flight]
            shown = [f"{row['per_second']:{width},.0f} {row['p50_us']:7,.0f} {row['p99_us']:7,.0f} {row['cpu_us']:7.1f} "
                     f"{row['syncs']:6.3f}" for row, width in ((ours, 9), (etcd, 7))]
            lines.append(f"{size:5} {in_flight:9} | {shown[0]} | {shown[1]} | "
                         f"{ours['per_second'] / etcd['per_second']:6.1f}")
    return "\n".join(lines)


def aims(results, sizes, in_flights):
    lines = []
    for size in sizes:
        if 64 in in_flights:
            ours, etcd = results[size, 64]
            times = ours["per_second"] / etcd["per_second"]
            lines.append((times >= THROUGHPUT_AIM, f"{size} bytes, 64 in flight: {times:.1f} times etcd's throughput, aim "
                                                   f"{THROUGHPUT_AIM}"))
        if 1 in in_flights:
            ours, etcd = results[size, 1]
            lines.append((ours["p50_us"] < etcd["p50_us"], f"{size} bytes, 1 in flight: {ours['p50_us']:.0f} us, aim below "
                                                           f"etcd's {etcd['p50_us']:.0f}"))
    return "\n".join(f"{'met' if met else 'MISSED':6} {text}" for met, text in lines)


def measure_all(options, directory):
    rows = {}
    for number in range(options.rounds):
        for size in options.sizes:
            for in_flight in options.in_flight:
                row = measure_paxos(directory, in_flight, size, options.seconds)
                rows.setdefault((size, in_flight), ([], []))[0].append(row)
                print(f"  round {number + 1}/{options.rounds} {size} bytes, {in_flight} in flight: "
                      f"{row['per_second']:,.0f}/s, p50 {row['p50_us']:,.0f} us", flush=True)
            with Etcd(directory) as etcd:
                for in_flight in options.in_flight:
                    row = etcd.measure(in_flight, size, options.seconds)
                    rows[size, in_flight][1].append(row)
                    print(f"  round {number + 1}/{options.rounds} {size} bytes, {in_flight} in flight: etcd "
                          f"{row['per_second']:,.0f}/s, p50 {row['p50_us']:,.0f} us, {row['connections']} connections",
                          flush=True)
    return rows


def numbers(text):
    return tuple(int(word) for word in text.split(","))


def main():
    parser = argparse.ArgumentParser(description="Consensus alone, side by side with etcd")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it works, not how fast it is")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="bytes of a value, with commas between")
    parser.add_argument("--in-flight", type=numbers, default=IN_FLIGHT, help="values outstanding")
    parser.add_argument("--json", type=pathlib.Path, default=BUILD / "bench_paxos.json", metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.in_flight = 1, 1, (1, 64)
    if not shutil.which("etcd") or not ETCDLOAD.exists():
        sys.exit("bench-paxos: etcd or its load is missing: use `make bench-paxos`")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="crane-bench-paxos-", dir=WORK_PARENT))
    begin = time.time()
    try:
        rows = measure_all(options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results = {cell: tuple(median_row(each) for each in both) for cell, both in rows.items()}
    print(f"\nthree replicas, durable, {os.cpu_count()} cores; medians of {options.rounds} rounds of {options.seconds:g} s; "
          f"{time.time() - begin:.0f} s in all" + ("; --quick: not figures to quote" if options.quick else ""))
    print(table(results, options.sizes, options.in_flight))
    print(aims(results, options.sizes, options.in_flight))
    options.json.write_text(json.dumps([{"size": size, "in_flight": in_flight, "paxos": both[0], "etcd": both[1]}
                                        for (size, in_flight), both in rows.items()], indent=1) + "\n")
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
