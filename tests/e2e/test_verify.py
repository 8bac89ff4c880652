"""crane verify: programs and servers tried alone, several times, under disturbance."""

import json
import pathlib
import shutil
import subprocess
import tempfile

from support.case import CraneTest
from support.paths import CRANE, PROGRAMS
from support.servers import Redis

LIMIT_S = 120


class Verify(CraneTest):
    lane = 3
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="crane-verify-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.dir.chmod(0o755)

    def drawing(self):
        self.built_program("drawing")
        shutil.copy(PROGRAMS / "drawing", self.dir / "drawing")
        return self.dir / "drawing"

    def verify(self, *words):
        done = subprocess.run([str(word) for word in (CRANE, "verify", "--json", *words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, json.loads(done.stdout)

    def test_program_whose_runs_are_the_same(self):
        program = self.drawing()
        (self.dir / "input").write_text("one\ntwo\n")
        code, found = self.verify("--input", self.dir / "input", "--", program)
        self.assertEqual((code, found["same"], found["runs"]), (0, True, 3), found)
        self.assertGreater(found["operations"], 4 * 500 * 2)
        self.assertGreater(found["output_bytes"], 4 * 500 + len("read one\nread two\n"))
        self.assertIn("status 0", found["end"])

    def test_end_of_the_program_is_told(self):
        code, found = self.verify("--runs", "2", "--", self.drawing(), "fail")
        self.assertEqual((code, found["same"], found["runs"]), (0, True, 2), found)
        self.assertIn("status 3", found["end"])

    def test_pids_of_the_host_make_no_difference(self):
        code, found = self.verify("--isolation", "none", "--", self.drawing(), "fail")
        self.assertEqual((code, found["same"], found["runs"]), (0, True, 3), found)
        self.assertIn("status 3", found["end"])

    def test_runs_that_differ_are_told_with_the_operation_and_its_caller(self):
        code, found = self.verify("--env", "CRANE_RDRAND=real", "--state-dir", self.dir / "kept", "--", self.drawing(), "roll")
        self.assertEqual((code, found["same"]), (1, False), found)
        text = "\n".join(found["differences"])
        self.assertIn("stdout: runs 1 and 2 differ in line 2", text)
        self.assertIn("part at operation", text)
        self.assertRegex(text, r"1: clock \d+ slot 0 \w+ ")
        self.assertIn("main (", text)  # as the debugging information has it
        self.assertTrue((self.dir / "kept" / "state" / "r1").is_dir())

    def test_server_and_its_client(self):
        server = Redis()
        self.addCleanup(server.remove)
        client = "for i in $(seq 50); do redis-cli -h $HOST -p $PORT INCR n >/dev/null || exit 1; done"
        code, found = self.verify("--client", client, "--", *server.command())
        self.assertEqual((code, found["same"]), (0, True), found)
        self.assertEqual(found["end"], "it was stopped")

    def test_what_cannot_be_run_is_said(self):
        code, found = self.verify("--", "/no/such/program")
        self.assertEqual(code, 2)
        self.assertIn("/no/such/program", found["error"])
