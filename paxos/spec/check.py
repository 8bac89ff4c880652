#!/usr/bin/env python3
"""Checks crane.pml with spin: the protocol must hold in every state, and every planted bug must be caught.

One core; searches are exhaustive and exact unless they say bitstate. Prints `N passed, N failed`. A search tells the same
each time: once all of them told what they should, holds.txt has the sum of the model, of this file and of spin's version,
and --changed searches only where it is another.
"""

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().parent / "crane.pml"
RECORD = MODEL.with_name("holds.txt")
MEMORY_MB = 3900

# Names of the checks in crane.pml, by what their assertions mention; the first that fits.
CHECKS = [
    ("x<", "everything can be decided"),
    ("spoke", "views monotone"),
    ("decided_in", "a new leader has all that is decided"),
    (".disk", "acknowledged is durable on a majority"),
    ("rep[s]", "log matching"),
    ("decided", "one value per index"),
]

# (what, VIEWS, VALUES, more definitions): searched to the end without a violation.
HOLDS = [
    ("2 views, 2 values", 2, 2, []),
    ("2 views, 1 value, a lost disk", 2, 1, ["LOST_DISK"]),
]
HOLDS_LONG = [
    ("3 views, 1 value", 3, 1, []),
    ("2 views, 3 values", 2, 3, []),
    ("4 views", 4, 0, ["BITSTATE"]),
    ("3 views, a lost disk", 3, 0, ["LOST_DISK"]),
    ("3 views, 2 values", 3, 2, ["BITSTATE"]),
    ("4 views, 1 value", 4, 1, ["BITSTATE"]),
]

# (definition, VIEWS, VALUES, the checks that notice it, whichever comes first): must be caught. The first is no bug,
# but the goal that every view and every value gets decided in one history: a model that does nothing violates nothing.
CAUGHT = [
    ("GOAL", 3, 1, {"everything can be decided"}),
    ("BUG=ACK_BEFORE_PERSIST", 2, 1, {"acknowledged is durable on a majority"}),
    ("BUG=VOTE_BEFORE_PERSIST", 2, 1, {"views monotone"}),
    ("BUG=FORGET_VIEW", 2, 1, {"views monotone"}),
    ("BUG=COUNT_OWN_VOTE_TWICE", 2, 1, {"acknowledged is durable on a majority", "a new leader has all that is decided"}),
    ("BUG=COUNT_UNSYNCED", 2, 1, {"acknowledged is durable on a majority"}),
    ("BUG=TRUNCATE_COMMITTED", 2, 1, {"acknowledged is durable on a majority"}),
    ("BUG=ELECT_OLDER_LOG", 2, 1, {"acknowledged is durable on a majority", "a new leader has all that is decided"}),
    ("BUG=ELECT_LONGER_LOG", 3, 0, {"a new leader has all that is decided"}),
    ("BUG=COMMIT_OLD_VIEW", 4, 0, {"a new leader has all that is decided"}),
    ("BUG=KEEP_MATCHED", 2, 1, {"one value per index"}),
    ("BUG=RESTART_MATCHED", 2, 1, {"one value per index"}),
    ("BUG=NO_MATCHING", 2, 1, {"log matching"}),
    ("BUG=REJOIN_EARLY LOST_DISK", 2, 1, {"a new leader has all that is decided", "log matching"}),
]


def run(command, folder, timeout=None):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, check=False)


