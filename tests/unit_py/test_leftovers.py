"""What a test leaves behind in the runner is found, named and ended."""

import pathlib
import subprocess
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from support import leftovers  # noqa: E402

CHILD = """
import subprocess, sys
sys.path.insert(0, {folder!r})
from support import leftovers
leftovers.ENDS_WITHIN_S = 0.3
before = subprocess.Popen(["sleep", "600"])
look = leftovers.Leftovers()
quiet = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(look.take())
left = subprocess.Popen(["sleep", "601"], stdin=subprocess.DEVNULL)
print([text.partition(": ")[2] for text in look.take()], left.wait(10), look.take())
before.kill()
quiet.kill()
"""


class LeftoversTest(unittest.TestCase):
    def test_process_that_holds_the_output_is_named_and_ended(self):
        folder = str(pathlib.Path(__file__).resolve().parents[1] / "e2e")
        done = subprocess.run([sys.executable, "-c", CHILD.format(folder=folder)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.stdout.splitlines(), ["[]", "['sleep 601'] -9 []"], done.stderr)

    def test_thread_that_nobody_waits_for_is_named(self):
        done = threading.Event()
        thread = threading.Thread(target=done.wait, name="forgotten")
        thread.start()
        try:
            with mock.patch.object(leftovers, "ENDS_WITHIN_S", 0.1):
                self.assertEqual(leftovers.Leftovers().take(), ["thread forgotten"])
        finally:
            done.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
