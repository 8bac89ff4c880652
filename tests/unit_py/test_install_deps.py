"""scripts/install_deps.sh finds out what is missing, also when dpkg-query has never heard of a package."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/install_deps.sh"


class InstallDeps(unittest.TestCase):
    def check_with(self, dpkg_query):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "dpkg-query"
            fake.write_text("#!/bin/sh\n" + dpkg_query)
            fake.chmod(0o755)
            environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            return subprocess.run([SCRIPT, "--check"], env=environment, capture_output=True, text=True, check=False)

    def test_unknown_package_is_missing(self):
        done = self.check_with("echo 'g++ installed'; exit 1\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("libevent-dev", done.stdout + done.stderr)
        self.assertNotIn(" g++ ", done.stdout + done.stderr)

    def test_nothing_missing(self):
        names = 'for name; do case "$name" in -*|*Package*) ;; *) echo "$name installed" ;; esac; done\n'
        self.assertEqual(self.check_with(names).returncode, 0)


if __name__ == "__main__":
    unittest.main()
