"""Hostile clients and faults against real servers, while honest clients are served (tests/hostile)."""

import subprocess
import sys

from support.case import CraneTest
from support.paths import ROOT, Settings

HOSTILE = ROOT / "tests" / "hostile" / "hostile.py"


class Hostile(CraneTest):
    timeout_s = 300

    def among_hostile_clients(self, server):
        self.needs_replicas()
        words = [sys.executable, "-B", str(HOSTILE), "--server", server, "--seed", str(Settings.seed), "--seconds", "30"]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=self.timeout_s - 20, check=False)
        except subprocess.TimeoutExpired as late:
            self.fail(f"it takes longer than {late.timeout} s: {(late.stdout or b'').decode()[-8000:]}")
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
        for line in done.stdout.splitlines()[-6:]:
            self.note(line)

    def test_apache_prefork(self):
        self.among_hostile_clients("apache")

    def test_redis(self):
        self.among_hostile_clients("redis")
