"""What .ci/run does once everything is installed: the build of what is installed and its tests, then the end-to-end
tests (three at a time of those that do not mind, the others one after the other), then the unit tests beside the
deployment, and in the time that they leave of the cores the other builds and the checks that only compute.

The unit tests run under ASan, which sees what a plain run sees and more; `make test` runs them plain. What takes long
and rarely changes is left to `make soak` (CRANE_SOAK, more seeds, minutes of fuzzing, the model's larger bounds).
"""

import os
import pathlib
import queue
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 1
RUN = ["python3", "-B", "tests/e2e/run.py"]
DEPLOY = ["/usr/bin/python3", "-B", "tests/deploy/deploy.py"]
# As make builds it, but for the places of variables, which only a debugger asks for and a fifth of the time goes into.
FLAGS = "OPT=-O2 -g1"
BUILDS = ["all", "build/bin/sim", "programs"]
BUILD, ASAN_BUILD, UNIT = "build", "build under ASan", "unit tests under ASan"
LANES = "end-to-end tests"
HOSTS, DEPLOYMENT = "package, and hosts to deploy it to", "deployment"
LINES_OF_A_FAILURE = 400
STARTED, ENDS_AFTER_S, LOOK_AGAIN_AFTER_S = time.monotonic(), 75 * 60, 0.2
LINES_OF_A_TEST, WIDTH_OF_A_LINE = 12, 300
# How the test runner, Catch2 (to the next empty line), clang-tidy and the compilers name what failed.
FAILURES = re.compile(r"^(failed: .*(?:\n  .+)*|\S+:\d+: FAILED:\n(?:.+\n)+|\S+:\d+:\d+: (?:fatal )?(?:error|warning): .*)$", re.MULTILINE)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def make(*words):
    # With the same flags always: what was compiled with others is compiled again.
    return ["make", "-s", FLAGS, *words]


def checks():
    """(name, seconds it may take, command) of what nothing but its result is asked of: what is soon told, then the
    longest first."""
    yield "lint", 1500, make("lint")
    yield "tidy", 3000, make("tidy", "TIDY_JOBS=1")
    yield "simulator", 3000, [*RUN, "--sim", "build/bin/sim", "--no-e2e"]
    # Its searches tell the same each time: only where the model changed.
    yield "spec", 3000, make("spec", "SPEC=--changed")
    # Every decoder of what peers say for a few seconds each; the unit tests run the kept inputs again.
    yield "fuzz", 1500, make("fuzz", "FUZZ_SECONDS=5")
    yield "tsan", 1500, make("tsan")


def short(failure):
    lines = failure.splitlines()[:LINES_OF_A_TEST]
    return "\n".join(f"  {line[:WIDTH_OF_A_LINE]}" for line in lines)


class Totals:
    def __init__(self):
        self.counts = [0, 0, 0]  # passed, failed, skipped
        self.failed = {}  # what tells of it: the steps, and the tests that they name
        self.took = []
        self.lock = threading.Lock()

    def add(self, name, status, text, seconds, of_processors_s):
        """Keeps and prints what a step came to; its output only where it failed or counts."""
        with self.lock:
            self._add(name, status, text, seconds, of_processors_s)

    def lines_of_failures(self, order):
        """In this order; a step of it that never came to its end has failed."""
        came = {name for _, _, name in self.took}
        for name in order:
            if name not in came:
                yield f"{name}: was not run"
            elif name in self.failed:
                yield from [name, *self.failed[name]]

    def _add(self, name, status, text, seconds, of_processors_s):
        counted = [[int(number) for number in found] for found in COUNTS.findall(text)]
        if counted:
            self.counts = [sum(pair) for pair in zip(self.counts, counted[-1])]
        if status != 0:
            self.failed[name] = [short(found) for found in FAILURES.findall(text)]
        self.took.append((seconds, of_processors_s, name))
        if status != 0:
            print("\n".join(text.splitlines()[-LINES_OF_A_FAILURE:]))
        print(f"{name}: {'ok' if status == 0 else 'FAILED'} ({seconds:.0f} s)", flush=True)


def step_back():
    """Only what others leave of the cores is for this process: a session of its own, for autogroups share fairly."""
    os.setsid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        pathlib.Path("/proc/self/autogroup").write_text("19")
    except OSError:
        pass  # a kernel that knows no such groups


