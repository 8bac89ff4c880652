#!/usr/bin/python3
"""Deaths at every step of checkpoints, restarts and moves, under load; every replica must come back by itself.

usage: kills.py [--rounds N] [--seed N] [--only POINT ...] [--keep]

Without --rounds: until every fail point was met once, and as many kills at moments of chance. Exits with 0 only if all that
README.md says held.
"""

import argparse
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from support.cluster import Cluster, remove_tree  # noqa: E402
from support.honest import Writer  # noqa: E402
from support.paths import CRANE_TOOL, ROOT, Settings, free_port, work_dir  # noqa: E402
from support.procs import wait_until  # noqa: E402
from support.redisclient import Redis  # noqa: E402
from support.tree import make_tree  # noqa: E402

BACK_S = 180
MET_S = 30  # what a work does after its command has returned (a checkpoint of another backup, an image that is fetched)
NEAR = 500  # entries by which a replica may lag while there is load
CONFIGURATION = "bind 0.0.0.0\nport {port}\nprotected-mode no\nsave \"\"\nappendonly yes\ndir /var/lib/served\nmaxclients {most}\n"
POINT = re.compile(r'fail_point\("([a-z]+\.[a-z]+)"\)')
# Which works come by the points whose names begin so.
WORKS = {"image": ("take",), "checkpoint": ("take", "restart"), "restart": ("restart", "move"), "launch": ("restart", "move", "lose"),
         "restore": ("lose", "kill"), "fetch": ("lose",), "ship": ("lose",)}


def fail_points():
    names = set()
    for folder in ("checkpoint", "proxy"):
        for path in (ROOT / folder).glob("*.cpp"):
            names.update(POINT.findall(path.read_text(encoding="utf-8")))
    return sorted(name for name in names if name.split(".")[0] in WORKS)


def say(text):
    print(text, flush=True)


