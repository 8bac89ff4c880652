"""The runner of the end-to-end tests: what it finds, and what its summary says of a test that failed."""

import contextlib
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import traceback
import unittest
from unittest import mock

E2E = pathlib.Path(__file__).resolve().parents[1] / "e2e"
spec = importlib.util.spec_from_file_location("e2e_run", E2E / "run.py")
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)
runner_lanes = sys.modules[runner.run_lanes.__module__]


def detail_of(job):
    try:
        job()
    except Exception:  # pylint: disable=broad-except
        return "".join(traceback.format_exception(*sys.exc_info()))
    raise AssertionError("it raised nothing")


class DiscoveryTest(unittest.TestCase):
    def test_no_file_is_named_as_one_of_the_other_folder(self):
        """`make test` loads both into one process, where the second one of a name could not be loaded."""
        both = {path.name for path in E2E.glob("test_*.py")} & {path.name for path in pathlib.Path(__file__).parent.glob("test_*.py")}
        self.assertEqual(both, set())

    def test_what_make_test_runs_can_be_loaded_in_one_process(self):
        listed = subprocess.run([sys.executable, "-B", E2E / "run.py", "--unit", "unit", "--sim", "sim", "--list"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        names = listed.stdout.decode()
        self.assertEqual(listed.returncode, 0, names)
        self.assertIn("runner.DiscoveryTest", names)
        self.assertIn("apache.", names)


class UnitCountTest(unittest.TestCase):
    def counted(self, text, status):
        tally = runner.Tally()
        with contextlib.redirect_stdout(io.StringIO()):
            runner.count_cases("unit", text, status, tally)
        return tally.passed, tally.failed, tally.failures

    def test_only_the_last_count_is_the_programs(self):
        """A child that a test had forked ended by a signal that Catch2 handles, and was counted, too."""
        child = "test cases:    139 |    138 passed | 1 failed\nassertions: 26 | 25 passed | 1 failed\n"
        self.assertEqual(self.counted(child + "All tests passed (90 assertions in 7 test cases)\n", 0), (7, 0, []))
        self.assertEqual(self.counted(child + "test cases: 7 | 5 passed | 2 failed\n", 2), (5, 2, ["unit"]))

    def test_one_that_crashed_has_failed_whatever_it_counted(self):
        self.assertEqual(self.counted("", -11), (0, 1, ["unit"]))
        self.assertEqual(self.counted("All tests passed (90 assertions in 7 test cases)\n", -11), (7, 1, ["unit"]))


class LanesTest(unittest.TestCase):
    def ran(self, script):
        lane = runner_lanes.Lane([sys.executable, "-c", script], 1)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            lane.run()
        return lane, shown.getvalue()

    def test_the_lane_that_wants_the_machine_to_itself_comes_last(self):
        tally, script = runner.Tally(), "import sys; n = sys.argv[-1]; print('here'); print(n, 'passed, 0 failed, 0 skipped')"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file, contextlib.redirect_stdout(io.StringIO()) as shown:
            file.write(script)
            file.flush()
            with mock.patch.object(sys, "argv", [file.name]):
                runner.run_lanes(["--seed", "7"], tally)
        self.assertEqual(tally.line(), "6 passed, 0 failed, 0 skipped")
        lines = [line for line in shown.getvalue().splitlines() if line.endswith("here")]
        self.assertEqual((set(lines[:3]), lines[3:]), ({f"lane {n} here" for n in (1, 2, 3)}, ["lane 0 here"]))

    def test_counts_and_failures_of_a_lane(self):
        lane, shown = self.ran("print('it runs\\nfailed: a.B.c: ValueError: no\\n  two lines\\n3 passed, 1 failed, 2 skipped'); exit(1)")
        self.assertEqual(lane.counts, (3, 1, 2))
        self.assertEqual(lane.failures, ["a.B.c: ValueError: no\n  two lines"])
        self.assertIn("lane 1 it runs\n", shown)

    def test_a_lane_that_does_not_come_to_its_end_has_failed(self):
        lane, _ = self.ran("print('[3/9] a.B.c …'); exit(3)")
        self.assertEqual(lane.counts, (0, 1, 0))
        self.assertEqual(lane.failures, ["lane 1 ended with 3 after: [3/9] a.B.c …"])

    def test_a_lane_of_which_nothing_failed_but_its_end_has_failed(self):
        lane, _ = self.ran("print('3 passed, 0 failed, 0 skipped'); exit(1)")
        self.assertEqual(lane.counts, (3, 1, 0))


class SignalsTest(unittest.TestCase):
    def test_programs_tried_under_nohup_have_the_signals_as_by_default(self):
        asked = "import signal; print([signal.getsignal(n).name for n in (signal.SIGHUP, signal.SIGQUIT)])"
        shown = f"import sys, subprocess; sys.path.insert(0, {str(E2E)!r}); import run; run.let_programs_have_signals(); " \
                f"subprocess.run([sys.executable, '-c', {asked!r}])"
        done = subprocess.run(["sh", "-c", 'trap "" HUP INT QUIT; exec "$@"', "sh", sys.executable, "-c", shown],
                              stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.decode().strip(), "['SIG_DFL', 'SIG_DFL']")


class SummaryTest(unittest.TestCase):
    def test_words_of_the_exception_and_not_the_last_line_of_a_log(self):
        def fail():
            error = AssertionError("the replicas differ\n  at entry 7")
            error.add_note("\n--- cluster redis\n--- r3/stderr\nTraceback (most recent call last):\nKeyError: 1\nlink is up")
            raise error

        self.assertEqual(runner.in_short(detail_of(fail)), "AssertionError: the replicas differ\n    at entry 7")

    def test_of_two_exceptions_the_one_that_was_raised_last(self):
        def fail():
            try:
                raise KeyError(1)
            except KeyError as error:
                raise OSError("not there") from error

        self.assertEqual(runner.in_short(detail_of(fail)), "OSError: not there")

    def test_no_more_than_a_few_lines(self):
        def fail():
            raise ValueError("\n".join(str(number) for number in range(100)))

        self.assertEqual(len(runner.in_short(detail_of(fail), lines=5).splitlines()), 5)

    def test_what_is_no_exception(self):
        self.assertEqual(runner.in_short("it left behind:\nprocess 7"), "process 7")
        self.assertEqual(runner.in_short(""), "?")


if __name__ == "__main__":
    unittest.main()
