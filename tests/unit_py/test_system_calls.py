"""The table of system calls: whole, without contradiction, and as the manual shows it."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import system_calls  # noqa: E402


class SystemCalls(unittest.TestCase):
    def test_every_number_has_one_treatment(self):
        names = [name for name, _ in system_calls.treatments()]
        self.assertEqual(sorted(names), sorted(set(names)))
        self.assertEqual(set(names) ^ set(system_calls.numbers()), set())

    def test_what_is_served_has_a_wrapper(self):
        """libc's own function would make the same call again, which is trapped again, without end."""
        exported = " ".join(line for path in (ROOT / "interpose").glob("*.cpp") for line in path.read_text().splitlines()
                            if line.startswith("CRANE_EXPORT"))
        self.assertEqual([name for name in system_calls.served_by() if not re.search(rf"\b{name}\(", exported)], [])

    def test_the_page_shows_the_table(self):
        self.assertEqual(system_calls.PAGE.read_text(), system_calls.page(), "run scripts/system_calls.py")


if __name__ == "__main__":
    unittest.main()
