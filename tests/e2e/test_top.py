"""`crane top`: one frame for programs, a live one on a terminal of any size, and a clear word where there is none."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time

from support.case import CraneTest
from support.paths import CRANE
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis


class Terminal:
    """A terminal with crane top on it."""

    def __init__(self, cluster, rows, columns, term="xterm"):
        self.own, theirs = pty.openpty()
        self.resize(rows, columns)
        self.top = subprocess.Popen([CRANE, "top", "--state-dir", cluster.state], stdin=theirs, stdout=theirs, stderr=theirs,
                                    env={**os.environ, "TERM": term}, start_new_session=True,
                                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        try:
            while select.select([self.own], [], [], 0.05)[0]:
                got = os.read(self.own, 65536)
                if not got:
                    break
                self.text += got.decode(errors="replace")
        except OSError:  # nobody has it open any more
            pass
        return self.text

    def frame(self):
        """The last whole one: its lines."""
        parts = self.read().split("\x1b[H")
        whole = [part for part in parts if part.endswith("\x1b[J")]
        return whole[-1].replace("\x1b[J", "").split("\r\n") if whole else []

    def key(self, key):
        os.write(self.own, key.encode())

    def close(self):
        self.top.kill()
        self.top.wait()
        os.close(self.own)


class Top(CraneTest):
    lane = 2

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def terminal(self, *arguments, **options):
        terminal = Terminal(*arguments, **options)
        self.addCleanup(terminal.close)
        return terminal

    def test_one_frame_for_whom_there_is_no_terminal(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(1)) as redis:
                redis("INCR", "counter")
                shown = cluster.crane("top", "--once").stdout
            self.assertRegex(shown, rf"primary: replica {cluster.primary()} for \d+ \w+, all is well")
            rows = [line for line in shown.splitlines() if " listening " in line]
            self.assertEqual(len(rows), 3, shown)
            self.assertNotIn("\x1b", shown)
            told = json.loads(cluster.crane("top", "--once", "--json").stdout)
            self.assertEqual([row["replica"] for row in told], [1, 2, 3])

    def test_who_leads_and_since_when_as_any_replica_knows(self):
        begun = int(time.time())
        with self.crane(Redis) as cluster:
            def seen_by(n):
                """By one replica alone, as on a host of its own."""
                place = cluster.state / f"r{n}"
                told = subprocess.run([CRANE, "status", "--json", "--state-dir", place], capture_output=True, text=True, timeout=30, check=False)
                return json.loads(told.stdout)

            leads = cluster.primary()
            first = {n: seen_by(n) for n in (1, 2, 3)}
            for told in first.values():
                self.assertEqual(told["primary"], leads)
                self.assertTrue(begun <= told["primary_since_s"] <= time.time(), told["primary_since_s"])
            whole = json.loads(cluster.crane("status", "--json").stdout)
            self.assertEqual(whole["primary_since_s"], first[leads]["primary_since_s"], "the primary's own word counts")
            self.assertRegex(cluster.crane("status").stdout, rf"the primary is replica {leads}, at \S+, since [-0-9]+ [0-9:]+ UTC \(for \d+ (s|min)\)")
            self.assertRegex(cluster.crane("top", "--once").stdout, rf"primary: replica {leads} for \d+ (s|min), ")
            heir = next(n for n in (1, 2, 3) if n != leads)
            wait_until(lambda: int(time.time()) > whole["primary_since_s"], 10, "a second has passed")
            self.assertEqual(cluster.crane("transfer", heir).returncode, 0)
            for n in (1, 2, 3):
                def learned():
                    told = seen_by(n)
                    return told["primary"] == heir and told["primary_since_s"] > whole["primary_since_s"]
                wait_until(learned, 20, f"replica {n} says since when the next one leads")

    def test_a_live_one_follows_the_window_and_shows_what_is_wrong(self):
        with self.crane(Redis, options=("--no-restart",)) as cluster:
            top = self.terminal(cluster, 30, 100)
            wait_until(lambda: len(top.frame()) > 8, 30, "a frame is drawn")
            self.assertTrue(top.read().startswith("\x1b[?1049h\x1b[?25l"))
            top.resize(5, 40)
            wait_until(lambda: len(top.frame()) == 5, 30, "it is drawn anew for the smaller window")
            self.assertIn("more lines", top.frame()[-1])
            top.resize(40, 132)
            odd = next(n for n in (1, 2, 3) if n != cluster.primary())
            cluster.kill_craned(odd)
            wait_until(lambda: any(f"replica {odd} is down" in line for line in top.frame()), 30, "it is shown to be down")
            begin = time.monotonic()
            top.key("q")
            self.assertEqual(top.top.wait(timeout=10), 0)
            self.assertLess(time.monotonic() - begin, 8)
            self.assertTrue(top.read().endswith("\x1b[0m\x1b[?25h\x1b[?1049l"), "the terminal is as it was")

    def test_a_terminal_that_cannot_be_redrawn_is_told_so(self):
        with self.crane(Redis) as cluster:
            top = self.terminal(cluster, 30, 100, term="dumb")
            self.assertEqual(top.top.wait(timeout=20), 2)
            self.assertIn("crane top --once", top.read())
            done = cluster.crane("top")
            self.assertEqual(done.returncode, 2)
            self.assertIn("no terminal", done.stdout)
