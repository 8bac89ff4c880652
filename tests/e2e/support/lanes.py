"""The end-to-end tests in lanes (CraneTest.lane): those of lanes 1, 2 and 3 at once, and then those that want the machine
to themselves. Each lane is a run of its own, with ports of its own; this shows their lines and adds up their counts."""

import re
import subprocess
import sys
import threading

AT_ONCE = [(1, 2, 3), (0,)]
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")


class Lane(threading.Thread):
    """Runs `command` for the tests of one lane. `counts` is (passed, failed, skipped) once it has ended; `failures` is what
    its summary says, without the word."""

    def __init__(self, command, number):
        super().__init__()
        self.command, self.number = [*command, "--lane", str(number)], number
        self.counts, self.failures = (0, 1, 0), []

    def run(self):
        last = ""
        with subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                last = line.decode(errors="replace").rstrip()
                print(f"lane {self.number} {last}", flush=True)
                self._keep(last)
        counted = COUNTS.fullmatch(last)
        if counted:
            self.counts = tuple(int(number) for number in counted.groups())
        if not counted or (process.returncode != 0 and self.counts[1] == 0):
            self.counts = (self.counts[0], self.counts[1] + bool(counted), self.counts[2])
            self.failures.append(f"lane {self.number} ended with {process.returncode} after: {last}")

    def _keep(self, line):
        if line.startswith("failed: "):
            self.failures.append(line.removeprefix("failed: "))
        elif self.failures and line.startswith("  "):  # a failure has several lines
            self.failures[-1] += "\n" + line


def run_lanes(words, tally):
    """`words` are the options that each lane's run is given."""
    for numbers in AT_ONCE:
        lanes = [Lane([sys.executable, "-B", sys.argv[0], *words], number) for number in numbers]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
            tally.passed += lane.counts[0]
            tally.failed += lane.counts[1]
            tally.skipped += lane.counts[2]
            tally.failures += lane.failures
