"""Which sources clang-tidy need not look at again: those of which nothing has changed, and no others."""

import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("tidy", ROOT / ".ci" / "tidy.py")
tidy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tidy)


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in {
                ".clang-tidy": "Checks: all", "part/a.cpp": '#include "part/a.hpp"\n#include <vector>\nint a;',
                "part/a.hpp": '#include "b.hpp"\n#include "part/a.hpp"', "part/b.hpp": "  #  include \"base/c.hpp\"",
                "base/c.hpp": "int c;", "part/other.hpp": "int other;"}.items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)

    def sum(self, version="14.0"):
        return tidy.sum_of("part/a.cpp", tidy.ground_of(version, self.root), self.root)

    def test_a_change_of_anything_it_depends_on_is_seen(self):
        sums = {self.sum(), self.sum("15.0")}
        for name in (".clang-tidy", "part/a.cpp", "part/a.hpp", "part/b.hpp", "base/c.hpp"):
            (self.root / name).write_text((self.root / name).read_text() + " ")
            sums.add(self.sum())
        self.assertEqual(len(sums), 7)

    def test_a_change_of_anything_else_is_not(self):
        before = self.sum()
        (self.root / "part" / "other.hpp").write_text("int another;")
        self.assertEqual(self.sum(), before)

    def test_what_is_recorded_is_read_back(self):
        record = self.root / "record"
        self.assertEqual(tidy.recorded(record), {})
        tidy.write_record({"b.cpp": "22", "a.cpp": "11"}, record)
        self.assertEqual(tidy.recorded(record), {"a.cpp": "11", "b.cpp": "22"})

    def test_no_source_but_the_tests_is_left_out(self):
        listed = tidy.sources()
        self.assertIn("proxy/craned.cpp", listed)
        self.assertFalse([name for name in listed if name.startswith("tests/")])
        for name in listed[::20]:
            self.assertIn(ROOT / name, dict(tidy.included(name)))


if __name__ == "__main__":
    unittest.main()
