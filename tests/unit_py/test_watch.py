"""What crane-run watches over: replicas that run already, that die again and again, whose folder is deleted; and state
directories that are not its own."""

import os
import pathlib
import resource
import shutil
import signal
import sys
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import LauncherCase, eventually  # noqa: E402
from crane_launch import processes  # noqa: E402
from crane_launch.replica import is_gone  # noqa: E402
from crane_launch.settings import parse  # noqa: E402
from crane_launch.supervisor import QUICK_RESTARTS, Supervisor  # noqa: E402


class KilledLauncherTest(LauncherCase):
    def kill(self, process):
        process.kill()
        process.wait(20)

    def pids(self):
        return {row["id"]: row["pid"] for row in self.run_record()["replicas"]}

    def test_replicas_that_run_are_watched_on_and_not_started_anew(self):
        first, _ = self.start("listen")
        before = self.pids()
        self.kill(first)
        second, text = self.start("listen")
        self.assertIn("replicas 1, 2, 3 of", text)
        self.assertIn("run already", text)
        self.assertEqual(self.pids(), before)
        # One that dies is started again, and one that is asked to stop is not.
        os.kill(before[2], signal.SIGKILL)
        self.read_until(second, "restarting it")
        eventually(lambda: self.pids()[2] not in (0, before[2]))
        self.assertEqual({n: pid for n, pid in self.pids().items() if n != 2}, {n: before[n] for n in (1, 3)})
        self.stop(second)

    def test_one_that_died_meanwhile_is_started(self):
        first, _ = self.start("listen")
        before = self.pids()
        self.kill(first)
        os.kill(before[3], signal.SIGKILL)
        eventually(lambda: processes.start_time(before[3]) is None)
        second, text = self.start("listen")
        self.assertIn("replicas 1, 2 of", text)
        self.assertEqual([self.pids()[n] for n in (1, 2)], [before[n] for n in (1, 2)])
        self.assertNotIn(self.pids()[3], (0, before[3]))
        self.stop(second)

    def test_other_settings_start_anew(self):
        first, _ = self.start("listen")
        before = self.pids()
        self.kill(first)
        second, text = self.start("listen", options=("--heartbeat-ms", "60"))
        self.assertNotIn("run already", text)
        self.assertFalse(set(self.pids().values()) & set(before.values()))
        self.stop(second)


class ShortMachineTest(LauncherCase):
    def test_full_table_of_descriptors_ends_no_replica(self):
        process, _ = self.start("listen")
        before = {row["id"]: row["pid"] for row in self.run_record()["replicas"]}
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (4, limits[1]))
        os.kill(before[2], signal.SIGKILL)
        self.read_until(process, "Too many open files")
        self.assertTrue(all(processes.start_time(before[n]) for n in (1, 3)))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, before[2]))
        self.stop(process)

    def test_round_that_fails_is_said_once_and_tried_again(self):
        said, rounds = [], []
        supervisor = Supervisor(parse(["--state-dir", str(self.state), "--", "listen"]), said.append)

        class Quiet:
            def wait(self, *_):
                pass

        def look_after():
            rounds.append(1)
            if len(rounds) < 4:
                raise OSError(5, "Input/output error")
            return 7

        supervisor.signals, supervisor._look_after = Quiet(), look_after
        self.assertEqual(supervisor._watch(), 7)
        self.assertEqual(len(said), 1, said)

    def test_folder_that_cannot_be_looked_at_is_not_gone(self):
        self.assertTrue(is_gone(self.state / "nowhere"))
        self.assertFalse(is_gone("/proc"))
        with unittest.mock.patch("os.stat", side_effect=OSError(5, "Input/output error")):
            self.assertFalse(is_gone(self.state))