class Images:
    """Two base images in a store."""

    def __init__(self, folder, port):
        self.files = []
        for name, most in (("one", 1111), ("two", 2222)):
            tree = make_tree(folder / f"{name}.tree", ["/usr/bin/redis-server"],
                             [("/etc/redis.conf", CONFIGURATION.format(port=port, most=most))])
            file = folder / f"{name}.img"
            subprocess.run([CRANE_TOOL, "image", "make", file, "--from", tree], check=True, stdout=subprocess.DEVNULL)
            self.files.append(file)
        self.store = folder / "store"
        self.names = [self.add(file) for file in self.files]

    def add(self, file):
        return subprocess.run([CRANE_TOOL, "image", "add", file, "--store", self.store], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()


class Trial:
    def __init__(self, options, cluster, images):
        self.options, self.cluster, self.images = options, cluster, images
        self.random = random.Random(f"kills {options.seed}")
        self.points = [name for name in fail_points() if not options.only or name in options.only]
        self.met = dict.fromkeys(self.points, 0)
        self.problems, self.stop = [], threading.Event()

    def run(self):
        clients = [Writer(number, [self.cluster.address(n) for n in (1, 2, 3)], self.options.seed, self.stop) for number in range(4)]
        for client in clients:
            client.start()
        try:
            self.rounds()
        finally:
            self.stop.set()
            for client in clients:
                client.join(30)
        self.problems += [text for client in clients for text in client.wrong]
        with Redis(self.cluster.address(self.cluster.primary())) as redis:
            self.problems += [text for client in clients if (text := client.lost(redis))]
        say(f"honest: {sum(len(c.took_s) for c in clients)} operations, {sum(c.failures for c in clients)} tries failed")
        if not self.options.rounds:
            self.problems += [f"fail point {name} was never met" for name, count in self.met.items() if not count]

    def rounds(self):
        plan = self.plan()
        for number, (what, work) in enumerate(plan, 1):
            begin = time.monotonic()
            met = self.one(what, work)
            self.await_all()
            self.check_equal()
            say(f"{number}/{len(plan)} {what} in {work}{'' if met else ', not met'}; all back after {time.monotonic() - begin:.1f} s")
            if self.problems:
                return

    def plan(self):
        """Every point, and as often a kill at a moment of chance, in an order of chance."""
        works = ("take", "restart", "move", "lose", "backup")
        plan = [(name, self.random.choice(WORKS[name.split(".")[0]])) for name in self.points]
        if not self.options.only:
            plan += [(self.random.choice(("craned", "server", "replica")), self.random.choice(works)) for _ in self.points]
            # Two of three that lose all they had are no majority any more, and nobody could say what was decided.
            plan = [(what, "take" if (what, work) == ("replica", "lose") else work) for what, work in plan]
        self.random.shuffle(plan)
        if self.options.rounds:
            plan = [plan[i % len(plan)] for i in range(self.options.rounds)]
        return plan

    # --- one round

    def one(self, what, work):
        if what not in self.met:
            killer = threading.Timer(self.random.uniform(0, 1.5), self.kill, (what, self.random.choice((1, 2, 3))))
            killer.start()
            self.do(work)
            killer.join()
            return True
        # Whoever comes by first.
        victims = [n for n in (1, 2, 3) if work != "lose" or n != self.lost_replica()]
        if what.startswith("fetch") or what.startswith("re") or what.startswith("launch"):
            victims = [1, 2, 3]
        self.do(work, lambda: self.arm(what, victims))
        met = self.disarm(what)
        self.met[what] += met
        return met

    def lost_replica(self):
        return next(n for n in (3, 2, 1) if n != self.cluster.primary())

    def arm(self, what, replicas):
        for replica in replicas:
            folder = self.cluster.state / f"r{replica}"
            wait_until(folder.is_dir, BACK_S, "the replica has a directory")
            (folder / "fail-at").write_text(what, encoding="ascii")

    def disarm(self, what):
        """Waits until it is met somewhere; whether it was."""
        files = [self.cluster.state / f"r{n}" / "fail-at" for n in (1, 2, 3)]
        end, armed = time.monotonic() + MET_S, [file for file in files if file.exists()]
        met = len(armed) < len(files)
        while not met and time.monotonic() < end:
            time.sleep(0.1)
            met = any(not file.exists() for file in armed)
        for file in files:
            file.unlink(missing_ok=True)
        return int(met)

    def do(self, work, arm=lambda: None):
        """The commands may fail: who does the work is killed in it."""
        if work == "lose":
            replica = self.lost_replica()
            self.cluster.crane("checkpoint", "take", timeout_s=BACK_S)
            remove_tree(self.cluster.state / f"r{replica}")
            arm()
            return
        if work == "kill":
            self.cluster.crane("checkpoint", "take", timeout_s=BACK_S)
            arm()
            self.kill("craned", self.lost_replica())
            return
        arm()
        if work == "take":
            self.cluster.crane("checkpoint", "take", timeout_s=BACK_S)
        elif work == "restart":
            self.cluster.crane("restart", timeout_s=BACK_S)
        elif work == "move":
            self.move()
        elif work == "backup":
            file = self.cluster.dir / "backup.tar"
            file.unlink(missing_ok=True)
            self.cluster.crane("backup", file, timeout_s=BACK_S)

    def move(self):
        now = self.cluster.status()[self.cluster.primary()]["base_image"]
        other = next(name for name in self.images.names if name != now)
        self.cluster.crane("restart", "--image", other, timeout_s=BACK_S)

    def kill(self, what, replica):
        if what == "craned":
            self.cluster.kill_craned(replica)
        elif what == "server":
            self.cluster.kill_server(replica)
        else:
            remove_tree(self.cluster.state / f"r{replica}")

    # --- what has to hold after it

    def await_all(self):
        def back():
            rows = self.cluster.status()
            if len(rows) < 3 or any(row.get("server") != "listening" for row in rows.values()):
                return False
            # One that rejoins does not vote: should another lose its state meanwhile, there were no majority.
            voting = [all(peer["connected"] and not peer["rejoining"] for peer in row.get("peers", [])) for row in rows.values()
                      if row["role"] == "primary"]
            if voting != [True]:
                return False
            most = max(row["decided"] for row in rows.values())
            return all(row["admitted"] > most - NEAR for row in rows.values())

        wait_until(back, BACK_S, "every replica is back", poll_s=0.2)

    def check_equal(self):
        identical, text = self.cluster.diff(timeout_s=60)
        if not identical:
            self.problems.append(f"the replicas differ: {text[:2000]}")
        rows = self.cluster.status()
        for replica, row in rows.items():
            found = row["divergence"]
            if row["fenced"] or found["diverged"] or found["schedule_differences"]:
                self.problems.append(f"replica {replica} differs: {row['fenced']} {found}")
        if len({row["base_image"] for row in rows.values()}) != 1:
            self.problems.append(f"base images differ: {[row['base_image'] for row in rows.values()]}")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Deaths at every step of checkpoints, restarts and moves")
    parser.add_argument("--rounds", type=int, default=0, help="(default: each fail point and as many kills by chance)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--only", nargs="*", choices=fail_points(), help="these fail points alone")
    parser.add_argument("--keep", action="store_true", help="keep the directories of state and site")
    return parser.parse_args()


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Settings.keep = options.keep
    say(f"kills: seed {options.seed}, fail points: {', '.join(fail_points())}")
    folder, port = work_dir("kills"), free_port()
    begin = time.monotonic()
    try:
        images = Images(folder, port)
        with Cluster(["redis-server", "/etc/redis.conf"], port, environment={"CRANE_FAIL_POINTS": "1"}, name="kills",
                     options=["--image", images.files[0], "--image-store", images.store, "--checkpoint-log-mib", 0]) as cluster:
            trial = Trial(options, cluster, images)
            trial.run()
            if trial.problems:
                say(cluster.report())
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    for problem in trial.problems[:20]:
        say(f"PROBLEM: {problem}")
    say(f"{'FAILED' if trial.problems else 'ok'} after {time.monotonic() - begin:.0f} s, seed {options.seed}")
    return 1 if trial.problems else 0


if __name__ == "__main__":
    sys.exit(main())
