"""The limits that a shell hands down: raised where that harms nobody, or refused by name."""

import pathlib
import re
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import LauncherCase  # noqa: E402
from crane_launch.limits import LIMITS, STACK_BYTES  # noqa: E402

LOW = {resource.RLIMIT_FSIZE: 1 << 20, resource.RLIMIT_CPU: 600, resource.RLIMIT_AS: 2 << 30, resource.RLIMIT_DATA: 1 << 30,
       resource.RLIMIT_STACK: 128 << 10, resource.RLIMIT_NOFILE: 100}


CRANED = pathlib.Path(__file__).resolve().parents[2] / "proxy" / "own_limits.cpp"
ROW = re.compile(r'\{(RLIMIT_[A-Z]+), "([^"]+)", "-(\w)", "(\w+)", (\w+)(?: << (\d+))?,')


class LimitsTest(LauncherCase):
    def test_craned_and_crane_run_ask_for_the_same(self):
        """But for the open files and message queues, which are no matter to a craned that is started by itself."""
        names = {"kAny": resource.RLIM_INFINITY, "kStackBytes": STACK_BYTES}
        rows = ROW.findall(CRANED.read_text(encoding="utf-8"))
        told = {getattr(resource, what): (name, letter, of_unit, names[least] if least in names else int(least.rstrip("UL")) << int(shift or 0))
                for what, name, letter, of_unit, least, shift in rows if hasattr(resource, what)}
        here = {row[0]: row[1:5] for row in LIMITS if row[0] not in (resource.RLIMIT_NOFILE, resource.RLIMIT_MSGQUEUE)}
        self.assertEqual(told, here)

    def test_too_low_a_hard_limit_is_refused_by_name(self):
        for what, name, letter, of_unit, _, _ in LIMITS:
            if what not in LOW:
                continue
            code, text = self.finish("listen", preexec_fn=lambda what=what: resource.setrlimit(what, (LOW[what], LOW[what])))
            self.assertEqual(code, 1, text)
            self.assertRegex(text, rf"the hard limit of {name} is [0-9]+ here \(ulimit -H{letter}\).*{of_unit}= of a systemd unit")
            self.assertFalse(self.state.exists() and any(self.state.iterdir()), "nothing was begun")

    def test_too_low_a_soft_limit_is_raised(self):
        """As a craned has it: the stack at what its threads need, the others at their hard limits."""
        def lower():
            for what, value in (LOW | {resource.RLIMIT_MEMLOCK: 4096, resource.RLIMIT_CORE: 0}).items():
                resource.setrlimit(what, (value, resource.getrlimit(what)[1]))

        process = subprocess.Popen(self.words("listen"), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, preexec_fn=lower)
        self.started.append(process)
        self.read_until(process, "ready\n")
        craned = self.run_record()["replicas"][0]["pid"]
        for what in (*LOW, resource.RLIMIT_MEMLOCK):
            soft, hard = resource.prlimit(craned, what)
            self.assertEqual(soft, STACK_BYTES if what == resource.RLIMIT_STACK else hard)
        self.assertEqual(resource.prlimit(craned, resource.RLIMIT_CORE)[0], 0)
        self.stop(process)


if __name__ == "__main__":
    unittest.main()
