"""Trouble while crane-run starts or runs: taken ports, full disks, signals, readers that leave. No traceback, no replica
lost for it."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import SCRIPTS, LauncherCase, eventually  # noqa: E402
from crane_launch import processes  # noqa: E402
from crane_launch.words import Speaker  # noqa: E402


def caught(pid, number):
    """Whether the process has a handler for the signal."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


class TakenPortTest(LauncherCase):
    def test_replica_whose_port_is_taken_is_named_and_not_called_ready(self):
        process, text = self.start("blocked", "2")
        self.assertRegex(text, "replica 1: 127.0.0.1:80  primary  server listening")
        self.assertRegex(text, "replica 2: CANNOT SERVE CLIENTS: cannot listen on 127.0.0.2:80: Address already in use")
        self.assertRegex(text, "warning: no client is served at replica 2;")
        self.assertNotRegex(text, "replica 2: 127.0.0.2")
        (self.state / "r2/port-is-free").touch()
        self.assertIn("replica 2 serves the clients of port 80 now", self.read_until(process, "serves the clients"))
        (self.state / "r2/port-is-free").unlink()
        self.assertIn("replica 2 cannot serve clients: cannot listen", self.read_until(process, "cannot serve"))
        self.stop(process)

    def test_no_replica_that_can_serve_is_no_start(self):
        code, text = self.finish("blocked", "1", "2", "3")
        self.assertEqual(code, 1)
        self.assertIn("no replica can serve clients", text)
        self.assertIn("replica 3: CANNOT SERVE CLIENTS: cannot listen on 127.0.0.3:80", text)
        self.assertNotIn("crane-run: ready", text)
        self.assertNotIn("no TCP port", text)


class FullDiskTest(LauncherCase):
    @unittest.skipUnless(os.geteuid() == 0, "only root mounts")
    def test_start_on_a_full_disk_gets_a_message(self):
        for room in (0, 1):
            self.state.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "crane-test", str(self.state)], check=True, timeout=20)
            try:
                with contextlib.suppress(OSError), open(self.state / "neighbour", "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
                os.truncate(self.state / "neighbour", (self.state / "neighbour").stat().st_size - 4096 * room)
                code, text = self.finish("listen")
            finally:
                subprocess.run(["umount", "-l", str(self.state)], check=True, timeout=20)
            self.state.rmdir()
            self.assertEqual(code, 1)
            self.assertRegex(text, "state.*No space left on device")
            self.assertEqual(self.ours(), [])

    def test_disk_that_fills_up_ends_no_replica(self):
        process, _ = self.start("listen")
        before = {row["id"]: row["pid"] for row in self.run_record()["replicas"]}
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        os.kill(before[2], signal.SIGKILL)
        self.assertIn("the replicas go on", self.read_until(process, "cannot be written"))
        for n in (1, 3):
            self.assertIsNotNone(processes.start_time(before[n]))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.read_until(process, "can be written again")
        eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, before[2]))
        self.stop(process)


class SignalTest(LauncherCase):
    def test_ctrl_c_during_a_detached_start_stops_the_cluster(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.spawn("never", options=("--detach",))
            eventually(lambda: len(self.ours()) >= 5)
            process.send_signal(number)
            text = process.communicate(timeout=20)[0]
            self.assertEqual(process.returncode, 128 + number)
            self.assertNotIn("Traceback", text)
            self.assertEqual(self.ours(), [])

    def test_ctrl_c_before_anything_is_started_leaves_no_traceback(self):
        for program in ("crane-run", "crane"):
            words = self.words("never") if program == "crane-run" else [str(SCRIPTS / "crane"), "stop", "--state-dir", "/"]
            process = self.spawn(words=words)
            # Python has its own handler at first, and ours takes its place; seen late, it is running by then.
            late = time.monotonic() + 1
            seen = False
            while process.poll() is None and time.monotonic() < late and not (seen and not caught(process.pid, 2)):
                seen = seen or caught(process.pid, 2)
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=20)[0]
            self.assertNotIn("Traceback", text)
            self.assertNotIn("KeyboardInterrupt", text)
        self.assertEqual(self.ours(), [])

    def test_interrupted_start_has_a_status_of_its_own(self):
        process = self.spawn("never")
        eventually(lambda: len(self.ours()) >= 4)
        self.stop_early(process)

    def test_nohup_is_respected(self):
        process = self.spawn(words=["nohup", *self.words("listen")])
        self.read_until(process, "ready\n")
        process.send_signal(signal.SIGHUP)
        os.kill(self.run_record()["replicas"][1]["pid"], signal.SIGKILL)
        self.read_until(process, "restarting it")  # it still watches
        self.stop(process)

    def test_reader_that_leaves_ends_nothing(self):
        for options in (("--detach",), ()):
            process = self.spawn("listen", options=options, stderr=subprocess.PIPE)
            process.stdout.readline()
            process.stdout.close()
            if options:
                self.assertEqual(process.wait(20), 0)
            else:
                eventually(lambda: self.run_record()["supervisor"].get("pid") == process.pid and len(self.ours()) >= 4)
            self.assertGreaterEqual(len(self.ours()), 4)
            self.assertEqual(self.crane("stop").returncode, 0)
            process.wait(20)
            self.assertEqual(process.stderr.read(), "")
            process.stderr.close()


    def test_reader_that_reads_nothing_stops_no_supervision(self):
        read_end, write_end = os.pipe()
        for descriptor in (read_end, write_end):
            self.addCleanup(os.close, descriptor)
        os.set_blocking(write_end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write_end, b"x" * 4096)
        os.set_blocking(write_end, True)
        process = subprocess.Popen(self.words("listen"), env=self.environment, stdout=write_end, stderr=write_end)
        try:
            def pid():
                return self.run_record()["replicas"][1]["pid"] if (self.state / "run.json").exists() else 0
            before = eventually(pid)
            eventually(lambda: self.run_record()["ready"])
            for _ in range(2):
                os.kill(before, signal.SIGKILL)
                before = eventually(lambda known=before: pid() not in (0, known) and pid())
            self.assertEqual(self.crane("stop").returncode, 0)
            self.assertEqual(process.wait(20), 0)
            self.assertEqual(self.ours(), [])
        finally:
            process.kill()
            process.wait()


