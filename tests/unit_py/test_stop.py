"""crane stop: ends what runs, removes what a crash left, and says so; the same with --json."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import SCRIPTS, LauncherCase, eventually  # noqa: E402
from crane_launch import LaunchError, leftovers, stop  # noqa: E402

NOBODY = 65534


class StopTest(LauncherCase):
    def stop_json(self):
        done = self.crane("stop", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_json_removes_what_a_crash_left_and_says_so(self):
        process, _ = self.start("listen")
        process.kill()  # and not waited for: a zombie
        memory = pathlib.Path("/dev/shm") / self.run_record()["replicas"][0]["container"]
        memory.mkdir()
        self.addCleanup(shutil.rmtree, memory, ignore_errors=True)
        begun = time.monotonic()
        result = self.stop_json()
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(result["stopped"], [1, 2, 3])
        self.assertIn(str(memory), result["removed"])
        self.assertFalse(memory.exists())
        self.assertEqual(self.ours(), [])
        self.assertEqual(self.stop_json(), {"stopped": [], "ended": [], "removed": []})

    def test_json_of_a_polite_stop(self):
        process, _ = self.start("listen")
        self.assertEqual(self.stop_json()["stopped"], ["crane-run"])
        self.assertEqual(process.wait(20), 0)

    def test_start_that_is_not_on_record_yet_is_stopped(self):
        process = self.spawn("never")
        eventually(lambda: len(self.ours()) >= 4)
        (self.state / "run.json").unlink()
        self.assertEqual(self.stop_json()["stopped"], ["crane-run"])
        self.assertEqual(process.wait(20), 128 + 15)
        self.assertEqual(self.ours(), [])

    def test_craned_that_nobody_recorded_is_stopped(self):
        process, _ = self.start("listen")
        process.kill()
        process.wait()
        (self.state / "run.json").unlink()
        self.assertEqual(self.stop_json()["stopped"], [1, 2, 3])
        self.assertEqual(self.ours(), [])

    def test_another_users_cluster_is_refused_at_once(self):
        shared = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, shared)
        shared.chmod(0o755)
        is_root = os.geteuid() == 0
        # The scripts where that user can read them, for root's home is closed to her.
        shutil.copytree(SCRIPTS, shared / "scripts")
        words = [str(shared / "scripts/crane"), "stop", "--json", "--state-dir", str(shared if is_root else "/usr")]
        begun = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False, cwd="/",
                              **({"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}))
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(json.loads(done.stdout)["error"], "is root's and not yours")

    def test_where_nothing_runs_is_told_from_where_nothing_ever_did(self):
        with tempfile.TemporaryDirectory() as never, tempfile.TemporaryDirectory() as one_of_several_hosts:
            (pathlib.Path(one_of_several_hosts) / "db").mkdir()
            for folder, said in ((never, "nothing was ever started"), (one_of_several_hosts, "nothing runs here")):
                done = subprocess.run([SCRIPTS / "crane", "stop", "--state-dir", folder], capture_output=True, text=True, check=False,
                                      timeout=60)
                self.assertIn(said, done.stdout + done.stderr)

    def one_replicas_own(self, *server):
        """A craned with a state directory of its own, as on one of several hosts."""
        self.state.mkdir(exist_ok=True)
        config = self.state / "craned.toml"
        config.write_text(f"replica_id = 1\nstate_dir = {json.dumps(str(self.state))}\nserver = {json.dumps(server)}\nenvironment = []\n"
                          "[port_map]\n[[replica]]\nid = 1\nclient_address = '127.0.0.1'\n")
        process = self.spawn(words=[sys.executable, str(self.dir / "build" / "bin" / "craned"), "--config", str(config)])
        eventually(lambda: (self.state / "control.sock").exists())
        return process

    def test_craned_that_does_not_answer_is_no_nothing(self):
        process = self.one_replicas_own("listen")
        process.send_signal(signal.SIGSTOP)
        done = self.crane("stop", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout), {"stopped": [0], "ended": [process.pid], "removed": []})
        self.assertEqual(process.wait(5), -signal.SIGKILL)
        self.assertEqual(self.stop_json(), {"stopped": [], "ended": [], "removed": []})

    def test_whoever_else_works_on_the_directory_is_named(self):
        self.state.mkdir()
        with open(self.state / "craned.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.crane("stop", "--json")
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertRegex(json.loads(done.stdout)["error"], rf"\(pid {os.getpid()}\) holds {self.state}, and does not end")
        self.assertEqual(self.stop_json()["stopped"], [])

    def test_craned_of_a_unit_is_left_to_its_service_manager(self):
        process = self.one_replicas_own("listen")
        process.send_signal(signal.SIGSTOP)
        with mock.patch.object(stop, "unit_of", return_value="crane@web.service"), \
                self.assertRaisesRegex(LaunchError, rf"pid {process.pid}\) does not answer, and is .*: systemctl stop crane@web.service"):
            stop.stop_cluster(self.state, lambda line: None)
        self.assertIsNone(process.poll())

    def test_craned_that_answers_and_ends_slowly_is_not_killed(self):
        may_end = self.dir / "may-end"
        process = self.one_replicas_own("slow", str(may_end))
        later = threading.Timer(1, may_end.touch)
        self.addCleanup(later.cancel)
        with mock.patch.object(stop, "STOP_WAIT_S", 0.2):
            later.start()
            done = stop.stop_cluster(self.state, lambda line: None)
        self.assertEqual((done.asked, done.ended, process.wait(5)), ([1], [], 0))

    def test_craned_that_answers_and_does_not_end_is_killed_in_the_end(self):
        process = self.one_replicas_own("slow", str(self.dir / "never"))
        with mock.patch.object(stop, "END_WAIT_S", 0.5):
            self.assertEqual(stop.stop_cluster(self.state, lambda line: None).ended, [process.pid])
        self.assertEqual(process.wait(5), -signal.SIGKILL)

    def test_craned_of_a_unit_that_ends_slowly_is_not_killed_to_be_begun_again(self):
        for what in (("slow", str(self.dir / "never")), ("deaf",)):
            with self.subTest(what[0]):
                process = self.one_replicas_own(*what)
                with mock.patch.object(stop, "unit_of", return_value="crane@web.service"), \
                        mock.patch.multiple(stop, STOP_WAIT_S=0.2, END_WAIT_S=0.5), \
                        self.assertRaisesRegex(LaunchError, rf"\(pid {process.pid}\) was asked to end.*: systemctl stop crane@web.service"):
                    stop.stop_cluster(self.state, lambda line: None)
                self.assertIsNone(process.poll())
                process.kill()
                process.wait()
                (self.state / "control.sock").unlink()

    def test_it_is_given_up_before_systemd_kills_and_begins_again(self):
        unit = (SCRIPTS / "packaging/debian/crane@.service").read_text()
        self.assertLess(stop.END_WAIT_S, int(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.M)[1]))

    def test_usage_errors_have_status_2(self):
        self.assertEqual(self.crane("stop", "--no-such-option").returncode, 2)


class LeftoversTest(unittest.TestCase):
    def test_cgroups_locks_and_memory_are_removed_and_named(self):
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            mine = [top / "cgroup/lxc.payload.crane-1234-1", top / "cgroup/sub/session/lxc.monitor.crane-1234-1-2",
                    top / "lock/state", top / "shm/crane-1234-1"]
            others = [top / "cgroup/lxc.payload.crane-1234-11", top / "lock/other", top / "shm/crane-1234-2"]
            for folder in (*mine, *others, mine[1] / "within"):
                folder.mkdir(parents=True)
            run = {"replicas": [{"id": 1, "container": "crane-1234-1"}]}
            with mock.patch.multiple(leftovers, CGROUPS=top / "cgroup", LXC_LOCKS=top / "lock", SHARED_MEMORY=top / "shm"):
                cleaned = leftovers.clean(pathlib.Path("/state"), run)
            self.assertEqual(sorted(cleaned.removed), sorted(map(str, mine)))
            self.assertFalse(any(folder.exists() for folder in mine))
            self.assertTrue(all(folder.exists() for folder in others))

    def test_a_disk_that_the_operator_mounted_stays(self):
        points = ("/state/r1", "/state/r1/container/lxc", "/state/r1/db", "/state/r12/container", "/other/r1/container", "/state/r1/base",
                  "/state/r1/base/x")
        mountinfo = "".join(f"1 2 3:4 / {point} rw - ext4 /dev/x rw\n" for point in points)
        self.assertEqual(leftovers.our_mounts(pathlib.Path("/state"), mountinfo.encode()),
                         ["/state/r1/container/lxc", "/state/r12/container", "/state/r1/base"])


if __name__ == "__main__":
    unittest.main()
