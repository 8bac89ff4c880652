"""Consensus with real processes under faults (tests/nemesis), and the canaries that show that the check can fail."""

import subprocess
import sys

from support.case import CraneTest
from support.paths import ROOT, Settings

NEMESIS = ROOT / "tests" / "nemesis" / "nemesis.py"
FAILOVER = ROOT / "eval" / "failover.py"
CANNOT = 77


class Nemesis(CraneTest):
    timeout_s = 420

    def run_program(self, program, *arguments):
        self.needs_replicas()
        self.built_program("registers")
        words = [sys.executable, "-B", program, *arguments]
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=self.timeout_s - 20, check=False)
        if done.returncode == CANNOT:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        return done.stdout

    def test_histories_are_linearizable_under_faults(self):
        seconds = 30 if Settings.quick else 80
        text = self.run_program(NEMESIS, "--seed", Settings.seed, "--seconds", seconds)
        for line in text.splitlines():
            if not line.lstrip()[:1].isdigit():  # all but the single faults
                self.note(line.strip())

    def test_a_stale_read_is_noticed(self):
        self.run_program(NEMESIS, "--canary", "stale", "--seconds", "5")

    def test_a_forged_answer_is_noticed(self):
        self.run_program(NEMESIS, "--canary", "forged", "--seconds", "5")

    def test_exchanged_answers_are_noticed(self):
        self.run_program(NEMESIS, "--canary", "reordered", "--seconds", "5")

    def test_a_lost_write_is_noticed(self):
        self.run_program(NEMESIS, "--canary", "lost", "--seconds", "5")

    def test_a_killed_primary_is_replaced_within_the_aims(self):
        text = self.run_program(FAILOVER, "--kills", 5 if Settings.quick else 10)
        self.note(" ".join(text.splitlines()[-3:]))

    def test_no_false_election_while_every_core_is_busy(self):
        text = self.run_program(FAILOVER, "--saturate", "--kills", 0, "--seconds", 20 if Settings.quick else 60)
        self.note(next(line for line in text.splitlines() if "view changes" in line))
