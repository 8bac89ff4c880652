"""A replica that differs from the others is made anew by itself, and serves again."""

import contextlib
import os
import pathlib
import re
import threading

import test_checkpoint  # the module: a class by name would be run here again
from support.case import CraneTest
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Apache, PythonCounter, Redis
from support.webclient import get

VALUE = b"as it was written by the client"
FLIPPED = b"as it was written by the cosmos"


def flip(pid, old, new):
    """As if bits had turned in the process's memory. Returns how many places held `old`."""
    places = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 +(\[heap\])?$", line)
            if not found:
                continue
            begin, end = (int(text, 16) for text in found.groups()[:2])
            bytes_here = os.pread(memory.fileno(), end - begin, begin)
            for match in re.finditer(re.escape(old), bytes_here):
                os.pwrite(memory.fileno(), new, begin + match.start())
                places += 1
    return places


class Repair(CraneTest):
    lane = 1
    timeout_s = 240
    log = test_checkpoint.Checkpoint.log

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def backups(self, cluster):
        primary = cluster.primary()
        return [n for n in (1, 2, 3) if n != primary]

    def await_healed(self, cluster, odd, repairs, use):
        """`use` has the servers put something out, as clients do; replicas are compared by that."""
        def healed():
            use()
            row = cluster.status().get(odd, {})
            return row.get("counters", {}).get("repairs") == repairs and row["server"] == "listening" \
                and row["fenced"] == "" and not row["alarms"]

        wait_until(healed, 60, f"replica {odd} is made anew and serves")
        for row in cluster.status().values():
            self.assertEqual((row["fenced"], row["divergence"]["diverged"], row["generation"]), ("", [], 1), row)
        for good in {1, 2, 3} - {odd}:
            self.assertEqual(cluster.status()[good]["counters"]["repairs"], 0)
        self.assertIn("made anew", self.log(cluster, odd))
        cluster.assert_identical()

    def test_file_that_somebody_changed(self):
        """In the container of one: it begins again from the log, with the host's files."""
        with self.crane(Apache) as cluster:
            odd, good = self.backups(cluster)
            page = get(cluster.address(odd), "/index.html").body
            site = pathlib.Path(cluster.command[cluster.command.index("-d") + 1]).parent
            inside = pathlib.Path(f"/proc/{cluster.server_pid(odd)}/root{site}/www/index.html")
            inside.write_bytes(page.replace(b"crane", b"craze"))
            self.assertIn(b"craze", get(cluster.address(odd), "/index.html").body)
            self.await_healed(cluster, odd, 1, lambda: get(cluster.address(good), "/10k.bin"))
            self.assertEqual(get(cluster.address(odd), "/index.html").body, page)

    def test_bits_that_turned_in_memory_behind_its_checkpoint(self):
        """It goes on from its own image, from before that."""
        self.needs_criu()
        with self.crane(Redis) as cluster:
            odd, good = self.backups(cluster)
            with RedisClient(cluster.address(good)) as redis:
                redis("SET", "key", VALUE)
                self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0)
                redis("INCR", "counter")
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                self.await_healed(cluster, odd, 1, lambda: redis("INCR", "more"))
            with RedisClient(cluster.address(odd)) as redis:
                self.assertEqual(redis("GET", "key"), VALUE)
                self.assertEqual(redis("GET", "counter"), b"1")

    def test_bits_that_turned_before_its_checkpoint(self):
        """Its own image has them, too: it begins with another replica's."""
        self.needs_criu()
        with self.crane(Redis) as cluster:
            odd, good = self.backups(cluster)
            with RedisClient(cluster.address(good)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                self.await_healed(cluster, odd, 2, lambda: redis("INCR", "more"))
            self.assertIn("made anew it differs again", self.log(cluster, odd))
            with RedisClient(cluster.address(odd)) as redis:
                self.assertEqual(redis("GET", "key"), VALUE)

    def test_primary_that_differs(self):
        with self.crane(Redis) as cluster:
            odd = cluster.primary()
            good = self.backups(cluster)[0]
            with RedisClient(cluster.address(good)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                self.await_healed(cluster, odd, 1, lambda: redis("INCR", "more"))
            with RedisClient(cluster.address(odd)) as redis:
                self.assertEqual(redis("GET", "key"), VALUE)
            for n in {1, 2, 3} - {odd}:  # it told them before it was made anew
                sides = cluster.status()[n]["divergence"]["first_difference"]["sides"]
                self.assertEqual({side["replica"]: "cosmos" in side["excerpt"] for side in sides}, {m: m == odd for m in (1, 2, 3)})
            said = cluster.crane("status").stdout
            self.assertNotIn("what they put out", said, "all is well again")
            self.assertRegex(said, r"replicas were found to differ at log index \d+, .* ago\): crane status --json has what each put out")

    def test_left_to_the_operator(self):
        with self.crane(Redis, options=("--no-repair",)) as cluster:
            odd, good = self.backups(cluster)
            with RedisClient(cluster.address(good)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                wait_until(lambda: (redis("INCR", "more"), cluster.status()[odd]["fenced"])[1] != "", 20, "it is fenced")
                self.assertIn("made anew by itself", cluster.status()[odd]["fenced"])
                self.assertEqual(cluster.crane("checkpoint", "restore").returncode, 2)
                leads = cluster.crane("checkpoint", "restore", "--replica", cluster.primary())
                self.assertEqual(leads.returncode, 1, leads.stdout)
                done = cluster.crane("checkpoint", "restore", "--replica", odd)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.await_healed(cluster, odd, 0, lambda: redis("INCR", "more"))
            with RedisClient(cluster.address(odd)) as redis:
                self.assertEqual(redis("GET", "key"), VALUE)

    @contextlib.contextmanager
    def differs_in_every_replay(self, cluster, odd):
        """One host alone has a file that the server asks for, in each container anew: the log leads to what differs."""
        there, done = cluster.state / f"r{odd}" / "shared" / "here", threading.Event()

        def keep():
            while not done.wait(0.005):
                try:
                    there.touch()
                except OSError:
                    pass  # between two containers

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            wait_until(there.exists, 10, "the file is there")
            good = next(n for n in (1, 2, 3) if n != odd)
            self.assertEqual(get(cluster.address(good), "/here").body, b'{"here": false}')
            yield
        finally:
            done.set()
            keeper.join()

    def check_begun_from_others(self, cluster, odd, repairs):
        good = next(n for n in (1, 2, 3) if n != odd)
        self.await_healed(cluster, odd, repairs, lambda: get(cluster.address(good), "/add"))
        self.assertIn("has come: the server is begun from it", self.log(cluster, odd))
        counter = get(cluster.address(odd), "/add").body
        self.assertNotEqual(counter, get(cluster.address(good), "/add").body)
        cluster.assert_identical()

    def test_replica_whose_replay_differs_begins_from_the_others(self):
        """From behind the place where it differs; no checkpoint was there, so one is taken."""
        self.needs_criu()
        with self.crane(PythonCounter) as cluster:
            odd, good = self.backups(cluster)
            get(cluster.address(good), "/add")
            with self.differs_in_every_replay(cluster, odd):
                self.check_begun_from_others(cluster, odd, 2)
            self.assertIn("made anew it differs again", self.log(cluster, odd))

    def test_operator_has_a_replica_begin_from_the_others(self):
        """The log has led it to where it differs, and would again."""
        self.needs_criu()
        with self.crane(PythonCounter, options=("--no-repair",)) as cluster:
            odd, good = self.backups(cluster)
            get(cluster.address(good), "/add")
            with self.differs_in_every_replay(cluster, odd):
                wait_until(lambda: (get(cluster.address(good), "/add"), cluster.status()[odd]["fenced"])[1] != "", 20,
                           "it is fenced")
                done = cluster.crane("checkpoint", "restore", "--replica", odd)
                self.assertEqual(done.returncode, 0, done.stdout + cluster.report())
                self.check_begun_from_others(cluster, odd, 0)