class DyingReplicaTest(LauncherCase):
    def test_one_that_dies_again_and_again_is_tried_for_ever(self):
        said = []
        supervisor = Supervisor(parse(["--state-dir", str(self.state), "--", "listen"]), said.append)

        class Dead:
            number, state_dir = 2, self.state / "r2"

        pauses = []
        for restarts in (0, QUICK_RESTARTS, 1000):
            supervisor._restart_later(Dead, "its craned exited with status 1", 300, restarts)
            pauses.append(supervisor.backoff[2][2])
        self.assertTrue(all(pauses))
        self.assertIn("tried again for ever", "\n".join(said))

    def test_one_that_served_between_its_deaths_is_not_kept_down_for_longer(self):
        supervisor = Supervisor(parse(["--state-dir", str(self.state), "--", "listen"]), lambda _: None)
        now = time.monotonic()

        class Died:
            number, state_dir, pidfd = 2, self.state / "r2", 7
            row = {"since": now - 12}
            served = False

            @staticmethod
            def ended():
                return "was killed by signal 9"

            @staticmethod
            def reap():
                pass

        supervisor.backoff[2] = (80.0, 7, 0)
        supervisor._watch_one(Died)
        seconds, restarts, at = supervisor.backoff[2]
        self.assertTrue(12 <= seconds < 20, seconds)
        self.assertEqual(restarts, 7)  # it is still told as one that dies in a row
        self.assertGreater(at, now)
        Died.row = {"since": time.monotonic()}  # one that served nothing waits as long as it did
        supervisor.backoff[2] = (80.0, 7, 0)
        supervisor._watch_one(Died)
        self.assertEqual(supervisor.backoff[2][0], 80.0)
        Died.served = True
        supervisor.backoff[2] = (80.0, 20, 0)
        supervisor._watch_one(Died)
        seconds, restarts, _ = supervisor.backoff[2]
        self.assertLessEqual(seconds, 5)
        self.assertLess(restarts, QUICK_RESTARTS)

    def test_edited_settings_of_a_replica_stay(self):
        process, _ = self.start("listen")
        path = self.state / "r2/craned.toml"
        path.write_text(path.read_text().replace("watchdog_s = ", "watchdog_s = 1"))
        edited = path.read_text()
        before = self.run_record()["replicas"][1]["pid"]
        os.kill(before, signal.SIGKILL)
        self.read_until(process, "restarting it")
        eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, before))
        self.assertEqual(path.read_text(), edited)
        self.stop(process)

    def test_deleted_folder_is_made_again_and_the_replica_rejoins(self):
        process, _ = self.start("listen")
        before = self.run_record()["replicas"][1]["pid"]
        shutil.rmtree(self.state / "r2")
        self.assertIn("r2 was deleted while its replica runs", self.read_until(process, "was deleted"))
        eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, before), 30)
        self.assertIn("rejoin = true", (self.state / "r2/craned.toml").read_text())
        self.stop(process)


    def test_folder_of_which_only_its_name_is_left_counts_as_deleted(self):
        process, _ = self.start("listen")
        before = self.run_record()["replicas"][1]["pid"]
        shutil.rmtree(self.state / "r2/db")
        (self.state / "r2/craned.toml").unlink()
        self.assertIn("r2/db was deleted while its replica runs", self.read_until(process, "was deleted"))
        eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, before), 30)
        self.assertIn("rejoin = true", (self.state / "r2/craned.toml").read_text())
        self.stop(process)

    def restarted(self, process, number):
        """What crane-run says until that replica, killed, is there again."""
        before = self.run_record()["replicas"][number - 1]["pid"]
        os.kill(before, signal.SIGKILL)
        text = self.read_until(process, "restarting it")
        eventually(lambda: self.run_record()["replicas"][number - 1]["pid"] not in (0, before), 30)
        return text

    def test_deleted_configuration_is_written_again(self):
        process, _ = self.start("listen")
        path = self.state / "r2/craned.toml"
        wanted = path.read_text()
        path.unlink()
        self.restarted(process, 2)
        self.assertIn("r2/craned.toml was deleted: it is written anew", self.read_until(process, "written anew"))
        self.assertEqual(path.read_text(), wanted)
        self.assertIn("rejoin = true", wanted)
        self.stop(process)

    def test_configuration_that_is_garbage_is_written_again_and_kept(self):
        process, _ = self.start("listen")
        path = self.state / "r2/craned.toml"
        wanted = path.read_text()
        (self.state / "r3/craned.toml").write_bytes(b"\xff")  # of another one, which runs on
        for garbage in (b"\0\xff\xfe", b"cluster_id = ", b"replica_id = 1\nreplica_id = 2\n"):
            path.write_bytes(garbage)
            self.restarted(process, 2)
            self.assertRegex(self.read_until(process, "written anew"), "r2/craned.toml is no TOML any more .*unreadable")
            self.assertEqual(path.read_text(), wanted)
            self.assertEqual((self.state / "r2/craned.toml.unreadable").read_bytes(), garbage)
        self.stop(process)

    def test_all_folders_deleted_at_once_are_made_again_one_by_one(self):
        process, _ = self.start("listen")
        before = {row["id"]: row["pid"] for row in self.run_record()["replicas"]}
        for number in before:
            shutil.rmtree(self.state / f"r{number}")

        def anew():
            return {row["id"] for row in self.run_record()["replicas"] if row["pid"] not in (0, before[row["id"]])}

        most = 0
        for _ in before:
            done = anew()
            eventually(lambda done=done: len(anew()) > len(done), 30)
            most = max(most, len(anew()) - len(done))
        self.assertEqual((anew(), most), ({1, 2, 3}, 1))
        for number in before:
            self.assertIn("rejoin = true", (self.state / f"r{number}/craned.toml").read_text())
        self.stop(process)

    def test_whole_state_directory_deleted_is_made_again(self):
        process, _ = self.start("listen")
        before = self.run_record()["replicas"][1]["pid"]
        shutil.rmtree(self.state)
        self.read_until(process, "was deleted")
        eventually(lambda: (self.state / "run.json").exists() and self.run_record()["replicas"][1]["pid"] not in (0, before), 40)
        eventually(lambda: all((self.state / f"r{n}/control.sock").exists() for n in (1, 2, 3)), 40)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)


