#!/usr/bin/env python3
"""Runs the end-to-end tests (and, with --unit, the unit tests of the C++ parts and of the scripts first).

usage: run.py [--quick] [--native] [--unit BINARY [--unit-halves]] [--sim BINARY] [--no-e2e] [--lane N] [--seed N] [--list]
              [--in-lanes] [NAME …]

A NAME selects every test whose name (file.Class.method) contains it. Progress is printed per test; the last line
is `N passed, N failed, N skipped`. The exit status is 0 only if something passed and nothing failed.
"""

import argparse
import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support.lanes import run_lanes  # noqa: E402
from support.leftovers import Leftovers  # noqa: E402
from support.paths import Settings, use_ports_of  # noqa: E402


UNIT_LIMIT_S = 1200
LANES = 4  # CraneTest.lane
UNIT_HALVES = [["~[.]paxos*"], ["~[.]~paxos*"]]  # by name, and without those that are run when they are named


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.failures = []

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class TestTimeout(BaseException):
    """Not an Exception: a test that waits in `except Exception` must still end."""


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def discover(folder):
    # A loader of its own per folder: one loader remembers the first folder as the top of everything.
    return flatten(unittest.TestLoader().discover(str(folder), "test_*.py", str(folder))) if folder.is_dir() else []


def short_name(test):
    return test.id().removeprefix("test_")


class Progress(unittest.TestResult):
    """Counts one test and keeps what to print about it."""

    outcome, detail = "ok", ""

    def _end(self, outcome, detail):
        if self.outcome != "FAILED":
            self.outcome, self.detail = outcome, detail

    def addSkip(self, test, reason):
        self._end("skipped", reason)

    def addError(self, test, error):
        self._end("FAILED", "".join(traceback.format_exception(*error)))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error:
            self._end("FAILED", f"{subtest}\n" + "".join(traceback.format_exception(*error)))

    def addExpectedFailure(self, test, error):
        self._end("FAILED", "expected failures are not used here")

    def addUnexpectedSuccess(self, test):
        self._end("FAILED", "expected failures are not used here")


def run_one(test, place, total, tally, leftovers):
    print(f"[{place}/{total}] {short_name(test)} …", flush=True)
    limit_s = getattr(getattr(test, test._testMethodName, None), "timeout_s", getattr(test, "timeout_s", 180))

    def expired(_number, _frame):
        signal.alarm(60)  # for cleaning up
        raise TestTimeout(f"still running after {limit_s} s")

    signal.signal(signal.SIGALRM, expired)
    begin, result = time.monotonic(), Progress()
    signal.alarm(limit_s)
    try:
        test(result)
    except TestTimeout as timeout:
        result.outcome, result.detail = "FAILED", "".join(traceback.format_exception(timeout))
    finally:
        signal.alarm(0)
    if left := leftovers.take():
        result.outcome, result.detail = "FAILED", "\n".join([result.detail, "it left behind:", *left])
    print(f"[{place}/{total}] {short_name(test)} {result.outcome} ({time.monotonic() - begin:.1f} s)", flush=True)
    if result.detail:
        print("      " + result.detail.rstrip().replace("\n", "\n      "), flush=True)
    if result.outcome == "ok":
        tally.passed += 1
    elif result.outcome == "skipped":
        tally.skipped += 1
    else:
        tally.failed += 1
        tally.failures.append(f"{short_name(test)}: {in_short(result.detail)}")


def in_short(detail, lines=12):
    """What went wrong, for the summary: the exception's own words, without frames before and reports after them."""
    rows = detail.strip().splitlines() or ["?"]
    said = next((place for place, row in enumerate(rows) if row.startswith("--- ")), len(rows))
    begin = max((place for place, row in enumerate(rows[:said]) if row.startswith("Traceback ")), default=None)
    if begin is None:
        return rows[-1]
    words = next((place for place in range(begin + 1, said) if not rows[place].startswith(" ")), said - 1)
    return "\n  ".join(row for row in rows[words:min(said, words + lines)] if row.strip())


def run_unit(binary, choices, tally):
    """Runs the Catch2 binary, which prints a line per test case, once for each choice of tests, all at once."""
    with contextlib.ExitStack() as kept:
        outputs = [kept.enter_context(tempfile.TemporaryFile()) for _ in choices]  # not pipes, which would fill up
        running = [kept.enter_context(subprocess.Popen([binary, "-d", "yes", *choice], stdin=subprocess.DEVNULL,
                                                       stdout=output, stderr=subprocess.STDOUT))
                   for choice, output in zip(choices, outputs)]
        end = time.monotonic() + UNIT_LIMIT_S
        for one, choice, output in zip(running, choices, outputs):
            try:
                one.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
            output.seek(0)
            print(f"unit tests: {' '.join([binary, *choice])}", flush=True)
            count_cases(binary, output.read().decode(errors="replace"), one.returncode, tally)


