"""The quick part of the matrix (tests/matrix): servers of ten ways to be built, each with its usual client."""

import os
import pathlib
import subprocess
import sys

from support.case import CraneTest
from support.paths import BUILD, ROOT, Settings

MATRIX = pathlib.Path(ROOT) / "tests" / "matrix" / "matrix.py"


class Matrix(CraneTest):
    timeout_s = 420

    def test_servers_of_many_kinds(self):
        self.needs_replicas()
        words = [sys.executable, "-B", MATRIX, "--quick", "--require", "--first-seed", str(Settings.seed)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=self.timeout_s - 20, env=os.environ | {"BUILD": str(BUILD)})
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors="replace"))
