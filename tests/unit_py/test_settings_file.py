"""A configuration file is read strictly: no value of a wrong type is taken for another, least of all for --fresh."""

import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import write_config  # noqa: E402
from crane_launch import LaunchError, config_file, replica, settings  # noqa: E402


class SettingsFileTest(unittest.TestCase):
    def refusal(self, text):
        path = write_config(text if isinstance(text, str) else text.decode("latin-1"))
        if isinstance(text, bytes):
            pathlib.Path(path).write_bytes(text)
        with self.assertRaises(LaunchError) as caught:
            settings.parse(["--config", path, "--", "x"])
        self.assertIn(path, str(caught.exception))
        return str(caught.exception)

    def chosen(self, text):
        return settings.parse(["--config", write_config(text), "--", "x"])

    def test_exceptions_from_confinement_reach_craned(self):
        self.assertEqual(replica.confinement_toml(self.chosen("")), [])
        chosen = self.chosen('user = "redis"\ncapability = "CAP_NET_RAW"\nshow = ["/a", "/b"]\nnew-privileges = true\n'
                             'disk-quota-bytes = 33554432')
        self.assertEqual(replica.confinement_toml(chosen),
                         ["", "[confinement]", 'user = "redis"', 'capabilities = ["CAP_NET_RAW"]', 'show = ["/a", "/b"]',
                          "new_privileges = true", "disk_quota_bytes = 33554432"])

    def test_format_of_a_disk_quota_reaches_craned(self):
        chosen = self.chosen('disk-quota-bytes = 400000000\ndisk-format = "xfs"')
        self.assertEqual(replica.confinement_toml(chosen)[2:], ["disk_quota_bytes = 400000000", 'disk_format = "xfs"'])

    def test_least_quota_of_xfs_is_told_where_it_can_be_chosen(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        mebibytes, = re.findall(r"kLeastXfsBytes = (\d+) << 20", (root / "checkpoint/disk_quota.cpp").read_text())
        least = str(int(mebibytes) << 20)
        for page in ("crane-run.1", "craned.1"):
            self.assertIn(least, (root / "docs/man" / page).read_text(), page)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), self.assertRaises(SystemExit):
            settings.parse(["--help"])
        self.assertIn(least, shown.getvalue())

    def test_the_server_is_let_out_as_said(self):
        self.assertEqual(replica.egress_toml(self.chosen("")), [])
        chosen = self.chosen('egress = "primary"\negress-allow = "10.0.0.0/8:5432"')
        self.assertEqual(replica.egress_toml(chosen), ["", "[egress]", 'policy = "primary"', 'allow = ["10.0.0.0/8:5432"]'])
        for wrong in ('egress-allow = "10.0.0.1"', 'egress = "primary"\nmode = "proxy"'):
            with self.assertRaises(LaunchError):
                self.chosen(wrong)

    def test_own_addresses(self):
        chosen = self.chosen('own-address = ["10.0.0.5/24", "2001:db8::5/64"]')
        self.assertEqual(chosen["own-address"], ["10.0.0.5/24", "2001:db8::5/64"])
        self.assertEqual(chosen.identity()["own-address"], chosen["own-address"])  # as long as the log lasts
        for wrong in ('own-address = "10.0.0.5"', 'own-address = "127.0.0.1/8"', 'own-address = "host/24"', 'own-address = "10.0.0.5/24"\nmode = "proxy"',
                      'own-address = "10.0.0.5/24"\nisolation = "none"'):
            self.assertIn("own-address", self.refusal(wrong))

    def test_fresh_in_quotes_is_not_true(self):
        self.assertIn('fresh = "false": write fresh = true or fresh = false', self.refusal('fresh = "false"'))
        self.assertIs(self.chosen("fresh = false")["fresh"], False)

    def test_every_key_refuses_every_wrong_type(self):
        samples = ["true", "5", "1.5", '"text"', "[1, 2, 3]", '["a", 1]', "{ a = 1 }", "2020-01-01"]
        right = {"boolean": {"true"}, "integer": {"5"}, "number": {"5", "1.5"}, "string": {'"text"'},
                 "auto": {"5"}, "list": {'"text"'}}
        for name in config_file.KNOWN:
            kind = ("boolean" if name in config_file.BOOLEANS else "integer" if name in config_file.INTEGERS else
                    "number" if name in config_file.NUMBERS else "string" if name in config_file.STRINGS else
                    "auto" if name in config_file.AUTO_OR_INTEGER else "list" if name in config_file.LISTS else "")
            for sample in samples:
                if sample not in right.get(kind, ()):
                    with self.subTest(name=name, sample=sample):
                        self.assertRegex(self.refusal(f"{name} = {sample}"), rf"{name} = .*: write ")

    def test_what_was_found_and_what_to_write(self):
        for text, words in (("replicas = 3.0", "replicas = 3.0: write a whole number without quotes, such as replicas = 3"),
                            ("replicas = true", "replicas = true: write a whole number"),
                            ('command = "true"', 'command = "true": write a list, a word each'),
                            ("env = 5", 'env = 5: write a list of texts in quotes, such as env = ["NAME=value"]'),
                            ("port_map = 5", "port_map = 5: write a list of texts"),
                            ("fresh = true\nfresh = true", "not valid TOML"),
                            ('port-map = ["80:81"]\nport_map = ["80:82"]', "given twice"),
                            (b'hostname = "\xff"', "byte 12 is not UTF-8"),
                            ('hostname = "a b"', "hostname must be 1 to 63"),
                            ('env = ["A=\\u0000"]', "zero byte"),
                            ('state-dir = ""', "state-dir is empty"),
                            ("quantum = 0", "quantum must be a number from 1"),
                            ("timeout-s = nan", "timeout-s must be a number from 1")):
            with self.subTest(text=text):
                self.assertIn(words, self.refusal(text))

    def test_one_item_may_stand_without_a_list(self):
        chosen = self.chosen('port-map = "80:81"\nenv = "A=b,c"\nclient-address = "127.0.0.5, 127.0.0.6,127.0.0.7"')
        self.assertEqual(chosen["port-map"], {80: 81})
        self.assertEqual(chosen["env"], ["A=b,c"])
        self.assertEqual(chosen["client-address"], ["127.0.0.5", "127.0.0.6", "127.0.0.7"])

    def test_file_that_is_not_there_or_a_directory(self):
        for path in ("/no/such/file", tempfile.gettempdir()):
            with self.assertRaises(LaunchError) as caught:
                settings.parse(["--config", path, "--", "x"])
            self.assertIn("give an existing file", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
