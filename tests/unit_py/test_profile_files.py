"""A server's profile is chosen by its name, and by nothing else."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import write_config  # noqa: E402
from crane_launch import LaunchError, profiles, settings  # noqa: E402

CRANES_OWN = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "profiles"


class ProfilesTest(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(self.home)}))

    def own(self, name, text):
        folder = self.home / "crane" / "profiles"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.toml").write_text(text)
        return str(folder / f"{name}.toml")

    def test_every_profile_of_cranes_is_right_and_says_what_it_was_tried_with(self):
        found = sorted(CRANES_OWN.glob("*.toml"))
        self.assertTrue(found)
        for path in found:
            chosen = settings.parse([path.stem])
            values, tested = profiles.read(path)
            self.assertEqual(chosen["command"], values["command"])
            self.assertTrue(tested, path)

    def test_a_command_behind_dashes_or_with_arguments_is_no_profile(self):
        self.own("mine", 'command = ["other"]\n')
        self.assertEqual(settings.parse(["mine"])["command"], ["other"])
        self.assertEqual(settings.parse(["--", "mine"])["command"], ["mine"])
        self.assertEqual(settings.parse(["--", "mine", "-x"])["command"], ["mine", "-x"])
        self.assertEqual(settings.parse(["unknown-to-all"])["command"], ["unknown-to-all"])
        self.assertEqual(settings.parse(["./mine"])["command"], ["./mine"])

    def test_the_users_own_come_first_and_options_before_them(self):
        self.own("redis", 'command = ["mine"]\nschedule = "parallel"\nwatchdog-s = 7\ninput-mib = 5\n')
        chosen = settings.parse(["redis"])
        self.assertEqual((chosen["command"], chosen["schedule"], chosen["user"]), (["mine"], "parallel", ""))
        file = write_config('command = ["from the file"]\nwatchdog-s = 8\ninput-mib = 6\n')
        chosen = settings.parse(["--config", file, "--input-mib", "9", "redis"])
        self.assertEqual([chosen[name] for name in ("command", "schedule", "watchdog-s", "input-mib")], [["mine"], "parallel", 8, 9])

    def test_mistakes_name_the_file(self):
        path = self.own("bad", 'schedule = "parallel"\n')
        with self.assertRaisesRegex(LaunchError, f"{path}: command is missing"):
            settings.parse(["bad"])
        path = self.own("bad", 'command = ["x"]\ntested = 3\n')
        with self.assertRaisesRegex(LaunchError, f'{path}: tested = 3: write text in quotes'):
            settings.parse(["bad"])
        path = self.own("bad", 'command = ["x"]\ncpus = 0\n')
        with self.assertRaisesRegex(LaunchError, f"{path}: cpus must be a number from 1"):
            settings.parse(["bad"])
        file = write_config('command = ["x"]\ntested = "no profile"\n')
        with self.assertRaisesRegex(LaunchError, "tested is not a setting"):
            settings.parse(["--config", file])


if __name__ == "__main__":
    unittest.main()
