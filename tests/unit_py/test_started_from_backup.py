"""Starts from a backup, as far as crane-run decides them."""

import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from crane_launch import LaunchError  # noqa: E402
from crane_launch.backup import read_launched  # noqa: E402
from crane_launch.settings import parse  # noqa: E402
from crane_launch.state import differences  # noqa: E402

IDENTITY = {"command": ["apache2", "-DFOREGROUND"], "cwd": "/srv/web", "replicas": 3, "mode": "full", "schedule": "parallel",
            "quantum": 1000, "isolation": "lxc", "cpus": 4, "memory-bytes": 0, "hostname": "web", "user": "", "group": "",
            "capability": ["CAP_NET_RAW"], "system-call": [], "device": [], "new-privileges": False, "hide": [], "show": []}
CONFIG = "[bubble]\nenabled = false\n[confinement]\ndisk_quota_bytes = 33554432\n"
LAUNCHED = {"identity": IDENTITY, "environment": ["A=1"], "env": ["A"], "port_map": {"80": 8080}}


class Backup(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def archive(self, text, name="backup.json"):
        path = self.dir / "file.backup"
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        return path

    def backup(self, launched):
        return self.archive(json.dumps({"backup": {"launched": launched, "craned.toml": CONFIG}}))

    def test_what_is_no_backup_is_refused(self):
        (self.dir / "text").write_text("not an archive")
        for path in (self.dir / "missing", self.dir / "text", self.dir, self.archive("{}", "another.json")):
            with self.assertRaises(LaunchError):
                read_launched(path)
        for text in ("", "{", "[]", "{}", '{"backup": 7}', '{"backup": {"launched": null}}', '{"backup": {"launched": {}}}'):
            with self.assertRaises(LaunchError):
                read_launched(self.archive(text))

    def test_what_is_no_file_is_named_before_it_is_opened(self):
        os.mkfifo(self.dir / "fifo")  # opening it would wait for a writer
        (self.dir / "empty").touch()
        for path, said in ((self.dir / "fifo", "is a fifo"), (self.dir / "empty", "is empty"), (self.dir, "is a directory"),
                           (pathlib.Path("/dev/null"), "is a device")):
            with self.assertRaisesRegex(LaunchError, f"^{path} {said}.*: "):
                read_launched(path)

    def test_server_is_started_as_it_was(self):
        settings = parse(["--restore", str(self.backup(LAUNCHED))])
        self.assertEqual(differences(IDENTITY, settings), [])
        self.assertEqual(settings["port-map"], {80: 8080})
        self.assertEqual((settings["disk-quota-bytes"], settings["no-time-bubble"]), (33554432, True))

    def test_record_of_before_there_was_the_backstop_means_that_there_was_none(self):
        self.assertEqual(parse(["--restore", str(self.backup(LAUNCHED))])["backstop"], "off")
        self.assertEqual(differences(IDENTITY, parse(["--restore", str(self.backup(LAUNCHED)), "--backstop", "on"])),
                         ["another backstop (off; now on)"])
        told = LAUNCHED | {"identity": IDENTITY | {"backstop": "on"}}
        self.assertEqual(parse(["--restore", str(self.backup(told))])["backstop"], "on")

    def test_cluster_may_have_another_size_and_ports(self):
        settings = parse(["--restore", str(self.backup(LAUNCHED)), "--replicas", "5", "--port-map", "80:9090"])
        self.assertEqual((settings["replicas"], settings["port-map"]), (5, {80: 9090}))
        self.assertEqual(differences(IDENTITY, settings, besides=("replicas",)), [])

    def test_options_that_contradict_it_are_seen(self):
        for words in (["--quantum", "7"], ["--schedule", "serial"], ["nginx"], ["--capability", "CAP_CHOWN"]):
            settings = parse(["--restore", str(self.backup(LAUNCHED)), *words])
            self.assertEqual(len(differences(IDENTITY, settings)), 1, words)  # also where it is the default


if __name__ == "__main__":
    unittest.main()
