#!/usr/bin/python3
"""Consensus with real processes: three craneds with a register service, clients at all of them, and a nemesis.

usage: nemesis.py [--seconds S] [--minutes M] [--seed N] [--canary NAME] …

Prints the seed, a line for each fault, and a report; exits with 0 only if the history is linearizable, no acknowledged
write is lost, all replicas end with the same registers and the same output, and every kind of fault was met.
See README.md.
"""

import argparse
import os
import pathlib
import shutil
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import lab as labs  # noqa: E402
from clients import Client, Session, Unknown, longest_gap  # noqa: E402
from disks import Disks  # noqa: E402
from faults import KINDS, Nemesis, schedule  # noqa: E402
from network import Network  # noqa: E402
from verdict import check_history, forge, logs_hold, lost_writes, reorder, write_history  # noqa: E402

ROUND_S = 120  # a run of many minutes is several clusters, each from nothing: without checkpoints logs only grow
END_TIMEOUT_S = 120
CANARIES = {"stale": "the server answers reads from copies", "forged": "an answer in the history is replaced",
            "reordered": "two answers in the history are exchanged", "lost": "an acknowledged write is taken away"}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Faults against three replicas, and a check of what clients saw")
    parser.add_argument("--seconds", type=float, default=ROUND_S, help=f"of faults (default {ROUND_S})")
    parser.add_argument("--minutes", type=float, help=f"rounds of {ROUND_S} s, each with the next seed")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="repeats a schedule")
    parser.add_argument("--only", nargs="+", default=(), choices=[kind[0] for kind in KINDS], metavar="KIND",
                        help="faults of these kinds alone (KINDS in faults.py)")
    parser.add_argument("--clients", type=int, default=9)
    parser.add_argument("--pause-ms", type=float, default=8, help="of a client between operations, on average")
    parser.add_argument("--isolation", choices=("none", "lxc"), default="none")
    parser.add_argument("--canary", choices=CANARIES, help="breaks something; exits with 0 if that is noticed")
    parser.add_argument("--keep", action="store_true", help="keep the directory with state, logs and history")
    return parser.parse_args()


