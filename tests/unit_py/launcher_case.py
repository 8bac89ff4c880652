"""A state directory of its own, a craned that only pretends, and crane-run and crane as an operator types them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

from crane_launch import processes  # noqa: E402  pylint: disable=wrong-import-position


def eventually(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("it did not come about in time")


CONFIGS = tempfile.TemporaryDirectory(prefix="crane-configs-")  # until the process ends, whoever runs the tests


def write_config(text):
    path = pathlib.Path(tempfile.mkdtemp(dir=CONFIGS.name)) / "c.toml"
    path.write_text(text)
    return str(path)


class LauncherCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="crane-run-test-"))
        self.state = self.dir / "state"
        build = self.dir / "build"
        (build / "bin").mkdir(parents=True)
        (build / "lib").mkdir()
        shutil.copy(HERE / "fake_craned.py", build / "bin" / "craned")
        (build / "bin" / "crane-init").touch()
        (build / "lib" / "libcrane.so").touch()
        self.environment = os.environ | {"CRANE_BUILD": str(build)}
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        for pid, start in self.ours():  # of a test that failed
            processes.send_signal(pid, start, signal.SIGKILL)
        shutil.rmtree(self.dir)

    def ours(self):
        return processes.find(lambda words, pid: any(word.startswith(str(self.state)) for word in words))

    def words(self, *server, options=()):
        return [str(SCRIPTS / "crane-run"), "--isolation", "none", "--state-dir", str(self.state), *options, "--", *server]

    def finish(self, *server, options=(), **how):
        done = subprocess.run(self.words(*server, options=options), env=self.environment, capture_output=True,
                              text=True, timeout=60, check=False, **how)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        return done.returncode, done.stdout + done.stderr

    def spawn(self, *server, options=(), words=None, stderr=subprocess.STDOUT):
        process = subprocess.Popen(words or self.words(*server, options=options), env=self.environment,
                                   stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.started.append(process)
        return process

    def start(self, *server, options=()):
        process = self.spawn(*server, options=options)
        return process, self.read_until(process, "ready\n")

    @staticmethod
    def read_until(process, words):
        lines = []
        for line in process.stdout:
            lines.append(line)
            if words in line:
                return "".join(lines)
        raise AssertionError(f"no {words!r} in:\n" + "".join(lines))

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(self.ours(), [])

    def stop_early(self, process):
        """Before it was ready."""
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assertEqual(self.ours(), [])

    def run_record(self):
        return json.loads((self.state / "run.json").read_text())

    def crane(self, verb, *options):
        return subprocess.run([str(SCRIPTS / "crane"), verb, "--state-dir", str(self.state), *options],
                              capture_output=True, text=True, timeout=60, check=False)
