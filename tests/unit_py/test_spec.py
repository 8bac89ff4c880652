"""The model of the protocol is searched again when anything that the searches depend on is another, and after a failure."""

import contextlib
import importlib.util
import io
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("spec_check", ROOT / "paxos" / "spec" / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


class ChangedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model, self.record = (pathlib.Path(folder.name) / name for name in ("crane.pml", "holds.txt"))
        self.model.write_text("a model")

    def searches(self, *words, version="Spin 6", holds=True):
        """(status, how many searches) of a run."""
        told = mock.Mock(return_value=holds)
        with contextlib.ExitStack() as patched:
            for name, value in {"MODEL": self.model, "RECORD": self.record, "HOLDS": [("small", 2, 1, [])], "CAUGHT": [],
                                "check_holds": told}.items():
                patched.enter_context(mock.patch.object(check, name, value))
            patched.enter_context(mock.patch.object(check.subprocess, "run",
                                                    return_value=types.SimpleNamespace(stdout=version)))
            patched.enter_context(mock.patch.object(sys, "argv", ["check.py", *words]))
            patched.enter_context(contextlib.redirect_stdout(io.StringIO()))
            return check.main(), told.call_count

    def test_what_held_is_searched_again_when_the_model_or_spin_is_another(self):
        self.assertEqual(self.searches("--changed"), (0, 1))
        self.assertEqual(self.searches("--changed"), (0, 0))
        self.assertEqual(self.searches(), (0, 1))
        self.assertEqual(self.searches("--changed", version="Spin 7"), (0, 1))
        self.model.write_text("another model")
        self.assertEqual(self.searches("--changed", version="Spin 7"), (0, 1))

    def test_what_failed_or_was_searched_in_part_is_not_taken_for_held(self):
        self.assertEqual(self.searches(holds=False), (1, 1))
        self.assertEqual(self.searches("small"), (0, 1))
        self.assertEqual(self.searches("--changed"), (0, 1))


if __name__ == "__main__":
    unittest.main()