class ClosedDescriptorsTest(LauncherCase):
    def opened(self, pid):
        return [os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)]

    def test_no_file_of_its_own_is_taken_for_input_or_output(self):
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            def close(numbers=closed):
                for number in numbers:
                    os.close(number)
            process = subprocess.Popen(self.words("listen"), env=self.environment, preexec_fn=close, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                eventually(lambda: (self.state / "run.json").exists() and self.run_record()["supervisor"].get("pid") == process.pid
                           and len(self.ours()) >= 4)
                self.assertEqual(self.opened(process.pid), ["/dev/null"] * 3)
                self.assertEqual((self.state / "lock").read_text().strip(), str(process.pid))
            finally:
                process.terminate()
                process.wait(20)
            done = subprocess.run([str(SCRIPTS / "crane"), "stop", "--state-dir", str(self.state)], preexec_fn=close,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 0)


class SpeakerTest(unittest.TestCase):
    def test_what_is_left_out_is_counted_and_told(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, write_end)
        speaker = Speaker(write_end)
        speaker.MOST_LINES = 100
        for number in range(200):
            speaker.say(f"{number} {'x' * 4000}\n")
        with os.fdopen(read_end, "rb") as reader:
            text = ""
            while "left out" not in text:
                text = reader.readline().decode()
        self.assertRegex(text, "crane-run: [0-9]+ lines were left out here")
        speaker.settle()
        self.assertFalse(speaker.lines)


class MessageTest(LauncherCase):
    def test_status_is_the_servers_when_it_ends_by_itself(self):
        for code in (0, 3):
            switch = self.dir / f"end-{code}"
            process = self.spawn("end-if", str(switch), str(code), options=("--fresh",))
            self.read_until(process, "ready\n")
            switch.touch()
            self.assertIn(f"exited with status {code}", self.read_until(process, "ended on all"))
            self.assertEqual(process.wait(20), 1 if code else 0)

    def test_command_that_ends_well_is_told_that_it_is_no_server(self):
        code, text = self.finish("exit", "0")
        self.assertEqual(code, 1)
        self.assertIn("give the command that is the server", text)
        self.assertNotIn("give the command", self.finish("exit", "3", options=("--fresh",))[1])

    def test_empty_state_dir_is_refused(self):
        words = [str(SCRIPTS / "crane-run"), "--state-dir", "", "--", "listen"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--state-dir is empty", done.stdout)
        done = subprocess.run([str(SCRIPTS / "crane"), "stop", "--state-dir", ""], capture_output=True, text=True,
                              timeout=20, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--state-dir is empty", done.stderr)

    def test_working_directory_that_is_gone(self):
        gone = self.dir / "gone"
        gone.mkdir()
        code, text = self.finish("listen", cwd=gone, preexec_fn=gone.rmdir)
        self.assertEqual(code, 2)
        self.assertIn("change to one that exists", text)

    def test_record_that_is_json_and_no_record(self):
        self.state.mkdir()
        for text in ("[]", '{"replicas": 5}', '{"replicas": [{}]}', '{"replicas": [], "identity": 3}',
                     json.dumps({"replicas": [{"id": 1, "pid": "x"}]})):
            (self.state / "run.json").write_text(text)
            self.assertIn("run.json is damaged", self.finish("listen")[1])


if __name__ == "__main__":
    unittest.main()