class StateDirectoryTest(LauncherCase):
    def test_directory_of_a_craned_is_refused(self):
        self.state.mkdir()
        (self.state / "db").mkdir()
        code, text = self.finish("listen")
        self.assertEqual(code, 1)
        self.assertRegex(text, "one replica's own directory .db is in it.*another --state-dir")
        self.assertFalse((self.state / "r1").exists())

    def test_planted_lock_is_not_followed(self):
        self.state.mkdir()
        target = self.dir / "precious"
        target.write_text("keep")
        (self.state / "lock").symlink_to(target)
        self.assertEqual(self.finish("listen")[0], 1)
        self.assertEqual(target.read_text(), "keep")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a directory away")
    def test_root_starts_nothing_in_anothers_directory(self):
        self.state.mkdir()
        os.chown(self.state, 65534, 65534)
        code, text = self.finish("listen")
        self.assertEqual(code, 1)
        self.assertIn("chown root", text)


class WordsTest(LauncherCase):
    def test_newer_record_is_refused(self):
        self.state.mkdir()
        (self.state / "run.json").write_text('{"version": 99, "replicas": []}')
        self.assertIn("its version is 99", self.finish("listen")[1])

    def test_variable_without_a_name_is_a_wrong_option(self):
        code, text = self.finish("listen", options=("--env", "=x"))
        self.assertEqual(code, 2)
        self.assertIn("--env =x: write NAME=value", text)

    def test_server_that_ended_is_not_said_to_have_not_started(self):
        text = self.finish("exit", "3")[1]
        self.assertIn("the server exit ended before it served anybody: exited with status 3", text)
        self.assertNotIn("did not start", text)

    def test_start_that_fails_says_what_status_would(self):
        text = self.finish("never", options=("--timeout-s", "1"))[1]
        self.assertIn("did not start", text)
        self.assertEqual(text.count("no checkpoint is to be had"), 3, text)
        self.assertNotIn("    starting\n", text)  # said already

    def test_ready_without_a_port_says_that_nobody_is_served(self):
        process = self.spawn("mute", options=("--timeout-s", "1"))
        text = self.read_until(process, "ready, without a port")
        self.assertIn("listens on no TCP port after 1 s", text)
        self.assertRegex(text, "replica 2 still replays its log: 7 entries are left")
        self.stop(process)


if __name__ == "__main__":
    unittest.main()
