#!/usr/bin/python3
"""A cluster that has served a million requests: its log stays short, and a replica that dies is back as soon as at first.

usage: million.py [--requests N] [--log-mib N]

redis-benchmark sends them to three replicas of Redis, whose log is cut behind checkpoints. Before, halfway and after it the
craned of each backup is killed once, and the time is taken until it serves and has caught up; the sizes of log, output log and
checkpoints of each replica are told. Exits with 0 only if each replica came back from a checkpoint within 3 s, sizes stayed
bounded and all replicas are the same.
"""

import argparse
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from support.cluster import Cluster  # noqa: E402
from support.procs import wait_until  # noqa: E402
from support.redisclient import Redis as RedisClient  # noqa: E402
from support.servers import Redis  # noqa: E402

MOST_BACK_S = 3
FROM_CHECKPOINT = "as it ran there"  # craned.log
# The primary fetches a checkpoint when its log is three times as long as what asks for one, and cuts whole files of Berkeley
# DB, of 32 MiB each: one is being written, one is in use only in part.
LOG_SHARE, LOG_REST_MIB = 3, 64


def mib(path):
    """What it takes of the disk: Berkeley DB's log files are as long as they may become from their beginning."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_blocks * 512 for file in files) / (1 << 20)


class Million:
    def __init__(self, cluster, options):
        self.cluster, self.options, self.problems = cluster, options, []

    def load(self, requests):
        address = self.cluster.address(self.cluster.primary())
        words = ["redis-benchmark", "-h", address[0], "-p", address[1], "-t", "set", "-n", requests, "-c", 50, "-r",
                 100_000, "-q"]
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0 or "rror" in done.stdout:
            self.problems.append(f"redis-benchmark: {done.stdout[-500:]}")

    def hold_checkpoint(self, replica):
        for _ in range(6):
            before = self.cluster.status()[replica]["checkpoint"]["index"]
            done = self.cluster.crane("checkpoint", "take", timeout_s=120)
            if done.returncode != 0:
                self.problems.append(done.stdout)
            if self.cluster.status()[replica]["checkpoint"]["index"] > before:
                return
        self.problems.append(f"replica {replica} never got a checkpoint")

    def back_s(self):
        """The longer time of the two backups until one serves and has caught up. Each is killed once only: who dies again at
        once is kept down for longer on purpose."""
        times = []
        primary = self.cluster.primary()
        for replica in (n for n in (1, 2, 3) if n != primary):
            self.hold_checkpoint(replica)
            log = self.cluster.state / f"r{replica}" / "craned.log"
            before, begin = log.read_text().count(FROM_CHECKPOINT), time.monotonic()
            self.cluster.kill_craned(replica)

            def back(replica=replica, log=log, before=before):
                row = self.cluster.status().get(replica, {})
                return row.get("server") == "listening" and row["lag"] < 50 and log.read_text().count(FROM_CHECKPOINT) > before

            wait_until(back, 60, f"replica {replica} is back", poll_s=0.05)
            times.append(time.monotonic() - begin)
        return max(times)

    def sizes(self):
        worst = {}
        for folder in (self.cluster.state / f"r{n}" for n in (1, 2, 3)):
            for name in ("db", "output.log", "checkpoints"):
                if (folder / name).exists():
                    worst[name] = max(worst.get(name, 0), mib(folder / name))
        return worst

    def tell(self, what):
        back_s, sizes = self.back_s(), self.sizes()
        print(f"{what}: back after {back_s:.2f} s; " + ", ".join(f"{name} {size:.0f} MiB" for name, size in sizes.items()),
              flush=True)
        most = LOG_SHARE * self.options.log_mib + LOG_REST_MIB
        if back_s > MOST_BACK_S:
            self.problems.append(f"a replica took {back_s:.2f} s to be back; {MOST_BACK_S} s were allowed")
        if sizes["db"] > most:
            self.problems.append(f"the log takes {sizes['db']:.0f} MiB; it was to stay below {most}")
        return back_s

    def run(self):
        first = self.tell("at first")
        self.load(self.options.requests // 2)
        self.tell("halfway")
        self.load(self.options.requests - self.options.requests // 2)
        last = self.tell("after all of them")
        with RedisClient(self.cluster.address(self.cluster.primary())) as redis:
            served = int(redis("INFO", "stats").split(b"total_commands_processed:")[1].split(b"\r")[0])
        row = self.cluster.status()[self.cluster.primary()]
        print(f"commands that the server counts: {served}; log entries {row['decided']}, the oldest kept {row['first_log_index']}; "
              f"last against first {last / first:.2f}")
        identical, text = self.cluster.diff(timeout_s=60)
        if not identical:
            self.problems.append(f"the replicas differ: {text[:1000]}")


def main():
    parser = argparse.ArgumentParser(description="A cluster that has served a million requests")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--log-mib", type=int, default=16, help="log that asks for a checkpoint (default 16)")
    options = parser.parse_args()
    server = Redis()
    try:
        with Cluster(server.command(), server.port, name="million", options=["--checkpoint-log-mib", options.log_mib]) as cluster:
            million = Million(cluster, options)
            million.run()
            if million.problems:
                print(cluster.report())
    finally:
        server.remove()
    for problem in million.problems[:20]:
        print(f"PROBLEM: {problem}")
    print("FAILED" if million.problems else "ok")
    return 1 if million.problems else 0


if __name__ == "__main__":
    sys.exit(main())
