"""What .ci/run does once everything is installed: one build of all that is checked, then the unit tests
alone, the checks that keep a core busy, as many side by side as there are cores, then the end-to-end tests alone.

The unit tests run under ASan, which sees what a plain run sees and more; `make test` runs them plain. What takes long
and rarely changes is left to `make soak` (CRANE_SOAK, more seeds, minutes of fuzzing, the model's larger bounds).
"""

import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 1
RUN = ["python3", "-B", "tests/e2e/run.py"]
BUILDS = ["all", "build/bin/sim", "programs", "asan-build", "tsan-build", "fuzz-build"]
TIDY_PARTS = 4
LINES_OF_A_FAILURE = 400
# How the test runner, Catch2 (place and condition), clang-tidy and the compilers name what failed.
FAILURES = re.compile(r"^(failed: .*|\S+:\d+: FAILED:\n.*|\S+:\d+:\d+: (?:fatal )?(?:error|warning): .*)$", re.MULTILINE)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def make(*words):
    return ["make", "-s", *words]


def tidy_parts():
    """The sources in parts of about the same work, so that no core waits long for another."""
    listed = subprocess.run(["git", "ls-files", "*.cpp"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    sources = [name for name in listed.stdout.decode().split() if not name.startswith("tests/")]
    return [sources[part::TIDY_PARTS] for part in range(TIDY_PARTS)]


def checks():
    """(name, seconds it may take, command), the longest first."""
    for place, sources in enumerate(tidy_parts(), 1):
        yield f"tidy {place}/{TIDY_PARTS}", 1500, make("tidy", "TIDY_JOBS=1", f"TIDY_SRCS={' '.join(sources)}")
    yield "simulator", 1500, [*RUN, "--sim", "build/bin/sim", "--no-e2e"]
    yield "spec", 1500, make("spec")
    # Every decoder of what peers say for a few seconds each; the unit tests run the kept inputs again.
    yield "fuzz", 600, make("fuzz", "FUZZ_SECONDS=5")
    yield "tsan", 600, make("tsan")
    yield "lint", 300, make("lint")


class Totals:
    def __init__(self):
        self.counts = [0, 0, 0]  # passed, failed, skipped
        self.failed = []  # what tells of it: the steps, and the tests that they name
        self.took = []

    def add(self, name, status, text, seconds):
        """Keeps and prints what a step came to; its output only where it failed or counts."""
        counted = [[int(number) for number in found] for found in COUNTS.findall(text)]
        if counted:
            self.counts = [sum(pair) for pair in zip(self.counts, counted[-1])]
        if status != 0:
            self.failed += [name, *(f"  {found}" for found in FAILURES.findall(text))]
        self.took.append((seconds, name))
        if status != 0:
            print("\n".join(text.splitlines()[-LINES_OF_A_FAILURE:]))
        print(f"{name}: {'ok' if status == 0 else 'FAILED'} ({seconds:.0f} s)", flush=True)


def run(command, limit_s):
    begin = time.monotonic()
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    try:
        done = subprocess.run(["timeout", "--kill-after=30", str(limit_s), *command], cwd=ROOT, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        status, text = done.returncode, done.stdout.decode(errors="replace")
    except OSError as error:
        status, text = 127, str(error)
    return status, text, time.monotonic() - begin


def run_aloud(command, limit_s):
    """The same for what says by itself how far it is."""
    begin, lines = time.monotonic(), []
    with subprocess.Popen(["timeout", "--kill-after=30", str(limit_s), *command], cwd=ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            lines.append(line.decode(errors="replace").rstrip())
            print(lines[-1], flush=True)
    return process.returncode, "\n".join(lines), time.monotonic() - begin


def main():
    os.chdir(ROOT)
    totals = Totals()
    totals.add("build", *run(["make", "-s", "-k", "-Otarget", f"-j{CORES}", *BUILDS], 3000))
    if totals.failed:
        print("0 passed, 1 failed, 0 skipped")
        return 1
    # Alone, like the end-to-end tests: some are about what other processes do meanwhile.
    totals.add("unit tests under ASan", *run([*RUN, "--unit", "build/asan/bin/unit", "--no-e2e"], 1500))
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        running = {pool.submit(run, command, limit_s): name for name, limit_s, command in checks()}
        for done in concurrent.futures.as_completed(running):
            totals.add(running[done], *done.result())
    totals.add("end-to-end tests", *run_aloud(RUN, 3000))
    print("\nwhat took how long:")
    for seconds, name in sorted(totals.took, reverse=True):
        print(f"  {seconds:6.0f} s  {name}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  {used.ru_utime + used.ru_stime:6.0f} s  of processor time in all")
    # Again and last, since whoever reads the end of a long log should not have to look for it.
    print("\n".join(["", "failed:", *totals.failed] if totals.failed else []))
    print("{} passed, {} failed, {} skipped".format(*totals.counts))
    return 1 if totals.failed or totals.counts[1] or not totals.counts[0] else 0


if __name__ == "__main__":
    sys.exit(main())
