"""The shell around continuous integration: sums and statuses."""

import contextlib
import importlib.util
import io
import os
import pathlib
import signal
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("ci_checks", ROOT / ".ci" / "checks.py")
ci_checks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ci_checks)


class ChecksTest(unittest.TestCase):
    def result(self, unit="true", e2e="true", build="true", check="true", deploy="true"):
        """Status and lines of continuous integration whose steps are these shell commands."""
        instead = {"build": build, "unit tests under ASan": unit}
        out = io.StringIO()
        original = ci_checks.run

        def run(command, limit_s, in_the_background=False):
            shell = instead["build"] if command[0] == "make" else instead["unit tests under ASan"] \
                if "--unit" in command else command[-1]
            return original(["sh", "-c", shell], limit_s, in_the_background)

        with mock.patch.object(ci_checks, "checks", lambda: [("a check", 10, ["sh", "-c", check])]), \
                mock.patch.object(ci_checks, "run", run), \
                mock.patch.object(ci_checks, "RUN", ["sh", "-c", e2e]), \
                mock.patch.object(ci_checks, "DEPLOY", ["sh", "-c", deploy]), contextlib.redirect_stdout(out):
            status = ci_checks.main()
        return status, out.getvalue().splitlines()

    def test_what_counts_is_summed_up_in_the_last_line(self):
        status, lines = self.result("echo 3 passed, 0 failed, 1 skipped", "echo 2 passed, 0 failed, 0 skipped",
                                    check="echo 4 passed, 0 failed, 0 skipped")
        self.assertEqual((status, lines[-1]), (0, "9 passed, 0 failed, 1 skipped"))
        self.assertTrue(any(line.endswith("a check") for line in lines))  # what took how long
        self.assertNotIn("failed:", lines)

    def test_a_failed_test_fails_it_all_and_shows_its_output(self):
        status, lines = self.result("echo broken; echo 3 passed, 1 failed, 0 skipped; exit 1",
                                    "echo 2 passed, 0 failed, 0 skipped")
        self.assertEqual((status, lines[-1]), (1, "5 passed, 1 failed, 0 skipped"))
        self.assertIn("broken", lines)

    def test_what_failed_is_named_again_at_the_end(self):
        unit = "echo tests/unit/a.cpp:7: FAILED:; echo '  REQUIRE( x )'; echo with expansion:; echo '  false'; echo; " \
               "echo passed; echo failed: unit; exit 1"
        _, lines = self.result(unit, "echo failed: redis.Kills; exit 1", check="echo 'a.cpp:1:2: error: no'; exit 1")
        end = lines[lines.index("failed:"):-1]
        self.assertEqual(end, ["failed:", "a check", "  a.cpp:1:2: error: no", "end-to-end tests",
                               "  failed: redis.Kills", "unit tests under ASan", "  tests/unit/a.cpp:7: FAILED:",
                               "    REQUIRE( x )", "  with expansion:", "    false", "  failed: unit"])

    def test_words_of_a_failed_test_are_kept_with_its_name(self):
        _, lines = self.result(e2e="echo 'failed: redis.Kills: ClusterError: they differ'; echo '  at entry 7'; echo 0 passed; exit 1")
        end = lines[lines.index("failed:"):-1]
        self.assertEqual(end, ["failed:", "end-to-end tests", "  failed: redis.Kills: ClusterError: they differ", "    at entry 7"])

    def test_a_check_that_counts_nothing_can_still_fail(self):
        status, lines = self.result(check="exit 2", e2e="echo 2 passed, 0 failed, 0 skipped")
        self.assertEqual((status, lines[-1]), (1, "2 passed, 0 failed, 0 skipped"))

    def test_a_check_that_was_never_run_fails_it_all(self):
        with mock.patch.object(ci_checks, "work_off", lambda *_: None):
            status, lines = self.result("echo 1 passed, 0 failed, 0 skipped", "echo 2 passed, 0 failed, 0 skipped")
        self.assertEqual((status, lines[-1]), (1, "3 passed, 0 failed, 0 skipped"))
        self.assertIn("a check: was not run", lines)

    def test_a_deployment_that_fails_fails_it_all(self):
        status, lines = self.result("echo 1 passed, 0 failed, 0 skipped", "echo 2 passed, 0 failed, 0 skipped",
                                    deploy="echo deploy-test: no mirror; echo 0 passed, 1 failed, 0 skipped; exit 1")
        self.assertEqual((status, lines[-1]), (1, "3 passed, 1 failed, 0 skipped"))
        self.assertIn("deploy-test: no mirror", lines)

    def test_end_to_end_tests_that_crash_fail_it(self):
        self.assertEqual(self.result("echo 1 passed, 0 failed, 0 skipped", "exit 1")[0], 1)

    def test_what_is_left_behind_holds_nobody_up(self):
        """A process that goes on with the output of a step that has ended."""
        left = "sleep 600 & echo $!; "
        status, lines = self.result(left + "echo 1 passed, 0 failed, 0 skipped; exit 1", left +
                                    "printf '2 passed, 0 failed, 0 skipped'")
        for line in lines:
            if line.isdigit():
                os.kill(int(line), signal.SIGKILL)
        self.assertEqual((status, lines[-1]), (1, "3 passed, 0 failed, 0 skipped"))

    def test_what_does_not_end_is_ended_in_time_to_tell(self):
        with mock.patch.object(ci_checks, "STARTED", ci_checks.time.monotonic() - ci_checks.ENDS_AFTER_S):
            status, lines = self.result("sleep 600", "sleep 600")
        self.assertEqual(status, 1)
        self.assertIn("end-to-end tests", lines[lines.index("failed:"):])

    def test_nothing_is_checked_that_did_not_build(self):
        status, lines = self.result("echo never", "echo never", build="echo error; exit 2")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertNotIn("never", lines)


if __name__ == "__main__":
    unittest.main()
