"""What the servers' own suites are judged by, and how their output is read, without a server."""

import pathlib
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "suites")]
import compare  # noqa: E402  pylint: disable=wrong-import-position
import mtr_suite  # noqa: E402  pylint: disable=wrong-import-position
import pg_suite  # noqa: E402  pylint: disable=wrong-import-position
import redis_suite  # noqa: E402  pylint: disable=wrong-import-position


class Verdicts(unittest.TestCase):
    def test_only_what_is_stable_natively_is_held_against_crane(self):
        cases = [(["", ""], "", "passes"), (["", ""], "x", "fails"), (["x", "x"], "x", "fails alike"),
                 (["x", "x"], "y", "fails otherwise"), (["x", "x"], "", "passes"), (["", "x"], "x", "not stable"),
                 (["", "x"], "", "passes"), (["x", "y"], "z", "not stable"), (["", ""], None, "not run"), (["", None], None, "not stable")]
        for natives, crane, expected in cases:
            self.assertEqual(compare.verdict(natives, crane), expected, (natives, crane))

    def test_every_test_of_either_native_run_has_a_row(self):
        rows = compare.judge([{"a": "", "b": ""}, {"a": "", "b": "", "c": ""}], {"a": "", "b": "bad"})
        self.assertEqual([(row.name, row.verdict) for row in rows], [("a", "passes"), ("b", "fails"), ("c", "not stable")])

    def test_what_is_known_is_excused_and_nothing_else(self):
        rows = compare.judge([{"a": "", "b": "", "c": ""}] * 2, {"a": "bad", "b": "bad", "c": ""})
        self.assertEqual([row.name for row in compare.wrong(rows, {"a": "why", "c": "why"})], ["b"])
        self.assertEqual([row.name for row in compare.excused(rows, {"a": "why", "c": "why"})], ["a"])
        self.assertEqual(compare.summary("x", rows, {"a": "why"}), "x: 3 tests, 1 pass under Crane; 2 fails; 1 excused, 1 wrong")

    def test_names_that_come_again_are_told_apart(self):
        self.assertEqual(list(compare.numbered(["a", "b", "a", "a"])), ["a", "b", "a #2", "a #3"])


class Postgres(unittest.TestCase):
    def test_a_schedule_is_read_by_lines(self):
        text = "# none\ntest: setup\n\ntest: a b\nignore: random\ntest: random c\n"
        self.assertEqual(pg_suite.schedule_lines(text), [["setup"], ["a", "b"], ["random", "c"]])

    def test_what_pg_regress_says(self):
        said = ("test setup                        ... ok          312 ms\nparallel group (2 tests):  b a\n"
                "     a                            ... FAILED     1024 ms\n     b                            ... ok           73 ms\n"
                "test c                            ... FAILED (test process was terminated by signal 9: Killed)\n")
        self.assertEqual(pg_suite.verdicts(said), {"setup": True, "a": False, "b": True, "c": False})

    def test_differences_are_told_by_test_and_without_times(self):
        text = ("diff -U3 /x/expected/a.out /x/results/a.out\n--- /x/expected/a.out\t2026-01-01 00:00:00\n"
                "+++ /x/results/a.out\t2026-01-01 00:00:01\n@@ -1 +1 @@\n-one\n+two\n"
                "diff -U3 /x/expected/b_1.out /x/results/b.out\n@@ -3 +3 @@\n-x\n+y\n")
        self.assertEqual(pg_suite.differences(text), {"a": "@@ -1 +1 @@\n-one\n+two", "b": "@@ -3 +3 @@\n-x\n+y"})


class MariaDb(unittest.TestCase):
    def test_what_mtr_says_of_one_test(self):
        head = "TEST    RESULT   TIME (ms) or COMMENT\n-----\n\nworker[01] Using MTR_BUILD_THREAD 300\n"
        self.assertEqual(mtr_suite.verdict(head + "main.alias                               [ pass ]     21\n", ["/x"]), "")
        self.assertIsNone(mtr_suite.verdict(head + "main.big          [ skipped ]  Test needs --big-test\n"))
        failed = head + ("main.ansi                                [ fail ]\n        Test ended at 2026-01-01 00:00:00\n\n"
                         "CURRENT_TEST: main.ansi\n--- a.result\t2026-01-01\n+++ a.reject\t2026-01-02\n@@ -1 +1 @@\n-one\n+two /x/var\n\n"
                         " - saving '/x/var/log/main.ansi/' to '/x/var/log/main.ansi/'\n\nOnly  1  of 2 completed.\n")
        self.assertEqual(mtr_suite.verdict(failed, ["/x"]), "CURRENT_TEST: main.ansi\n@@ -1 +1 @@\n-one\n+two DIR/var")
        self.assertEqual(mtr_suite.verdict("mysql-test-run: *** ERROR: no server"), "mysql-test-run: *** ERROR: no server")

    def test_settings_are_put_back_as_what_they_are(self):
        self.assertEqual([mtr_suite.literal(text) for text in ("16777216", "-1", "0.500000", "ON", "it's", "")],
                         ["16777216", "-1", "0.500000", "'ON'", "'it''s'", "''"])

    def test_tests_that_need_a_server_of_their_own_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"a.test": "select 1;", "b.test": "select 1;", "b.opt": "--x", "c.test": "--source include/restart_mysqld.inc",
                               "d.test": "select 1;", "d-master.opt": "--x", "e.test": "truncate table mysql.global_priv;",
                               "f.test": "drop table if exists mysql.user;", "g.test": "drop table t; delete from mysql.user where user='a';"}.items():
                (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
            self.assertEqual([test.stem for test in sorted(pathlib.Path(folder).glob("*.test")) if mtr_suite.runs_here(test)], ["a", "g"])


class Redis(unittest.TestCase):
    def test_what_runtest_says(self):
        said = ("Testing unit/x\n[ok]: One (12 ms)\n[\x1b[31merr\x1b[0m]: Two in tests/unit/x.tcl\nExpected 1\nto be 2\n"
                "[ok]: One (3 ms)\n[ignore]: Left: out\n[1/1 done]: unit/x (3 seconds)\n\n*** [err]: Two in tests/unit/x.tcl\nExpected 1\n")
        self.assertEqual(redis_suite.results_of("unit/x", said),
                         {"unit/x: One": "", "unit/x: Two": "Two in tests/unit/x.tcl\nExpected 1\nto be 2", "unit/x: One #2": ""})

    def test_who_hangs(self):
        said = "[TIMEOUT]: clients state report follows.\nsock5 => (IN PROGRESS) Blocks for ever\n"
        self.assertEqual(redis_suite.in_progress(said), "Blocks for ever")
        self.assertIsNone(redis_suite.in_progress("sock5 => (OK) Done\n"))
        self.assertEqual(redis_suite.results_of("u", said), {})


if __name__ == "__main__":
    unittest.main()
