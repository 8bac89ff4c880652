#!/usr/bin/python3
"""Checkpoints of servers at work: no client may notice one, and a replica made from one is like the others.

usage: takes.py [--takes N] [--restores N] [--rows N] [--back S] [--keep] [SERVER …]

For each server three replicas are started and filled, and clients work on the primary.
Again and again `crane checkpoint take` has the backups take one; now and then the craned of one that holds it is killed and
has to be back by itself, from the checkpoint. Exits with 0 only if all that README.md says held.
"""

import argparse
import pathlib
import shutil
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))

from subjects import SUBJECTS  # noqa: E402
from support.cluster import Cluster  # noqa: E402
from support.paths import Settings  # noqa: E402
from support.procs import wait_until  # noqa: E402

BACK_S = 120
TAKE_S = 600  # a gigabyte is packed beside three servers at full load
FROM_CHECKPOINT = "as it ran there"  # craned.log


def say(text):
    print(text, flush=True)


class Trial:
    """One server; run() gives a line of figures, and fills `problems`."""

    def __init__(self, options, cluster, subject):
        self.options, self.cluster, self.subject = options, cluster, subject
        self.problems, self.back_s, self.indices = [], [], set()

    def run(self):
        primary = self.cluster.primary()
        address = self.cluster.address(primary)
        self.subject.fill(self.cluster, address)
        stop = threading.Event()
        clients = self.subject.clients(address, stop)
        for client in clients:
            client.start()
        try:
            self.takes(primary, clients)
        finally:
            stop.set()
            for client in clients:
                client.join(self.options.back)
        self.problems += [client.error for client in clients if client.error]
        self.problems += [f"{client.name} did nothing" for client in clients if not client.operations and not client.error]
        self.compare()
        wrong = self.subject.check(self.cluster, address)
        if wrong:
            self.problems.append(f"the server's own check: {wrong}")
        view = self.cluster.status()[primary]["view"]
        known = [client.longest_s for client in clients if client.longest_s is not None]
        longest = f"none longer than {1000 * max(known):.0f} ms" if known else "the longest is not known"
        return (f"{len(self.indices)} checkpoints, {len(self.back_s)} restores of at most {max(self.back_s, default=0):.1f} s, "
                f"{sum(client.operations for client in clients)} operations, {longest}, view {view}")

    def takes(self, primary, clients):
        every = max(1, self.options.takes // max(1, self.options.restores))
        began = time.monotonic()
        for number in range(1, self.options.takes + 1):
            before = {n: row["checkpoint"]["index"] for n, row in self.cluster.status().items()}
            done = self.cluster.crane("checkpoint", "take", timeout_s=TAKE_S)
            if done.returncode != 0:
                self.problems.append(f"take {number}: {done.stdout[-800:]}")
                return
            rows = self.cluster.status()
            holders = [n for n, row in rows.items() if row["checkpoint"]["index"] > before[n]]
            self.indices |= {rows[n]["checkpoint"]["index"] for n in holders}
            if not holders:
                self.problems.append(f"take {number}: nobody holds a newer one than before")
            if self.options.restores and number % every == 0:
                self.restore(next(n for n in holders if n != primary))
            say(f"take {number} of {self.options.takes}, {time.monotonic() - began:.0f} s after the first was asked for")
            if any(client.error for client in clients):
                return

    def log(self, replica):
        return (self.cluster.state / f"r{replica}" / "craned.log").read_text(errors="replace")

    def restore(self, replica):
        begin, before = time.monotonic(), self.log(replica).count(FROM_CHECKPOINT)
        self.cluster.kill_craned(replica)

        def back():
            row = self.cluster.status().get(replica, {})
            return row.get("server") == "listening" and row["lag"] < 100 and self.log(replica).count(FROM_CHECKPOINT) > before

        wait_until(back, self.options.back, f"replica {replica} is back from its checkpoint", poll_s=0.1)
        self.back_s.append(time.monotonic() - begin)

    def compare(self):
        identical, text = self.cluster.diff(timeout_s=60)
        if not identical:
            self.problems.append(f"the replicas differ: {text[:2000]}")
        for replica, row in self.cluster.status().items():
            found = row["divergence"]
            if row["fenced"] or found["diverged"] or found["schedule_differences"]:
                self.problems.append(f"replica {replica} differs: {row['fenced']} {found}")


def missing(subject):
    return [program for program in subject.needs if shutil.which(program) is None]


def try_one(options, name):
    """True if all was well, None if it cannot be tried here."""
    subject = SUBJECTS[name]()
    subject.rows = options.rows
    if missing(subject):
        say(f"{name}: skipped, not installed: {', '.join(missing(subject))} (scripts/install_deps.sh --trials)")
        return None
    server = subject.kind()
    try:
        with Cluster(server.command(), server.port, environment=server.environment, name=server.name) as cluster:
            trial = Trial(options, cluster, subject)
            figures = trial.run()
            if trial.problems:
                say(cluster.report())
    finally:
        if not options.keep:
            server.remove()
    for problem in trial.problems[:20]:
        say(f"PROBLEM: {name}: {problem}")
    say(f"{name}: {'FAILED' if trial.problems else 'ok'}: {figures}")
    return not trial.problems


def main():
    parser = argparse.ArgumentParser(description="Checkpoints of servers at work")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of: {', '.join(SUBJECTS)} (default all)")
    parser.add_argument("--takes", type=int, default=20, help="checkpoints of each server (default 20)")
    parser.add_argument("--restores", type=int, default=4, help="of them so many are restored (default 4)")
    parser.add_argument("--rows", type=int, default=20_000, help="of each of MariaDB's four tables (default 20000)")
    parser.add_argument("--back", type=int, default=BACK_S, metavar="S",
                        help=f"a killed replica has to be back within so long (default {BACK_S})")
    parser.add_argument("--keep", action="store_true", help="keep the directories of state and site")
    options = parser.parse_args()
    for name in options.servers:
        if name not in SUBJECTS:
            parser.error(f"no server {name}; there are: {', '.join(SUBJECTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Settings.keep = options.keep
    results = []
    for name in options.servers or SUBJECTS:
        try:
            results.append(try_one(options, name))
        except (AssertionError, RuntimeError, OSError, TimeoutError) as error:
            say(f"{name}: FAILED: {type(error).__name__}: {error}")
            results.append(False)
    say(f"{results.count(True)} passed, {results.count(False)} failed, {results.count(None)} skipped")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
