"""Tasks of the role that need no host of their own are played on this machine, as whoever has the inventory plays them."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
from datetime import datetime, timezone

ROLES = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ansible" / "roles"
WEEK_S = 7 * 86400


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, timeout=60).stdout


@unittest.skipUnless(shutil.which("ansible-playbook") and shutil.which("openssl"), "without ansible no task can be played")
class PlayedCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="crane-played-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def play(self, tasks, options=(), **said):
        """One file of tasks; what it says."""
        book = [{"hosts": "host", "gather_facts": False, "vars": {"crane_cluster": "web", "crane_replica": 1, "crane_replicas": ["host"]} | said,
                 "tasks": [{"ansible.builtin.import_role": {"name": "crane", "tasks_from": tasks}}]}]
        (self.dir / "book.yml").write_text(json.dumps(book))
        (self.dir / "hosts").write_text("[crane]\nhost ansible_connection=local\n[all:vars]\nansible_python_interpreter=/usr/bin/python3\n")
        done = subprocess.run(["ansible-playbook", "-i", self.dir / "hosts", *options, self.dir / "book.yml"], capture_output=True, text=True,
                              check=False, timeout=300, umask=0o022,
                              env=os.environ | {"ANSIBLE_ROLES_PATH": str(ROLES), "ANSIBLE_LOCAL_TEMP": str(self.dir / "temp"), "HOME": str(self.dir)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


class CertificatesTest(PlayedCase):
    def setUp(self):
        super().setUp()
        self.secrets, self.tls = self.dir / "secrets", self.dir / "etc" / "tls" / "web"
        self.tls.parent.parent.mkdir()
        self.own = self.secrets / "replica-1"

    def play_them(self, **said):
        return self.play("certificates", crane_secrets=str(self.secrets), crane_tls=str(self.tls), **said)

    def assert_shipped(self):
        for name, folder in {"ca.crt": self.secrets, "replica.crt": self.own, "replica.key": self.own}.items():
            self.assertEqual((self.tls / name).read_bytes(), (folder / name).read_bytes(), name)
            self.assertEqual((self.tls / name).stat().st_mode & 0o777, 0o600 if name.endswith("key") else 0o644, name)
        public = run("openssl", "x509", "-noout", "-pubkey", "-in", self.tls / "replica.crt")
        self.assertEqual(public, run("openssl", "pkey", "-pubout", "-in", self.tls / "replica.key"))
        self.assertEqual(sorted(path.name for path in self.tls.iterdir()), ["ca.crt", "replica.crt", "replica.key"])

    def dates(self, file):
        def seconds(which):
            text = run("openssl", "x509", "-noout", which, "-in", file).strip().split("=", 1)[1]
            return datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=timezone.utc).timestamp()
        return seconds("-startdate"), seconds("-enddate")

    def test_they_are_valid_on_a_host_whose_clock_is_behind(self):
        self.play_them(crane_certificate_days=100)
        for file, days in ((self.secrets / "ca.crt", 3650), (self.own / "replica.crt", 100)):
            begins, ends = self.dates(file)
            self.assertAlmostEqual(begins, time.time() - WEEK_S, delta=86400 / 2, msg=file)
            self.assertAlmostEqual(ends, time.time() + days * 86400, delta=86400 / 2, msg=file)
        self.assert_shipped()
        self.assertIn("OK", run("openssl", "verify", "-x509_strict", "-CAfile", self.tls / "ca.crt", self.tls / "replica.crt"))
        cluster = (self.secrets / "cluster_id").read_text().split()[0]
        for file, name, words in (("ca.crt", f"crane://{cluster}", ("CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign")),
                                  ("replica.crt", f"crane://{cluster}/1", ("CA:FALSE", "Digital Signature", "TLS Web Server", "TLS Web Client"))):
            text = run("openssl", "x509", "-noout", "-text", "-in", self.tls / file)
            self.assertRegex(text, f"URI:{name}\n")
            for word in words:
                self.assertIn(word, text)
        for key in (self.secrets / "ca.key", self.own / "replica.key"):
            self.assertEqual(key.stat().st_mode & 0o777, 0o600)

    def test_played_again_they_change_when_they_end_soon_and_are_shipped_whole(self):
        self.play_them()
        first = (self.own / "replica.crt").read_bytes()
        self.assertIn("changed=0 ", self.play_them())
        # A run that was broken off between the two has left a pair that is none, and a folder.
        foreign = self.dir / "foreign.key"
        run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", foreign)
        foreign.replace(self.tls / "replica.key")
        (self.tls / "new").mkdir()
        (self.tls / "new" / "replica.crt").write_text("part")
        self.play_them()
        self.assert_shipped()
        (self.tls / "replica.key").chmod(0o644)
        self.play_them()
        self.assert_shipped()
        self.assertEqual((self.own / "replica.crt").read_bytes(), first)
        authority = (self.secrets / "ca.crt").read_bytes()
        self.play_them(crane_renewal_days=900)
        self.assertNotEqual((self.own / "replica.crt").read_bytes(), first)
        self.assertEqual((self.secrets / "ca.crt").read_bytes(), authority)
        self.assert_shipped()


class TakeTest(PlayedCase):
    def test_what_only_root_may_read_there_is_for_its_taker_alone_here(self):
        if os.geteuid() != 0:
            self.skipTest("becomes root, which only root does unasked")
        for part in ("", "left by a run that was broken off, for all to read"):
            there, here = self.dir / "there", self.dir / ("again" if part else "results") / "web"
            there.write_text("secret")
            there.chmod(0o600)
            if part:
                here.mkdir(parents=True)
                (here / "backup.part").write_text(part)
                (here / "backup.part").chmod(0o644)
            self.play("take", ["-b", "--become-method", "su"], crane_take_from=str(there), crane_take_part=str(here / "backup.part"),
                      crane_take_to=str(here / "backup.tar"))
            self.assertEqual((here / "backup.tar").read_text(), "secret")
            self.assertEqual((here / "backup.tar").stat().st_mode & 0o777, 0o600)
            self.assertFalse(there.exists())
            if not part:
                self.assertEqual(here.stat().st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main()
