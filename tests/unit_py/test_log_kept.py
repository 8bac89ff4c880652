"""Which log a start goes on from, which it refuses, and that none is lost by a start that comes to nothing."""

import os
import pathlib
import shutil
import signal
import socket
import sys
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import LauncherCase, eventually  # noqa: E402


class LogKeptTest(LauncherCase):
    def log(self, number=1):
        return (self.state / f"r{number}/db/log").read_text()

    def config(self, number):
        return tomllib.loads((self.state / f"r{number}/craned.toml").read_text())

    def leave_a_log(self, options=()):
        process, _ = self.start("listen", options=options)
        self.stop(process)
        for n in (1, 2, 3):
            (self.state / f"r{n}/db/log").write_text(f"precious {n}\n")

    def assert_kept(self):
        for n in (1, 2, 3):
            self.assertEqual(self.log(n), f"precious {n}\n")
        self.assertEqual(self.run_record()["identity"]["command"], ["listen"])
        for name in ("earlier-log", "returning-log", "discarded-log"):
            self.assertFalse((self.state / name).exists(), name)

    def test_fresh_start_that_is_refused_keeps_the_log(self):
        self.leave_a_log()
        self.assertIn("on this machine", self.finish("listen", options=(
            "--fresh", "--client-address", "127.0.0.1,192.0.2.7,127.0.0.3"))[1])
        self.assert_kept()
        self.assertIn("not set here", self.finish("listen", options=("--fresh", "--env", "NOT_SET_ANYWHERE"))[1])
        self.assert_kept()
        with socket.socket() as taken:
            taken.bind(("127.0.0.2", 0))
            taken.listen()
            self.finish("listen", options=("--fresh", "--port-map", f"80:{taken.getsockname()[1]}"))
        self.assert_kept()

    def test_fresh_start_that_fails_puts_the_log_back(self):
        self.leave_a_log()
        for command in (("exit", "1"), ("die",), ("refuse",)):
            code, text = self.finish(*command, options=("--fresh",))
            self.assertEqual(code, 1)
            self.assertRegex(text, "the log that --fresh was to discard is kept; what this start wrote is in .*failed-start")
            self.assert_kept()
        self.assertTrue((self.state / "failed-start/r1/craned.toml").exists())

    def test_fresh_start_that_is_interrupted_puts_the_log_back(self):
        self.leave_a_log()
        process = self.spawn("never", options=("--fresh",))
        eventually(lambda: len(self.ours()) >= 4)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assert_kept()

    def test_fresh_start_that_is_killed_leaves_the_log_to_the_next(self):
        self.leave_a_log()
        process = self.spawn("never", options=("--fresh",))
        eventually(lambda: len(self.ours()) >= 4)
        process.kill()
        process.wait()
        process, text = self.start("listen")
        self.assertIn("the log that it was to discard is back", text)
        self.assertIn("going on with", text)
        self.assertEqual(self.log(2), "precious 2\nstarted\n")
        self.stop(process)

    def test_fresh_start_that_succeeds_discards_the_log(self):
        self.leave_a_log()
        process, _ = self.start("listen", options=("--fresh",))
        self.assertEqual(self.log(), "started\n")
        self.assertEqual([p.name for p in self.state.iterdir() if "log" in p.name or "failed" in p.name], [])
        self.stop(process)

    def test_log_of_a_failed_start_does_not_block_the_corrected_command(self):
        self.assertEqual(self.finish("exit", "1")[0], 1)
        process, text = self.start("listen")
        self.assertIn("the earlier start on this directory failed; beginning anew", text)
        self.assertEqual(self.log(), "started\n")
        self.stop(process)

    def test_log_that_was_in_use_is_not_discarded_by_a_later_failed_start(self):
        switch = self.dir / "broken"
        process, _ = self.start("end-if", str(switch), "1")
        self.stop(process)
        switch.touch()
        self.assertEqual(self.finish("end-if", str(switch), "1")[0], 1)
        self.assertIn("use --fresh", self.finish("listen")[1])
        self.assertEqual(self.log(), "started\n" * 2)

    def test_refusal_names_every_setting_that_differs(self):
        self.leave_a_log()
        code, text = self.finish("deaf", options=("--quantum", "5"), cwd="/usr")
        self.assertEqual(code, 1)
        self.assertIn("another command (listen; now deaf)", text)
        self.assertIn("another quantum (1000; now 5)", text)
        self.assertIn(f"another working directory ({os.getcwd()}; now /usr)", text)

    def test_changed_env_is_refused_by_name(self):
        self.leave_a_log(options=("--env", "SECRET=a", "--env", "KEPT=1"))
        code, text = self.finish("listen", options=("--env", "SECRET=hush", "--env", "KEPT=1"))
        self.assertEqual(code, 1)
        self.assertIn("another value of the variable SECRET (--env): use --fresh", text)
        self.assertNotIn("hush", text)
        self.assertNotIn("KEPT", text)
        self.assertIn("--env KEPT, which is not given now", self.finish("listen", options=("--env", "SECRET=a"))[1])
        self.assertIn("no variable NEW (--env)",
                      self.finish("listen", options=("--env", "SECRET=a", "--env", "KEPT=1", "--env", "NEW=1"))[1])
        process, _ = self.start("listen", options=("--env", "SECRET=hush", "--fresh"))
        self.assertIn("SECRET=hush", (self.state / "r3/environment").read_text().splitlines())
        self.stop(process)

    def test_replica_that_lost_its_database_rejoins(self):
        process, _ = self.start("listen")
        self.assertTrue(self.config(2)["consensus"]["rejoin"], "restarted without its database, it would vote as if new")
        self.stop(process)
        shutil.rmtree(self.state / "r2/db")
        process, text = self.start("listen")
        self.assertRegex(text, "replica 2 lost the log .*r2/db.; rejoining")
        self.assertTrue(self.config(2)["consensus"]["rejoin"])
        self.stop(process)

    def test_first_start_does_not_rejoin(self):
        process = self.spawn("never")
        eventually(lambda: len(self.ours()) >= 4)
        self.assertFalse(self.config(1)["consensus"]["rejoin"])
        self.stop_early(process)

    def test_unfinished_first_start_has_voters_left(self):
        self.finish("exit", "1")
        shutil.rmtree(self.state / "r3/db")
        self.finish("exit", "1")
        self.assertEqual([self.config(n)["consensus"]["rejoin"] for n in (1, 2, 3)], [False, False, True])

    def test_majority_that_lost_its_databases_is_refused(self):
        for lost in ((2, 3), (1, 2, 3)):
            self.leave_a_log(options=("--fresh",))
            for n in lost:
                shutil.rmtree(self.state / f"r{n}/db")
            code, text = self.finish("listen")
            self.assertEqual(code, 1)
            self.assertRegex(text, f"replicas {', '.join(map(str, lost))} of 3 lost the log .*no majority.*--fresh")
            self.assertEqual(self.ours(), [])

    def test_what_clients_sent_is_for_the_owner_only(self):
        process, _ = self.start("listen")
        for name in ("run.json", "r1/craned.toml", "r1/craned.log"):
            self.assertEqual((self.state / name).stat().st_mode & 0o077, 0, name)
        self.assertEqual((self.state / "r1").stat().st_mode & 0o077, 0)
        self.stop(process)


if __name__ == "__main__":
    unittest.main()