class Round:
    """One cluster, from its start to the verdict."""

    def __init__(self, options, seed, seconds):
        self.options, self.seed, self.seconds = options, seed, seconds
        self.problems = []
        self.text = []

    def run(self):
        command = [labs.BUILD / "programs" / "registers", labs.SERVER_PORT]
        command += ["--stale"] if self.options.canary == "stale" else []
        addresses = [Network.address(number) for number in (1, 2, 3)]
        with Network() as network, labs.Lab(command, isolation=self.options.isolation, addresses=addresses,
                                            wrap=network.prefix) as lab:
            for member in lab.members:
                member.prefix = network.prefix(member.number)
            with Disks(lab.members) as disks:
                try:
                    self._with(lab, network, disks)
                finally:
                    for member in lab.members:  # the disks cannot be unmounted before
                        member.signal(9)
                    if self.options.keep or (self.problems and not self.options.canary):
                        self._keep(lab)
                    for member in lab.members:
                        if member.process:
                            member.process.wait()
                    wait_unmountable(lab)

    def _with(self, lab, network, disks):
        lab.start()
        views = lab.statuses()[lab.primary()]["view"]
        stop = threading.Event()
        clients = [Client(number, [(member.address, labs.CLIENT_PORT) for member in lab.members], self.seed, stop,
                          self.options.pause_ms / 1000) for number in range(self.options.clients)]
        for client in clients:
            client.start()
        nemesis = Nemesis(lab, network, disks, lambda line: print("  " + line, flush=True), self.seed)
        if self.options.canary:
            time.sleep(self.seconds)
        else:
            nemesis.run(schedule(self.seed, self.seconds, self.options.only))
        nemesis.end()
        self._await_service(lab, clients)
        stop.set()
        for client in clients:
            client.join(30)
        self._judge(lab, clients, nemesis, views)

    def _await_service(self, lab, clients):
        """Until every client has had an answer after the last fault."""
        since = time.monotonic_ns()
        deadline = time.monotonic() + END_TIMEOUT_S
        while not all(client.operations and client.operations[-1]["call"] > since for client in clients):
            if time.monotonic() > deadline or any(client.error for client in clients):
                self.problems.append(f"clients are not served {END_TIMEOUT_S} s after the last fault")
                break
            time.sleep(0.05)
        lab.wait_level(END_TIMEOUT_S) if not self.problems else None

    # --- the verdict ------------------------------------------------------------------------------------------

    def _judge(self, lab, clients, nemesis, views):
        self.problems += [f"client {client.number}: {client.error!r}" for client in clients if client.error]
        operations = [one for client in clients for one in client.operations]
        if self.problems:
            self.text.append(lab.report())
        else:
            found, last_line = self._read_all(lab, operations)
            self._check(lab, operations, clients, found)
            lab.wait_level(END_TIMEOUT_S)
            for member in lab.members:
                member.status()  # it flushes the output log
            if unequal := logs_hold(lab, last_line):
                self.problems.append(f"replicas {unequal} did not end with the same registers")
            if text := lab.differences():
                self.problems.append(f"crane diff: the replicas' outputs differ\n{text[:2000]}")
        self._report(lab, clients, operations, nemesis, views)

    def _read_all(self, lab, operations):
        """Reads every register that was in use, as operations of the history, and all at once."""
        reader = Client(len(lab.members) + self.options.clients, [], self.seed, threading.Event(), 0)
        session = Session((lab.members[0].address, labs.CLIENT_PORT), END_TIMEOUT_S)
        try:
            for key in sorted({one["key"] for one in operations if one["key"][0] == "k"}):
                reader.one(session, "get", key)
            found, last_line = session.dump()
        except Unknown as error:
            raise labs.LabError(f"the registers cannot be read at the end: {error}\n{lab.report()}") from error
        finally:
            session.close()
        operations += reader.operations
        return found, last_line

    def _check(self, lab, operations, clients, found):
        canary = self.options.canary
        if canary in ("forged", "reordered"):
            operations = (forge if canary == "forged" else reorder)(operations)
            if not operations:
                raise labs.LabError("the history has no place to break it at")
        if canary == "lost":
            del found[next(key for client in clients for key in client.unique)]
        path = lab.path / "history.jsonl"
        write_history(path, operations)
        self.result = check_history(path)
        self.lost = lost_writes(clients, found)
        if self.lost:
            self.problems.append(f"{len(self.lost)} acknowledged writes are lost: {self.lost[:20]}")
        if self.result["violations"]:
            self.problems.append(f"NOT LINEARIZABLE: registers {self.result['violations'][:20]}")
        if self.result["out_of_time"]:
            self.problems.append(f"not checked in time: registers {self.result['out_of_time'][:20]}")

    def _report(self, lab, clients, operations, nemesis, views):
        known = sum("return" in one for one in operations)
        gap_s, at = longest_gap(operations)
        begin = min((one["call"] for one in operations), default=0)
        rows = lab.statuses()
        elections = max((row["view"] for row in rows.values()), default=views) - views
        won = sum(member.log.read_text(errors="replace").count("is primary and up to date") for member in lab.members)
        self.text.append(f"operations: {len(operations)}: {known} ok, {len(operations) - known} unknown; "
                         f"{sum(client.failed for client in clients)} connections failed, "
                         f"{sum(client.cut for client in clients)} were cut")
        self.text.append("faults: " + (", ".join(f"{kind} {count}" for kind, count in sorted(nemesis.counts.items()))
                                       or "none"))
        if nemesis.missed:
            self.text.append("nothing to hurt: " + ", ".join(f"{kind} {n}" for kind, n in nemesis.missed.items()))
        self.text.append(f"views: {elections} after the first; primaries: {won}; "
                         f"craned started {sum(member.starts for member in lab.members)} times; "
                         f"longest gap {gap_s:.2f} s, {(at - begin) / 1e9:.1f} s after the start")
        if hasattr(self, "result"):
            self.text.append(f"checked: {self.result['operations']} operations on {self.result['keys']} registers in "
                             f"{self.result['seconds']:.1f} s: {len(self.result['violations'])} violations; "
                             f"{sum(len(client.unique) for client in clients)} acknowledged unique writes: "
                             f"{len(self.lost)} lost")
        if self.seconds >= ROUND_S and not self.options.canary and not self.options.only:
            missing = [kind[0] for kind in KINDS if not nemesis.counts[kind[0]]]
            if missing:
                self.problems.append(f"these faults never happened: {', '.join(missing)}")

    def _keep(self, lab):
        """What helps to find out why, outside the disks, which go with this process."""
        place = labs.WORK_PARENT / f"crane-nemesis-kept-{self.seed}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for file in [*lab.path.glob("*.jsonl"), *lab.path.glob("*.html"), *lab.path.glob("*.out")]:
            shutil.copy(file, place)
        for member in lab.members:
            (place / f"r{member.number}").mkdir()
            for name in ("craned.log", "craned.toml", "output.log", "stderr", "stdout"):
                if (member.dir / name).exists():
                    shutil.copy(member.dir / name, place / f"r{member.number}")
        self.text.append(f"kept: {place}")


def wait_unmountable(lab):
    """crane-init outlives its craned by a moment, with files open on the disk."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        users = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()
                 and uses(pid, str(lab.path))]
        if not users:
            return
        time.sleep(0.02)


def uses(pid, path):
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    return path in maps or any(path in link for link in links)


def run_round(options, seed, seconds):
    print(f"nemesis: seed {seed}, {seconds:g} s" + (f", canary: {CANARIES[options.canary]}" if options.canary else ""),
          flush=True)
    one = Round(options, seed, seconds)
    try:
        one.run()
    except (labs.LabError, OSError, RuntimeError) as error:
        one.problems.append(f"{type(error).__name__}: {error}")
    print("\n".join("  " + line for line in one.text))
    for problem in one.problems:
        print(f"PROBLEM: {problem}")
    if options.canary:
        noticed = any(word in problem for problem in one.problems
                      for word in ("are lost:" if options.canary == "lost" else "NOT LINEARIZABLE",))
        print(f"canary {options.canary}: " + ("noticed" if noticed else "NOT NOTICED: the check cannot be trusted"))
        return noticed
    print(f"seed {seed}: " + ("ok" if not one.problems else f"FAILED; repeat the schedule with --seed {seed}"), flush=True)
    return not one.problems


def main():
    options = parse_arguments()
    labs.enter()
    if not options.minutes:
        return 0 if run_round(options, options.seed, options.seconds) else 1
    end, seed, good = time.monotonic() + options.minutes * 60, options.seed, 0
    while time.monotonic() < end:
        if not run_round(options, seed, ROUND_S):
            return 1
        good, seed = good + 1, seed + 1
    print(f"nemesis: {good} rounds, seeds {options.seed} to {seed - 1}: no violation, no lost write")
    return 0


if __name__ == "__main__":
    sys.exit(main())