def limited(command, limit_s):
    """What does not end by itself is ended: in time to tell of it, whatever limit the whole run has from outside."""
    left_s = max(1, ENDS_AFTER_S - (time.monotonic() - STARTED))
    return ["timeout", "--kill-after=30", str(int(min(limit_s, left_s))), *command]


def use_of(process, flags=0):
    """Waits for its end. Gives the seconds of processors that it took, with all that it waited for; None: not yet."""
    ended, status, used = os.wait4(process.pid, flags)
    if not ended:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def run(command, limit_s, in_the_background=False):
    begin = time.monotonic()
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    # A file, not a pipe: a process that is left behind would hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(limited(command, limit_s), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT,
                                       preexec_fn=step_back if in_the_background else None)
            used = use_of(process)
            output.seek(0)
            status, text = process.returncode, output.read().decode(errors="replace")
        except OSError as error:
            status, text, used = 127, str(error), 0
    return status, text, time.monotonic() - begin, used


def run_aloud(command, limit_s):
    """The same for what says by itself how far it is."""
    begin, lines = time.monotonic(), []
    with tempfile.NamedTemporaryFile() as output:
        with subprocess.Popen(limited(command, limit_s), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT) as process, open(output.name, "rb") as said:
            used, rest = None, b""
            while used is None:
                time.sleep(LOOK_AGAIN_AFTER_S)
                used = use_of(process, os.WNOHANG)  # and what it said last is still to be read
                *whole, rest = (rest + said.read()).split(b"\n")
                for line in whole + ([rest] if used is not None and rest else []):
                    lines.append(line.decode(errors="replace").rstrip())
                    print(lines[-1], flush=True)
    return process.returncode, "\n".join(lines), time.monotonic() - begin, used


def work_off(waiting, totals, in_the_background):
    """Takes one check after the other, until none waits."""
    while True:
        try:
            name, limit_s, command = waiting.get_nowait()
        except queue.Empty:
            return
        totals.add(name, *run(command, limit_s, in_the_background))


def main():
    os.chdir(ROOT)
    totals = Totals()
    totals.add(BUILD, *run(make("-k", "-Otarget", f"-j{CORES}", *BUILDS), 3000))
    if totals.failed:
        print("0 passed, 1 failed, 0 skipped")
        return 1
    waiting, order = queue.SimpleQueue(), [ASAN_BUILD]
    for check in checks():
        waiting.put(check)
        order.append(check[0])
    order += [LANES, HOSTS, DEPLOYMENT, UNIT]
    asan_built = threading.Event()

    def build():
        try:
            totals.add(ASAN_BUILD, *run(make("-k", "-Otarget", f"-j{CORES}", "asan-build"), 3000, True))
        finally:
            asan_built.set()

    def make_hosts():
        totals.add(HOSTS, *run(make("deploy-hosts"), 1800, True))

    def check_what_waits():
        asan_built.wait()  # which all wait for in the end
        work_off(waiting, totals, True)

    hosts = threading.Thread(target=make_hosts)

    def deploy():
        hosts.join()
        if HOSTS not in totals.failed:
            totals.add(DEPLOYMENT, *run(DEPLOY, 360))

    beside = [threading.Thread(target=build), hosts]
    beside += [threading.Thread(target=check_what_waits) for _ in range(CORES)]
    for worker in beside:
        worker.start()
    totals.add(LANES, *run_aloud([*RUN, "--in-lanes"], 4000))
    deployment = threading.Thread(target=deploy)
    deployment.start()
    asan_built.wait()
    if ASAN_BUILD not in totals.failed:  # else the unit tests are told as not run
        totals.add(UNIT, *run([*RUN, "--unit", "build/asan/bin/unit", "--unit-halves", "--no-e2e"], 1500))
    for worker in [deployment, *beside]:
        worker.join()
    print("\nwhat took how long, and how much of a processor:")
    for seconds, of_processors_s, name in sorted(totals.took, reverse=True):
        print(f"  {seconds:6.0f} s {of_processors_s:6.0f} s  {name}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  {time.monotonic() - STARTED:6.0f} s {used.ru_utime + used.ru_stime:6.0f} s  in all")
    # Again and last, since whoever reads the end of a long log should not have to look for it.
    failed = list(totals.lines_of_failures(order))
    print("\n".join(["", "failed:", *failed] if failed else []))
    print("{} passed, {} failed, {} skipped".format(*totals.counts))
    return 1 if failed or totals.counts[1] or not totals.counts[0] else 0


if __name__ == "__main__":
    sys.exit(main())
