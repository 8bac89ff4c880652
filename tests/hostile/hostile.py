#!/usr/bin/python3
"""Three replicas of a real server among hostile clients and faults; honest clients must be served throughout.

usage: hostile.py [--server apache|redis] [--seconds S] [--seed N] [--isolation MODE] [--backstop on|off] [--keep]

Exits with 0 only if all that README.md says held. The last line is what honest clients saw.
"""

import argparse
import pathlib
import resource
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))

import attacks  # noqa: E402
import victims  # noqa: E402
from faults import Faults  # noqa: E402
from support.cluster import Cluster  # noqa: E402
from support.honest import Browser, Writer, longest_gap_s  # noqa: E402
from support.paths import Settings  # noqa: E402
from support.procs import read  # noqa: E402
from support.redisclient import Redis  # noqa: E402

MIB = 1 << 20
INPUT_MIB, OUTPUT_MIB = 128, 64
# The two settings, what a window of each of some thousand connections may hold, batches and queues on their way to two
# peers, the program itself.
BOUND_MIB = INPUT_MIB + OUTPUT_MIB + 160
GAP_S = 15  # the longest that nobody may be served: a killed craned's clients try again, a stopped one is found
PEACE_S = 10  # between faults


class Watch(threading.Thread):
    """Keeps the greatest resident size of each replica's craned."""

    def __init__(self, cluster, stop):
        super().__init__(daemon=True, name="watch")
        self.cluster, self.stop, self.most_mib = cluster, stop, {1: 0, 2: 0, 3: 0}

    def run(self):
        while not self.stop.wait(1):
            for replica in self.most_mib:
                pid = self.cluster.craned_pid(replica)
                size = read(f"/proc/{pid}/status").partition("VmRSS:")[2].split() if pid else []
                if size:
                    self.most_mib[replica] = max(self.most_mib[replica], int(size[0]) // 1024)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Hostile clients and faults against three replicas of a real server")
    parser.add_argument("--server", choices=("apache", "redis"), default="redis")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--attacks", nargs="*", help="only these (names of functions in attacks.py)")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--isolation", default="lxc")
    parser.add_argument("--backstop", choices=("on", "off"), default="on")
    parser.add_argument("--keep", action="store_true", help="keep the directories of state and site")
    return parser.parse_args()


class Trial:
    def __init__(self, options, cluster, server):
        self.options, self.cluster, self.server = options, cluster, server
        self.problems = []
        self.stop_attacks, self.stop = threading.Event(), threading.Event()

    def run(self):
        addresses = [self.cluster.address(replica) for replica in (1, 2, 3)]
        if self.options.server == "redis":
            with Redis(addresses[0]) as redis:
                redis("SET", "big", b"b" * MIB)
        clients = self.honest(addresses)
        kinds = attacks.HTTP if self.options.server == "apache" else attacks.REDIS
        kinds = [kind for kind in kinds if not self.options.attacks or kind.__name__ in self.options.attacks]
        attackers = [attacks.Attacker(kind, addresses, self.options.seed, self.stop_attacks) for kind in kinds]
        watch = Watch(self.cluster, self.stop)
        begin = time.monotonic()
        for thread in [watch, *clients, *attackers]:
            thread.start()
        faults = Faults(self.cluster, self.options.seed, print_now)
        try:
            self.trouble(faults, begin)
        finally:
            self.stop_attacks.set()
        for attacker in attackers:
            attacker.join(90)
        faults.await_all()
        end = time.monotonic()
        self.stop.set()
        for client in clients:
            client.join(30)
        self.judge(clients, attackers, faults, watch, begin, end)
        return self.problems

    def honest(self, addresses):
        if self.options.server == "redis":
            return [Writer(number, addresses, self.options.seed, self.stop) for number in range(6)]
        page = (self.server.site / "www" / "10k.bin").read_bytes()
        return [Browser(number, addresses, self.options.seed, self.stop, page) for number in range(6)]

    def trouble(self, faults, begin):
        def enough():
            met = self.options.no_faults or all(faults.counts.values())
            return met and time.monotonic() - begin >= self.options.seconds

        while not enough():
            if self.stop_attacks.wait(min(PEACE_S, self.options.seconds / 6)):
                return
            if not self.options.no_faults:
                faults.one()

    def judge(self, clients, attackers, faults, watch, begin, end):
        took = sorted(second for client in clients for second in client.took_s)
        self.problems += [text for client in clients for text in client.wrong]
        self.problems += [f"no attack of kind {a.name} was made" for a in attackers if not a.rounds]
        self.problems += [f"craned {replica} took {mib} MiB; its bound is {BOUND_MIB}"
                          for replica, mib in watch.most_mib.items() if mib > BOUND_MIB]
        if self.options.server == "redis":
            with Redis(self.cluster.address(self.cluster.primary())) as redis:
                self.problems += [text for client in clients if (text := client.lost(redis))]
        gap_s = longest_gap_s(clients, begin, end)
        if gap_s > GAP_S:
            self.problems.append(f"nobody was served for {gap_s:.1f} s")
        self.same_everywhere()
        self.ended_as_asked(faults)
        print_now("attacks: " + ", ".join(f"{a.name} {a.rounds}" for a in attackers))
        print_now("faults: " + ", ".join(f"{name} {count}" for name, count in faults.counts.items()))
        print_now(f"craned's most MiB: {watch.most_mib}, bound {BOUND_MIB}")
        print_now(f"honest: {len(took)} operations, {sum(c.failures for c in clients)} tries failed, median "
                  f"{quantile_ms(took, 0.5)} ms, p99 {quantile_ms(took, 0.99)} ms, longest {quantile_ms(took, 1)} ms, "
                  f"nobody served for {gap_s:.1f} s")

    def ended_as_asked(self, faults):
        """A server that ends by itself, or is killed because it takes too long to stop, may not have all on its disk."""
        for replica, row in self.cluster.status().items():
            if row["generation"] != faults.ends_asked + 1 or "signal" in (row["last_end"] or ""):
                self.problems.append(f"replica {replica} has server {row['generation']} after {faults.ends_asked} restarts; "
                                     f"the last one's end: {row['last_end']}")

    def same_everywhere(self):
        identical, text = self.cluster.diff(timeout_s=60)
        if not identical:
            self.problems.append(f"the replicas differ: {text[:2000]}")
        for replica, row in self.cluster.status().items():
            found = row["divergence"]
            if row["fenced"] or found["diverged"] or found["schedule_differences"]:
                self.problems.append(f"replica {replica} differs: {row['fenced']} {found}")


def quantile_ms(sorted_s, part):
    return round(sorted_s[min(len(sorted_s) - 1, int(len(sorted_s) * part))] * 1000) if sorted_s else 0


def print_now(text):
    print(text, flush=True)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard))
    Settings.keep = options.keep
    print_now(f"hostile: {options.server}, seed {options.seed}, {options.seconds:.0f} s")
    server = victims.PreforkApache() if options.server == "apache" else victims.Redis()
    begin = time.monotonic()
    try:
        with Cluster(server.command(), server.port, environment=server.environment, name="hostile",
                     options=["--isolation", options.isolation, "--output-log", "hash", "--input-mib", INPUT_MIB,
                              "--output-mib", OUTPUT_MIB, "--backstop", options.backstop]) as cluster:
            problems = Trial(options, cluster, server).run()
            if problems:
                print_now(cluster.report())
    finally:
        if not options.keep:
            server.remove()
    for problem in problems[:20]:
        print_now(f"PROBLEM: {problem}")
    print_now(f"{'FAILED' if problems else 'ok'} after {time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