def count_cases(binary, text, status, tally):
    """Shows and counts what Catch2 has printed."""
    print(text, flush=True)
    # The last: a child of a test may have counted, too.
    found = re.findall(r"assertions? in (\d+) test cases?\)|^test cases:\s*\d+\s*\|(.*)", text, re.MULTILINE)
    all_passed, each = found[-1] if found else ("", "")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", each)}
    tally.passed += int(all_passed or counts.get("passed", 0))
    tally.failed += counts.get("failed", 0)
    if status != 0:
        tally.failures.append("unit")
        if not counts.get("failed"):  # it crashed before it could count
            tally.failed += 1
            print(f"unit tests: {binary} ended with {status}", flush=True)


def run_sim(binary, quick, tally):
    """Runs the simulator of the consensus part: planted bugs, then many lives. Each prints how many of its parts held."""
    known = str(pathlib.Path(__file__).resolve().parents[1] / "sim" / "seeds.txt")
    for words in (["--canaries"], ["--known", known] + (["--seeds", "200"] if quick else [])):
        print(f"simulator: {binary} {' '.join(words)}", flush=True)
        counted = None
        with subprocess.Popen([binary, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                print(text, flush=True)
                counted = re.fullmatch(r"(\d+) passed, (\d+) failed", text) or counted
        passed, failed = (int(number) for number in counted.groups()) if counted else (0, 1)
        if process.returncode != 0 and failed == 0:
            failed = 1
        tally.passed += passed
        tally.failed += failed
        if failed:
            tally.failures.append("sim " + words[0])


def let_programs_have_signals():
    """Under nohup, or in a shell's background, some are ignored: so would be those of each program that is tried, which would
    do other things then. What is handled here is what it is by default there."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def words_for_lanes(options):
    return [*(f"--{word}" for word in ("quick", "native", "keep") if getattr(options, word)), "--seed", str(options.seed)]


def main():
    parser = argparse.ArgumentParser(description="Crane's end-to-end tests")
    parser.add_argument("names", nargs="*", help="run only tests whose name contains one of these")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller loads")
    parser.add_argument("--native", action="store_true", help="run the servers bare, to try the tests themselves")
    parser.add_argument("--unit", metavar="BINARY", help="run these unit tests first")
    parser.add_argument("--unit-halves", action="store_true", help="run those in two processes at once")
    parser.add_argument("--sim", metavar="BINARY", help="run this simulator before the end-to-end tests")
    parser.add_argument("--no-e2e", action="store_true", help="stop before the end-to-end tests")
    parser.add_argument("--lane", type=int, choices=range(LANES), help="only tests of that lane (support/case.py)")
    parser.add_argument("--in-lanes", action="store_true", help="end-to-end tests of three lanes at once, where no NAME is given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the work directories")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    Settings.quick, Settings.native = options.quick, options.native
    Settings.seed, Settings.keep = options.seed, options.keep

    let_programs_have_signals()
    if options.lane is not None:
        use_ports_of(options.lane, LANES)

    here = pathlib.Path(__file__).resolve().parent
    in_lanes = options.in_lanes and not (options.names or options.no_e2e or options.list)
    folders = ([here.parent / "unit_py"] if options.unit else []) + ([] if options.no_e2e or in_lanes else [here])
    tests = [test for folder in folders for test in discover(folder)
             if (not options.names or "_FailedTest" in test.id() or any(name in test.id() for name in options.names))
             and options.lane in (None, getattr(test, "lane", 0))]
    if options.list:
        print("\n".join(short_name(test) for test in tests))
        return 0
    tally = Tally()
    if options.unit:
        run_unit(options.unit, UNIT_HALVES if options.unit_halves else [[]], tally)
    if options.sim and not options.names:
        run_sim(options.sim, options.quick, tally)
    leftovers = Leftovers()
    for place, test in enumerate(tests, 1):
        run_one(test, place, len(tests), tally, leftovers)
    if in_lanes:
        run_lanes(words_for_lanes(options), tally)
    for failure in tally.failures:
        print("failed: " + failure)
    print(tally.line(), flush=True)
    return 0 if tally.failed == 0 and tally.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
