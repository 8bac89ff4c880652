"""What the Makefile makes again: a library of a few sources, with a compiler that only pretends."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo object >"$out"
"""
MADE, TO_BE_MADE = 0, 1  # exit statuses of make -q


class MakefileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        self.compiler = self.build / "compiler"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)
        self.library = self.build / "lib" / "libtimebubble.a"
        self.make()

    def make(self, *words):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        return subprocess.run(["make", "-s", f"BUILD={self.build}", f"CXX={self.compiler}", *words, str(self.library)],
                              cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=120, check=False).returncode

    def members(self):
        listed = subprocess.run(["ar", "t", self.library], stdout=subprocess.PIPE, check=True)
        return sorted(listed.stdout.decode().split())

    def test_nothing_is_made_twice(self):
        self.assertEqual(self.make("-q"), MADE)

    def test_other_flags_make_it_again(self):
        self.assertEqual(self.make("-q", "OPT=-O1"), TO_BE_MADE)

    def test_another_version_makes_it_again(self):
        self.assertEqual(self.make("-q", "VERSION=99"), TO_BE_MADE)

    def test_a_source_that_is_gone_leaves_the_library(self):
        self.assertIn("rings.o", self.members())
        self.assertEqual(self.make("timebubble_SRCS=timebubble/batch.cpp"), MADE)
        self.assertEqual(self.members(), ["batch.o"])

    def test_the_example_of_a_configuration_names_where_it_is_installed(self):
        for name in ("bin/craned", "bin/crane", "bin/crane-init", "bin/crane-criu", "lib/libcrane.so"):
            path = self.build / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
        root = self.build / "root"
        subprocess.run(["make", "-s", "-o", "all", "install", f"BUILD={self.build}", f"CXX={self.compiler}", "PREFIX=/usr",
                        f"DESTDIR={root}"], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=120, check=True)
        example = root / "usr/share/doc/crane/examples/craned.toml"
        text = example.read_text(encoding="utf-8")
        for key in ("shim", "init"):
            path = re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE).group(1)
            self.assertTrue((root / path.lstrip("/")).is_file(), path)
        self.assertEqual(example.stat().st_mode & 0o777, 0o644)

    def test_what_a_recipe_did_not_finish_is_not_taken_for_made(self):
        self.compiler.write_text(COMPILER + "exit 1\n")
        (self.build / "obj" / "timebubble" / "batch.o").unlink()
        self.assertNotEqual(self.make(), MADE)
        self.assertFalse((self.build / "obj" / "timebubble" / "batch.o").exists())


if __name__ == "__main__":
    unittest.main()
