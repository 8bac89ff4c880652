"""`crane verify`: runs a program several times at once, each run disturbed in its own way, and compares them.

The runs are the replicas of a cluster that lives as long as the command: they have one log, and so the same input and the
same time at the same places. What still differs is the program's own, or Crane's.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import secrets
import shutil
import subprocess
import tempfile
import time

from . import LaunchError
from .layout import HERE, Layout
from .perturbation import Perturbation
from .replica import ENDED_STATES, ask, tail
from .traces import Comparison, Symbols, read_names, show, without_pids
from .words import put

EPILOG = """\
0: all runs are the same. 1: they differ: the first operation of the schedule at which two runs part is printed. 2: the program
could not be run.

examples:
  crane verify -- /usr/bin/sort --parallel=4 --input-is-given
  crane verify --input words.txt -- /usr/bin/sort --parallel=4
  crane verify --client 'redis-benchmark -h $HOST -p $PORT -n 1000 -q' -- redis-server --port 7000 --bind 0.0.0.0"""
STEP_S = 0.05
# Somebody who waits for the log so long, where others have ended, waits for what nobody will decide any more.
LEFT_S = 3
READY_STATES = ("listening",)
MOST_RUNS = 7


def parse(arguments):
    parser = argparse.ArgumentParser(prog="crane verify", usage="crane verify [options] -- command [argument ...]",
                                     description="Run a program several times under disturbance and compare the runs.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="2 to 7 (default 3)")
    parser.add_argument("--input", metavar="FILE", help="what the program reads from its standard input")
    parser.add_argument("--client", metavar="COMMAND",
                        help="for a server: run by a shell when it listens, with HOST and PORT in its environment; the runs are "
                             "compared when it has ended")
    parser.add_argument("--schedule", choices=("serial", "parallel"), default="serial", help="(default serial)")
    parser.add_argument("--isolation", choices=("lxc", "none"), help="(default lxc for root, else none)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="set a variable of the program")
    parser.add_argument("--seed", type=int, metavar="N", help="of the disturbances (default: another one each time)")
    parser.add_argument("--timeout-s", type=float, default=600, metavar="N", help="give up then (default 600)")
    parser.add_argument("--state-dir", metavar="DIR", help="where the runs are kept; they are removed if it is not given")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.command[:1] == ["--"]:
        del chosen.command[0]
    if not chosen.command:
        parser.error("no command: crane verify [options] -- command [argument ...]")
    if not 2 <= chosen.runs <= MOST_RUNS:
        parser.error(f"--runs must be 2 to {MOST_RUNS}, not {chosen.runs}")
    if chosen.input and not os.access(chosen.input, os.R_OK):
        parser.error(f"--input {chosen.input}: cannot be read")
    if chosen.isolation is None:
        chosen.isolation = "lxc" if os.geteuid() == 0 else "none"
    if chosen.seed is None:
        chosen.seed = random.randrange(1, 1 << 30)
    return chosen


def verify(arguments):
    chosen = parse(arguments)
    kept = chosen.state_dir is not None
    try:
        folder = pathlib.Path(chosen.state_dir).resolve() if kept else _fresh_folder()
        try:
            found = Runs(chosen, folder).verify()
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
    except (LaunchError, OSError) as error:
        put(json.dumps({"error": str(error)}) + "\n" if chosen.json else f"crane: {error}\n", 1 if chosen.json else 2)
        return 2
    put(json.dumps(found) + "\n" if chosen.json else "".join(f"{line}\n" for line in _lines(found)))
    return 0 if found["same"] else 1


def _fresh_folder():
    base = pathlib.Path("/var/lib/crane") if os.geteuid() == 0 else pathlib.Path.home() / ".local/state/crane"
    base.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(tempfile.mkdtemp(prefix="verify-", dir=base))


def _lines(found):
    if found["same"]:
        yield (f"the same: {found['runs']} runs, {found['operations']} operations, {found['output_bytes']} bytes of output; "
               f"{found['end']}")
        return
    yield f"DIFFERENT: {found['runs']} runs (--seed {found['seed']})"
    yield from (f"  {line}" for line in found["differences"])


class Runs:
    """The runs of one command; verify() once."""

    def __init__(self, chosen, folder):
        self.chosen, self.folder = chosen, folder
        self.replicas = chosen.runs if chosen.runs % 2 else chosen.runs + 1  # one of them a witness
        self.numbers = range(1, chosen.runs + 1)
        self.process = None
        self.rows = {}
        self.standing = None  # where the runs that others have left behind stand, and since when
        self.said = folder / "crane-run.out"
        self.deadline = time.monotonic() + chosen.timeout_s

    def verify(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start()
        differences = []
        try:
            with Perturbation(self._craneds, self.chosen.seed):
                listens = self._await(lambda: self._ended() or self._left_behind() or self._all(READY_STATES))
                if self._all(READY_STATES) and listens:
                    self._use()
            if self.process.poll() is None:
                differences += self._compare_while_running()
                self._look()
        finally:
            self._stop()
        return self._found(differences)

    # --- running

    def _command(self):
        words = list(self.chosen.command)
        if not self.chosen.input:
            return words
        # Where every run sees it: a copy beside what the runs write.
        return ["/bin/sh", "-c", 'exec "$@" <"$0"', str(self._shared_input()), *words]

    def _shared_input(self):
        given = pathlib.Path(self.chosen.input).resolve()
        hidden = [pathlib.Path(path) for path in ("/tmp", "/run", "/dev/shm", "/var/lib/crane", "/proc", "/sys")]
        if self.chosen.isolation == "lxc" and any(path in given.parents for path in hidden):
            raise LaunchError(f"--input {given}: not visible in a container; put it elsewhere than in /tmp, /run or /dev/shm")
        return given

    def _start(self):
        base = secrets.randbelow(200) + 20
        addresses = ",".join(f"127.{base}.{self.chosen.seed % 250}.{n}" for n in range(1, self.replicas + 1))
        options = ["--state-dir", str(self.folder / "state"), "--fresh", "--replicas", str(self.replicas), "--witnesses",
                   str(self.replicas - self.chosen.runs), "--isolation", self.chosen.isolation, "--schedule",
                   self.chosen.schedule, "--restart", "no", "--no-repair", "--client-address", addresses, "--timeout-s",
                   str(self.chosen.timeout_s), "--disturb", str(self.chosen.seed), "--env", "CRANE_TRACE=trace"]
        for entry in self.chosen.env:
            options += ["--env", entry]
        with open(self.said, "wb") as output:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                [str(HERE / "crane-run"), *options, "--", *self._command()], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT)

    def _replica(self, number):
        return self.folder / "state" / f"r{number}"

    def _craneds(self):
        return [row["pid"] for row in list(self.rows.values()) if row.get("pid")]

    def _look(self):
        for number in self.numbers:
            row = ask(self._replica(number), "status")
            if row:
                self.rows[number] = row

    def _all(self, states):
        return len(self.rows) == self.chosen.runs and all(row.get("server") in states for row in self.rows.values())

    def _ended(self):
        return self.process.poll() is not None or self._all(ENDED_STATES)

    def _left_behind(self):
        """Some runs have ended, and all others stand where they have had the whole log."""
        going = {n: row for n, row in self.rows.items() if row.get("server") not in ENDED_STATES}
        stand = 0 < len(going) < self.chosen.runs == len(self.rows) and all(
            row.get("starved") and not row.get("lag") for row in going.values())
        places = {n: row.get("clock") for n, row in going.items()} if stand else None
        if places is None or self.standing is None or self.standing[0] != places:
            self.standing = (places, time.monotonic()) if stand else None
        return stand and time.monotonic() - self.standing[1] > LEFT_S

    def _await(self, condition):
        """False when the time was over before."""
        while time.monotonic() < self.deadline:
            self._look()
            if condition():
                return True
            time.sleep(STEP_S)
        return False

    def _use(self):
        """The server listens: the client does its work."""
        if not self.chosen.client:
            put("crane: the program listens, and there is no --client: compared as far as it has come\n", 2)
            return
        self._await(lambda: self.process.poll() is not None or "ready" in self.said.read_text(errors="replace"))
        listen = next(iter(self.rows[1].get("listen", [])), {})
        host, _, port = str(listen.get("client", "")).rpartition(":")
        client = subprocess.Popen(  # pylint: disable=consider-using-with
            ["/bin/sh", "-c", self.chosen.client], env=os.environ | {"HOST": host, "PORT": port})
        done = self._await(lambda: client.poll() is not None or self._ended() or self._left_behind())
        if client.poll() is None:
            client.kill()
            client.wait()
            if not done:
                raise LaunchError(f"--client has not ended in {self.chosen.timeout_s:g} s")
        elif client.returncode != 0:
            put(f"crane: warning: --client ended with {client.returncode}\n", 2)

    def _stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # --- comparing

    def _tool(self, *words):
        done = subprocess.run([str(Layout().bin / "crane"), *map(str, words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout.strip().splitlines()

    def _compare_while_running(self):
        """Only then is it known how far each log has to go."""
        if self.chosen.runs == 1 or self._all(ENDED_STATES):
            return []
        return self._compare_outputs("--state-dir", self.folder / "state")

    def _compare_outputs(self, *logs):
        code, lines = self._tool("diff", *logs)
        records = [line for line in lines if re.match(r" {8}#\d+ ", line)]
        # Without containers pids are the host's; how a run ended is compared apart from this.
        if code != 1 or (self.chosen.isolation == "none" and records and all(" exit clock " in line for line in records)):
            return []
        return [f"output: {line}" for line in lines]

    def _end(self, number):
        """How the program ended in a run, as craned says it."""
        row = self.rows.get(number, {})
        if row.get("server") in ENDED_STATES:
            return row.get("message") or row["server"]
        text = self.said.read_text(errors="replace")
        told = re.search(rf"replica {number}: (?:exited|refused)[^:]*: (.*)", text) or re.search(
            r"the server has ended on all replicas: (.*)", text)
        return told[1] if told else "it was stopped"

    def _found(self, differences):
        started = [n for n in self.numbers if self._trace(n).exists() and self._trace(n).stat().st_size]
        if len(started) < self.chosen.runs:
            raise LaunchError("the program could not be run: " + " / ".join(tail(self.said, 12)))
        ends = {n: self._end(n) for n in self.numbers}
        if len(set(ends.values())) > 1:
            differences += [f"run {n} ended otherwise: {end}" for n, end in ends.items()]
        for name in ("stdout", "stderr"):
            differences += self._compare_files(name)
        if not differences and ends[1] != "it was stopped":
            differences += self._compare_outputs(*(self._replica(n) for n in self.numbers))
        operations, parted = self._compare_schedules(ends[1] == "it was stopped")
        return {"same": not differences and not parted, "runs": self.chosen.runs, "operations": operations,
                "output_bytes": self._replica(1).joinpath("stdout").stat().st_size, "end": ends[1],
                "seed": self.chosen.seed, "differences": differences + parted}

    def _compare_files(self, name):
        texts = {n: self._replica(n).joinpath(name).read_bytes() for n in self.numbers}
        for n in self.numbers[1:]:
            if texts[n] == texts[1]:
                continue
            both = itertools.zip_longest(texts[1].splitlines(), texts[n].splitlines(), fillvalue=b"(nothing)")
            line, (a, b) = next((i, pair) for i, pair in enumerate(both, 1) if pair[0] != pair[1])
            return [f"{name}: runs 1 and {n} differ in line {line}:", f"  1: {a.decode(errors='replace')}",
                    f"  {n}: {b.decode(errors='replace')}"]
        return []

    def _trace(self, number):
        """Kept when the replica's craned has ended."""
        return self._replica(number) / "trace"

    def _compare_schedules(self, cut_short):
        """Operations that all runs have made alike, and what is to be said of the first that differs."""
        names = read_names()
        seen = without_pids(names[1]) if self.chosen.isolation == "none" else lambda record: record
        symbols = {n: Symbols(f"{self._trace(n)}.maps") for n in self.numbers}
        least = None
        for n in self.numbers[1:]:
            compared = Comparison(self._trace(1), self._trace(n), seen=seen)
            least = compared.count if least is None else min(least, compared.count)
            if compared.equal() or (compared.one_ended() and cut_short):
                continue
            lines = [f"schedule: runs 1 and {n} part at operation {compared.count + 1}; before it:"]
            lines += [f"     {show(record, *names, symbols[1])}" for record in compared.before]
            return compared.count, [*lines, f"  1: {show(compared.first, *names, symbols[1])}",
                                    f"  {n}: {show(compared.second, *names, symbols[n])}"]
        return least, []
