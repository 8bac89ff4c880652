"""The runner of the end-to-end tests: what it finds, and what its summary says of a test that failed."""

import importlib.util
import pathlib
import subprocess
import sys
import traceback
import unittest

E2E = pathlib.Path(__file__).resolve().parents[1] / "e2e"
spec = importlib.util.spec_from_file_location("e2e_run", E2E / "run.py")
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)


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