class Search:
    """One run of spin, compiler and verifier. `pan` gets what is about searching, spin what is about the model."""

    def __init__(self, folder, definitions, optimise, breadth_first=False):
        pan = {"BITSTATE"}
        self.folder = folder
        self.model = [f"-D{d}" for d in definitions if d not in pan]
        self.bitstate = "BITSTATE" in definitions
        started = time.monotonic()
        compiler = ["cc", optimise, "-w", "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"]
        compiler += [f"-D{d}" for d in definitions if d in pan] + (["-DBFS"] if breadth_first else [])
        for command in (["spin", *self.model, "-a", str(MODEL)], compiler):
            made = run(command, folder)
            if made.returncode != 0:
                sys.exit(f"{command[0]} failed:\n{made.stdout}")
        # -E: a replica that can do nothing more is no error. 2^33 bits, three hashes; or 2^24 slots that grow.
        size = ["-w33", "-k3"] if self.bitstate else ["-w26" if "VIEWS=2" not in definitions else "-w24"]
        self.output = run(["./pan", "-E", "-m200000", *size], folder).stdout
        self.seconds = time.monotonic() - started

    def number(self, pattern):
        found = re.search(pattern, self.output)
        return float(found.group(1)) if found else 0.0

    @property
    def finished(self):
        wrong = ("max search depth too small", "Search not completed", "out of memory", "pan: reached", "aborting")
        return "errors: 0" in self.output and not any(word in self.output for word in wrong)

    @property
    def violated(self):
        found = re.search(r"assertion violated (.*) \(at depth", self.output)
        if not found:
            return None
        expression = found.group(1).replace(" ", "")
        if re.fullmatch(r"\(\d+<\(\d+\+\d+\)\)", expression):
            expression = "x<"
        return next((name for word, name in CHECKS if word in expression), expression)

    def trail(self):
        shown = run(["spin", *self.model, "-t", "-T", str(MODEL)], self.folder).stdout
        return "\n".join("    " + line for line in shown.splitlines() if re.match(r"\d: ", line))

    def figures(self):
        states = int(self.number(r"([0-9.e+]+) states, stored"))
        gigabytes = self.number(r"([0-9.]+)\s+total actual memory") / 1000
        text = f"{states:,} states, {self.seconds:.0f} s, {gigabytes:.1f} GB"
        if self.bitstate:
            factor = self.number(r"hash factor: ([0-9.e+]+)")
            text += f", bitstate (hash factor {factor:.0f})"
        return text


def report(good, name, text):
    print(f"{'ok  ' if good else 'FAIL'} {name}: {text}", flush=True)
    return good


def check_holds(what, views, values, more, options):
    with tempfile.TemporaryDirectory(prefix="crane-spec-") as folder:
        search = Search(folder, [f"VIEWS={views}", f"VALUES={values}", *more], "-O3")
        if search.finished:
            return report(True, what, search.figures())
        report(False, what, f"violated: {search.violated}" if search.violated else search.output)
        if search.violated or options.trace:
            print(search.trail())
        return False


def check_caught(name, views, values, expected, options):
    with tempfile.TemporaryDirectory(prefix="crane-spec-") as folder:
        search = Search(folder, [f"VIEWS={views}", f"VALUES={values}", *name.split()], "-O1", options.trace)
        good = search.violated in expected or (options.trace and search.violated is not None)
        report(good, name, f"caught: {search.violated}; {search.figures()}" if search.violated else
               "not caught\n" + search.output)
        if options.trace:
            print(search.trail())
        return good


def ground(version):
    """A sum of all that the searches depend on."""
    parts = [version.strip().encode(), MODEL.read_bytes(), pathlib.Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="larger bounds besides, some of them in bitstate mode")
    parser.add_argument("--trace", action="store_true", help="print the shortest history of each planted bug")
    parser.add_argument("--changed", action="store_true", help="nothing where all is as it was when it last held")
    parser.add_argument("names", nargs="*", help="only checks whose name contains one of these")
    options = parser.parse_args()
    try:
        version = subprocess.run(["spin", "-V"], stdout=subprocess.PIPE, check=True, text=True).stdout
    except FileNotFoundError:
        sys.exit("check.py: spin is not installed: make deps TEST=1")
    sum_now = ground(version)
    if options.changed and RECORD.exists() and RECORD.read_text().split() == [sum_now]:
        print("spec: as it was when every search told what it should; `make spec` searches again")
        return 0
    chosen = [(check_holds, case) for case in HOLDS + (HOLDS_LONG if options.long else [])]
    chosen += [(check_caught, case) for case in CAUGHT]
    if options.names:
        chosen = [(check, case) for check, case in chosen if any(name in case[0] for name in options.names)]
    results = [check(*case, options) for check, case in chosen]
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    if not failed and not options.names and not options.trace:
        RECORD.write_text(sum_now + "\n")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
