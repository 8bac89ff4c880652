"""Who the replicas are, while the service runs: one is added, gets the log, votes and leads; others leave. And a
cluster of one out of what is left when a majority is lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading

from support.case import CraneTest
from support.cluster import ClusterError
from support.honest import Writer
from support.paths import CRANE_TOOL, free_port
from support.procs import read, wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis

CRANED = CRANE_TOOL.parent / "craned"
NEWCOMER = 4


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


class MembersTest(CraneTest):
    lane = 2

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.started = {}

    def tearDown(self):
        self.stop_started()

    def stop_started(self):
        for craned in self.started.values():
            if craned.poll() is None:
                craned.send_signal(signal.SIGTERM)
            craned.wait(30)

    def done(self, cluster, *words):
        ran = cluster.crane(*words)
        self.assertEqual(ran.returncode, 0, f"crane {' '.join(map(str, words))}\n{ran.stdout}{cluster.report()}")
        return ran.stdout

    def members(self, cluster):
        rows = json.loads(self.done(cluster, "member", "list", "--json"))
        return {row["replica"]: row["voter"] for row in rows["members"]}

    def configure(self, cluster, number, peer_port, join):
        """craned.toml for a replica that crane-run does not know, made from that of replica 1."""
        folder = cluster.state / f"r{number}"
        folder.mkdir()
        text = read(cluster.state / "r1" / "craned.toml")
        text = text.replace("replica_id = 1", f"replica_id = {number}").replace(
            json.dumps(str(cluster.state / "r1")), json.dumps(str(folder)))
        text = text.replace("[consensus]", f"[consensus]\njoin = {str(join).lower()}").replace(
            "rejoin = true", "rejoin = false")
        text += (f'\n[[replica]]\nid = {number}\npeer = "127.0.0.1:{peer_port}"\n'
                 f'client_address = "127.0.0.{number}"\n')
        (folder / "craned.toml").write_text(text)
        return folder

    def start(self, folder, number):
        with open(folder / "craned.err", "ab") as log:
            self.started[number] = subprocess.Popen([CRANED, "--config", folder / "craned.toml"], stdout=log,
                                                    stderr=log, stdin=subprocess.DEVNULL)

    def lose_database(self, cluster, number):
        """Its disk is empty, and its craned is started to come back."""
        folder = cluster.state / f"r{number}"
        self.started[number].send_signal(signal.SIGTERM)
        self.started[number].wait(30)
        shutil.rmtree(folder / "db")
        text = read(folder / "craned.toml")
        (folder / "craned.toml").write_text(text.replace("join = true", "join = false").replace("rejoin = false", "rejoin = true"))
        self.start(folder, number)
        wait_until(lambda: "rejoined: this replica has all" in read(folder / "craned.log"), 60,
                   f"replica {number} votes again\n{cluster.report()}")
        self.wait_caught_up(cluster, number)

    def wait_caught_up(self, cluster, number):
        def level():
            row = cluster.status().get(number)
            return row is not None and row["lag"] == 0 and row["decided"] > 1 and row["server"] == "listening"

        wait_until(level, 60, f"replica {number} has the log and serves\n{cluster.report()}")

    def digest(self, cluster, number):
        port = cluster.client_port
        with RedisClient((cluster.address(number)[0] if number != NEWCOMER else "127.0.0.4", port)) as client:
            return client("DEBUG", "DIGEST")

    def test_a_replica_is_added_and_leads_and_others_leave(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(1)) as client:
                for number in range(200):
                    client("SET", f"key{number}", "value" * 20)
            peer_port = free_port()
            self.assertIn("learner", self.done(cluster, "member", "add", f"127.0.0.1:{peer_port}"))
            self.assertEqual(self.members(cluster), {1: True, 2: True, 3: True, NEWCOMER: False})
            for words, expected in ((["add", "newhost.example:7400"], "is not on loopback"),
                                    (["add", f"127.0.0.1:{peer_port}"], f"is the address of replica {NEWCOMER}"),
                                    (["add", "127.0.0.1:1", "--id", "200"], "use up all ids"),
                                    (["replace", "2", "3"], "replica 3 votes already"),
                                    (["replace", "2", "2"], "replica 2 votes already"),
                                    (["replace", "9", NEWCOMER], "replica 9 has never been a member"),
                                    (["replace", "2", NEWCOMER], "is not connected: replica 2 was not removed")):
                refused = cluster.crane("member", *words)
                self.assertNotEqual(refused.returncode, 0, words)
                self.assertIn(expected, refused.stdout)
            self.assertEqual(self.members(cluster), {1: True, 2: True, 3: True, NEWCOMER: False})
            early = cluster.crane("member", "promote", NEWCOMER)
            self.assertNotEqual(early.returncode, 0)
            self.assertIn("start it first", early.stdout)

            self.start(self.configure(cluster, NEWCOMER, peer_port, join=True), NEWCOMER)
            self.wait_caught_up(cluster, NEWCOMER)
            self.assertEqual(cluster.status()[NEWCOMER]["role"], "learner")
            self.done(cluster, "member", "promote", NEWCOMER)
            self.lose_database(cluster, NEWCOMER)  # of four: who comes back counts nobody
            self.done(cluster, "transfer", NEWCOMER)
            self.done(cluster, "member", "remove", 3)
            self.assertIn("votes in the place of replica 3", self.done(cluster, "member", "replace", 3, NEWCOMER))
            self.assertEqual(self.members(cluster), {1: True, 2: True, NEWCOMER: True})
            wait_until(lambda: "removed from the cluster" in read(cluster.state / "r3" / "craned.log"), 20,
                       "replica 3 learns that it has been removed")
            wait_until(lambda: cluster.craned_pid(3) is None, 20, "its craned has ended")
            said = cluster.crane("status")
            self.assertNotIn("down", said.stdout)
            self.assertEqual(sorted(cluster.status()), [1, 2, NEWCOMER])

            with RedisClient(("127.0.0.4", cluster.client_port)) as client:
                for number in range(200):
                    client("APPEND", f"key{number}", "more")
            digests = {self.digest(cluster, number) for number in (1, 2, NEWCOMER)}
            self.assertEqual(len(digests), 1, digests)
            logs = [cluster.state / f"r{number}" / "output.log" for number in (1, 2, NEWCOMER)]
            self.done(cluster, "diff", "--allow-lag", *logs)
            compared = json.loads(cluster.crane("diff", "--json", "--allow-lag").stdout)
            self.assertEqual(sorted(log["path"] for log in compared["logs"]), sorted(map(str, logs)))

            # The one that leads hands over before it goes, though it is asked on another host; its number is not
            # used again.
            self.tool(CRANE_TOOL, "member", "--state-dir", cluster.state / "r1", "remove", NEWCOMER)
            self.assertEqual(self.members(cluster), {1: True, 2: True})
            self.assertEqual(self.started[NEWCOMER].wait(20), 0)
            again = cluster.crane("member", "add", "127.0.0.1:1", "--id", NEWCOMER)
            self.assertNotEqual(again.returncode, 0)
            self.assertIn(f"and the next is {NEWCOMER + 1}", again.stdout)
            with RedisClient(cluster.address(2)) as client:
                self.assertEqual(client("GET", "key7"), b"value" * 20 + b"more")
            self.stop_started()

    def test_a_fourth_joins_a_cut_log_under_load_and_replaces_the_third(self):
        self.needs_criu()
        stop = threading.Event()
        with self.crane(Redis) as cluster:
            # At replicas that stay.
            clients = [Writer(number, [cluster.address(1), cluster.address(2)], 1, stop) for number in range(3)]
            for client in clients:
                client.start()
            try:
                self.done(cluster, "checkpoint", "take")
                primary = cluster.primary()
                holder = next(n for n in (1, 2) if n != primary)
                wait_until(lambda: cluster.status()[holder]["first_log_index"] > 1, 60, "a cut log")
                self.done(cluster, "transfer", holder)
                peer_port = free_port()
                self.done(cluster, "member", "add", f"127.0.0.1:{peer_port}")
                self.start(self.configure(cluster, NEWCOMER, peer_port, join=True), NEWCOMER)
                wait_until(lambda: cluster.status().get(NEWCOMER, {}).get("server") == "listening", 60,
                           f"the newcomer serves\n{cluster.report()}")
                self.done(cluster, "member", "replace", 3, NEWCOMER)
                self.assertEqual(self.members(cluster), {1: True, 2: True, NEWCOMER: True})
                served = [len(client.took_s) for client in clients]
                wait_until(lambda: all(len(client.took_s) > before + 20 for client, before in zip(clients, served)), 30,
                           "the service goes on")
            finally:
                stop.set()
                for client in clients:
                    client.join(30)
            self.assertIn("begun from it", read(cluster.state / f"r{NEWCOMER}" / "craned.log"))
            with RedisClient(("127.0.0.4", cluster.client_port)) as client:
                self.assertEqual([text for one in clients if (text := one.lost(client))], [])
            self.assertEqual([text for one in clients for text in one.wrong], [])
            self.assertEqual(len({self.digest(cluster, number) for number in (1, 2, NEWCOMER)}), 1)
            logs = [cluster.state / f"r{number}" / "output.log" for number in (1, 2, NEWCOMER)]
            self.done(cluster, "diff", "--allow-lag", *logs)
            self.stop_started()

    def test_one_replica_goes_on_after_the_loss_of_a_majority(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(1)) as client:
                for number in range(100):
                    client("SET", f"key{number}", "value")
            wait_until(lambda: len({row["decided"] for row in cluster.status().values()}) == 1, 20, "all have the log")
            running = cluster.crane("recover", "--force-new-cluster")
            self.assertNotEqual(running.returncode, 0)
            self.assertIn("is in use, so its replica runs", running.stdout)
            cluster.stop()

            self.done(cluster, "log", "verify")
            careless = cluster.crane("recover")
            self.assertNotEqual(careless.returncode, 0)
            self.assertIn("--force-new-cluster", careless.stdout)
            self.assertIn("only member", self.done(cluster, "recover", "--replica", 2, "--force-new-cluster"))
            self.assertIn("members 2", self.done(cluster, "log", "--replica", 2))

            self.start(cluster.state / "r2", 2)
            wait_until(lambda: cluster.status().get(2, {}).get("server") == "listening" and
                       cluster.status()[2]["role"] == "primary", 60, f"replica 2 serves alone\n{cluster.report()}")
            self.assertEqual(self.members(cluster), {2: True})
            with RedisClient(cluster.address(2)) as client:
                self.assertEqual(client("GET", "key99"), b"value")
                client("SET", "after", "the loss")

            # One of those that were given up wakes up: nobody talks to it, and it decides nothing.
            self.start(cluster.state / "r1", 1)
            wait_until(lambda: "has been removed" in read(cluster.state / "r1" / "craned.log"), 20,
                       f"replica 1 is told that it is no member\n{cluster.report()}")
            self.assertEqual(cluster.status()[2]["role"], "primary")
            self.assertNotEqual(cluster.status()[1]["role"], "primary")
            self.stop_started()

            # crane-run would start those that were given up, which are a majority, beside it.
            with self.assertRaisesRegex(ClusterError, "crane recover has made .*r2 a cluster of its own"):
                cluster.start()


class CopiesTest(CraneTest):
    """A database that was put back from a copy, or that runs twice, has forgotten what was promised since."""
    lane = 2

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def set_keys(self, cluster, number, first, count):
        with RedisClient(cluster.address(number)) as client:
            for key in range(first, first + count):
                client("SET", f"key{key}", "value")

    def wait_level(self, cluster):
        def level():
            rows = cluster.status()
            return all(row["server"] == "listening" and not row["lag"] for row in rows.values()) and len(rows) == 3

        wait_until(level, 60, f"all replicas serve and have the log\n{cluster.report()}")

    def copy(self, cluster, number, to):
        """As cp would while nothing happens to be written."""
        pid = cluster.craned_pid(number)
        os.kill(pid, signal.SIGSTOP)
        try:
            shutil.copytree(cluster.state / f"r{number}" / "db", to)
        finally:
            os.kill(pid, signal.SIGCONT)

    def restart(self, cluster, number, between=lambda: None):
        """Kills a craned; crane-run starts it again when `between` is done."""
        before, (supervisor,) = cluster.craned_pid(number), cluster.supervisor_pids()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: cluster.craned_pid(number) is None, 20, f"replica {number} is dead")
            between()
        finally:
            os.kill(supervisor, signal.SIGCONT)

    def put_back(self, cluster, number, copy):
        """The database is replaced, and the replica must refuse it and stay down while the service goes on."""
        folder = cluster.state / f"r{number}"

        def swap():
            shutil.rmtree(folder / "db")
            shutil.copytree(copy, folder / "db")

        self.restart(cluster, number, swap)
        wait_until(lambda: f"replica {number} stays down" in self.said(cluster), 60,
                   f"crane-run says that replica {number} is refused\n{cluster.report()}")
        log = read(folder / "craned.log")
        self.assertRegex(log, "replica [123] knows that this database is a")
        self.assertIn("Rebuild this replica", log)
        asked = cluster.crane("status")
        self.assertNotEqual(asked.returncode, 0)
        self.assertIn(f"replica {number} is not listened to", asked.stdout)
        self.set_keys(cluster, next(n for n in (1, 2, 3) if n != number), 1000, 20)

        # Started again without crane-run it says so at once, and with its own exit status.
        again = subprocess.run([CRANED, "--config", folder / "craned.toml"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(again.returncode, 3, again.stderr)
        self.assertIn(b"an old or a second copy", again.stderr)

    def spoil_database(self, cluster, number, spoil):
        """What is not its database any more is refused, by name and with what to do; nothing of it is changed, and the others
        serve on; moved away as the message says it is rebuilt."""
        folder = cluster.state / f"r{number}"
        database = folder / "db"
        spoilt = []

        def spoil_it():
            spoil(database / "log.db")
            spoilt.append((database / "log.db").read_bytes())

        self.restart(cluster, number, spoil_it)
        said = wait_until(lambda: next((line for line in self.said(cluster).splitlines()[self.heard:] if "stays down" in line), None),
                          60, f"crane-run says that replica {number} is refused\n{cluster.report()}")
        self.heard = len(self.said(cluster).splitlines())
        self.assertIn(f"replica {number} stays down: its craned refuses its database: it is damaged", said)
        self.assertRegex(read(folder / "craned.log"), f"database {database} is damaged: .*log.db.*Rebuild this replica")
        if spoil is not cut_in_half:  # what is a tree, as far as it goes, is recovered first
            self.assertEqual((database / "log.db").read_bytes(), spoilt[0])
        self.set_keys(cluster, next(n for n in (1, 2, 3) if n != number), 2000, 20)
        command = re.search(r"\((mv [^)]*)\)", said).group(1)
        self.tool(*command.split())
        self.wait_level(cluster)
        self.assertTrue((folder / "db.old" / "log.db").exists())
        shutil.rmtree(folder / "db.old")

    def test_a_spoilt_database_is_refused_and_its_replica_rebuilt(self):
        def zeros(path):
            size = path.stat().st_size
            os.truncate(path, 0)
            os.truncate(path, size)

        with self.crane(Redis) as cluster:
            self.heard = 0
            self.set_keys(cluster, 1, 0, 50)
            self.wait_level(cluster)
            for number, spoil in ((2, zeros), (3, cut_in_half), (1, lambda path: path.write_text("somebody's notes\n" * 5000))):
                self.spoil_database(cluster, number, spoil)
            cluster.assert_identical()

    def said(self, cluster):
        return read(cluster.state / "crane-run.log")

    def test_an_older_copy_is_refused_and_its_replica_rebuilt(self):
        with self.crane(Redis) as cluster:
            self.set_keys(cluster, 1, 0, 50)
            self.wait_level(cluster)
            number = 3 if cluster.primary() != 3 else 2
            self.copy(cluster, number, cluster.dir / "old")
            for _ in range(2):  # as any other replica may: these are no copies
                self.restart(cluster, number)
                self.wait_level(cluster)
            self.set_keys(cluster, 1, 50, 50)
            self.put_back(cluster, number, cluster.dir / "old")

            (cluster.state / f"r{number}" / "db").rename(cluster.dir / "refused")
            self.wait_level(cluster)
            wait_until(lambda: "rejoined: this replica has all" in read(cluster.state / f"r{number}" / "craned.log"), 20,
                       f"replica {number} votes again\n{cluster.report()}")
            self.assertEqual(cluster.crane("transfer", number).returncode, 0, cluster.report())
            with RedisClient(cluster.address(number)) as client:
                self.assertEqual([client("GET", f"key{key}") for key in (0, 49, 50, 99, 1019)], [b"value"] * 5)
            cluster.assert_identical()

    def test_a_copy_of_the_newest_run_is_refused_by_those_who_remember(self):
        with self.crane(Redis) as cluster:
            self.set_keys(cluster, 1, 0, 50)
            self.wait_level(cluster)
            number = 3 if cluster.primary() != 3 else 2
            self.copy(cluster, number, cluster.dir / "old")
            self.set_keys(cluster, 1, 50, 50)
            self.wait_level(cluster)
            self.put_back(cluster, number, cluster.dir / "old")

    def test_a_second_process_from_a_copy_is_refused_and_the_first_goes_on(self):
        if os.geteuid() != 0:
            self.skipTest("needs root for a /dev/shm of its own")
        with self.crane(Redis) as cluster:
            self.set_keys(cluster, 1, 0, 50)
            self.wait_level(cluster)
            number = 3 if cluster.primary() != 3 else 2
            folder, second = cluster.state / f"r{number}", cluster.dir / "second"
            second.mkdir()
            self.copy(cluster, number, second / "db")
            self.set_keys(cluster, 1, 50, 50)
            self.wait_level(cluster)

            first = cluster.craned_pid(number)
            peer = next(row["peer"] for row in cluster.config(number)["replica"] if row["id"] == number)
            client = cluster.address(number)[0]
            text = read(folder / "craned.toml").replace(json.dumps(str(folder)), json.dumps(str(second)))
            text = text.replace(json.dumps(peer), json.dumps(f"127.0.0.1:{free_port()}"))
            text = text.replace('isolation = "lxc"', 'isolation = "none"')
            (second / "craned.toml").write_text(text.replace(json.dumps(client), '"127.0.0.9"'))
            # As on another host: neither container nor shared memory of the first.
            elsewhere = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
            ran = subprocess.run([*elsewhere, CRANED, "--config", second / "craned.toml"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(ran.returncode, 3, ran.stderr)
            self.assertIn("Rebuild this replica", read(second / "craned.log"))

            # On the same host it has ended the first one's server, which it took for a leftover of its own.
            self.wait_level(cluster)
            self.set_keys(cluster, number, 100, 20)
            self.wait_level(cluster)
            self.assertEqual(cluster.craned_pid(number), first, "the first one's craned")
            self.assertNotIn("stays down", self.said(cluster))
            self.assertEqual(cluster.crane("transfer", number).returncode, 0, cluster.report())
            cluster.assert_identical()
