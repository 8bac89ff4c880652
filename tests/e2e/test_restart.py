"""Servers that end: asked to, by a crash, again and again, or on one replica alone. The service comes back by itself."""

import contextlib
import os
import signal
import socket
import threading
import time

from support.case import CraneTest
from support.databases import MariaDb
from support.paths import Settings
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.redisclient import RedisError
from support.servers import Apache, Program, Redis
from support.webclient import get
from test_databases import TRANSACTION, fill, sql
from test_programs import ask as answer_of


class SavingRedis(Redis):
    """Every acknowledged write is on its disk."""

    def command(self):
        words = super().command()
        words[words.index("--appendonly") + 1] = "yes"
        return [*words, "--appendfsync", "always"]


class Counting(threading.Thread):
    """Counts upwards in a key of its own and keeps what was acknowledged."""

    def __init__(self, addresses, key):
        super().__init__(daemon=True)
        self.addresses, self.key = addresses, key
        self.tried = self.acknowledged = 0
        self.done, self.wrong = threading.Event(), []

    def run(self):
        while not self.done.is_set():
            try:
                with RedisClient(self.addresses[self.tried % len(self.addresses)], 10) as redis:
                    while not self.done.is_set():
                        self.tried += 1
                        redis("SET", self.key, self.tried)
                        self.acknowledged = self.tried
            except (OSError, RedisError):
                self.done.wait(0.05)

    def check(self, redis, case):
        found = int(redis("GET", self.key) or 0)
        case.assertGreaterEqual(found, self.acknowledged)
        case.assertLessEqual(found, self.tried)


def ask(address, *words):
    """A request that ends the server before it can answer."""
    try:
        with RedisClient(address, 10) as redis:
            redis(*words)
    except (OSError, RedisError):
        pass


def come_until(enough, address):
    """Clients that ask one thing each, one after another until it is enough."""
    clients, done = [], threading.Event()

    def come():
        while not done.is_set() and len(clients) < 500:
            try:
                clients.append(RedisClient(address, 30))
                clients[-1].send("PING")
            except OSError:
                pass  # nobody listens just now
            done.wait(0.002)

    coming = threading.Thread(target=come)
    coming.start()
    try:
        wait_until(enough, 60, "they have come")
    finally:
        done.set()
        coming.join()
    return clients


class Restart(CraneTest):
    lane = 3
    timeout_s = 180

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def serves(self, cluster, generation, replicas=(1, 2, 3)):
        rows = cluster.status()
        return all(n in rows and rows[n]["generation"] == generation and rows[n]["server"] == "listening"
                   for n in replicas)

    def await_generation(self, cluster, generation):
        wait_until(lambda: self.serves(cluster, generation), 60, f"server number {generation} serves at every replica")

    def test_server_that_is_shut_down_or_crashes_under_load(self):
        with self.crane(SavingRedis) as cluster:
            addresses = [cluster.address(n) for n in (1, 2, 3)]
            clients = [Counting(addresses, f"counter:{number}") for number in range(4)]
            for client in clients:
                client.start()
            ends = [("SHUTDOWN", "NOSAVE"), ("DEBUG", "SEGFAULT"), ("DEBUG", "PANIC"), ("SHUTDOWN", "NOSAVE")]
            for number, words in enumerate(ends, start=2):
                before = [client.acknowledged for client in clients]
                ask(addresses[number % 3], *words)
                begin = time.monotonic()
                self.await_generation(cluster, number)
                wait_until(lambda: all(client.acknowledged > old + 1 for client, old in zip(clients, before)), 60,
                           "every client goes on")
                self.note(f"{' '.join(words)}: everybody is served again after {time.monotonic() - begin:.1f} s")
            # A replica that replays it all comes to the same server.
            killed = cluster.primary()
            cluster.kill_craned(killed)
            self.await_generation(cluster, len(ends) + 1)
            for client in clients:
                client.done.set()
            for client in clients:
                client.join(30)
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for client in clients:
                    client.check(redis, self)
            for row in cluster.status().values():
                self.assertEqual(row["divergence"]["schedule_differences"], 0)
            cluster.assert_identical()

    def assert_ended(self, client):
        """The client's connection ends, by itself and soon."""
        try:
            self.assertEqual(client.socket.recv(1), b"")
        except ConnectionResetError:
            pass

    def test_clients_of_the_replica_whose_server_ends_last(self):
        """There the next server is decided while the one before still runs: no client is forgotten between them."""
        with self.crane(SavingRedis) as cluster:
            primary = cluster.primary()
            last = next(n for n in (1, 2, 3) if n != primary)
            others = [n for n in (1, 2, 3) if n != last]
            for round_ in range(2 if Settings.quick else 4):
                with RedisClient(cluster.address(last)) as old:
                    old("SET", "round", round_)
                    old.send("BLPOP", "nothing", 0)
                    server = cluster.server_pid(last)
                    os.kill(server, signal.SIGSTOP)
                    crash = threading.Thread(target=ask, args=(cluster.address(primary), "DEBUG", "SEGFAULT"))
                    crash.start()
                    newcomers = come_until(lambda n=round_ + 2: self.serves(cluster, n, others), cluster.address(last))
                    os.kill(server, signal.SIGCONT)
                    crash.join()
                    self.assert_ended(old)
                for client in newcomers:
                    self.assert_served_or_ended(client)
                    client.close()
                self.await_generation(cluster, round_ + 2)
                with RedisClient(cluster.address(last)) as redis:
                    self.assertEqual(redis("GET", "round"), str(round_).encode())
            cluster.assert_identical()

    def assert_served_or_ended(self, client):
        """No client waits for an answer that nobody will give."""
        try:
            self.assertIn(client.socket.recv(1), (b"+", b"-", b""))  # "-": it still loads
        except ConnectionResetError:
            pass

    def test_operator_restarts_and_signals_the_server(self):
        with self.crane(SavingRedis) as cluster:
            with RedisClient(cluster.address(2)) as redis:
                redis("SET", "k", "v")
                redis.send("BLPOP", "nothing", 0)
                self.assertEqual(cluster.crane("signal", int(signal.SIGTERM)).returncode, 0)
                self.assert_ended(redis)
            self.await_generation(cluster, 2)
            for replica in (1, 2, 3):
                self.assertIn("Received SIGTERM", (cluster.state / f"r{replica}" / "stdout").read_text())
            done = cluster.crane("restart")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.await_generation(cluster, 3)
            with RedisClient(cluster.address(3)) as redis:
                self.assertEqual(redis("GET", "k"), b"v")
            cluster.assert_identical()

    def test_restart_is_refused_while_nobody_else_could_agree_on_it(self):
        with self.crane(Redis) as cluster:
            primary = cluster.primary()
            backups = [cluster.server_pid(replica) for replica in (1, 2, 3) if replica != primary]
            for pid in backups:
                os.kill(pid, signal.SIGSTOP)
            try:
                with RedisClient(cluster.address(primary)) as redis:
                    for number in range(5_500):
                        redis("SET", "k", number)
                    refused = cluster.crane("restart")
                    self.assertEqual(refused.returncode, 1, refused.stdout)
                    self.assertIn("only 1 of 3 servers", refused.stdout)
                    self.assertEqual(redis("GET", "k"), b"5499")
            finally:
                for pid in backups:
                    os.kill(pid, signal.SIGCONT)
            wait_until(lambda: cluster.crane("restart").returncode == 0, 60, "it is not refused any more")
            self.await_generation(cluster, 2)
            cluster.assert_identical()

    def test_server_of_many_processes_is_restarted(self):
        with self.crane(Apache) as cluster:
            for generation in (2, 3):
                page = get(cluster.address(2), "/10k.bin")
                self.assertIn("200 OK", page.status)
                done = cluster.crane("restart")
                self.assertEqual(done.returncode, 0, done.stdout)
                self.await_generation(cluster, generation)
                self.assertEqual(get(cluster.address(2), "/10k.bin").digest, page.digest)
            cluster.assert_identical()

    def restarted(self, cluster, generation, *words):
        """How the one before ended, once the next one serves everywhere."""
        done = cluster.crane("restart", *words)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.await_generation(cluster, generation)
        ends = {row["last_end"] for row in cluster.status().values()}
        self.assertEqual(len(ends), 1, ends)
        return ends.pop()

    def test_server_has_the_time_that_it_is_given_to_end(self):
        self.built_program("slow_end")
        with self.crane(Program, "slow_end", options=("--stop-s", 60)) as cluster:
            self.assertEqual(answer_of(cluster.address()), "0\n")
            self.assertIn("signal 9", self.restarted(cluster, 2, "--within", 1))
            self.assertEqual(answer_of(cluster.address()), "0\n")
            self.assertNotIn("signal", self.restarted(cluster, 3))
            self.assertEqual(answer_of(cluster.address()), "1\n")
            self.assertNotIn("signal", self.restarted(cluster, 4, "--within", 30))
            self.assertEqual(answer_of(cluster.address()), "2\n")
            refused = cluster.crane("restart", "--within", 0)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            cluster.assert_identical()

    def test_database_goes_on_with_its_files(self):
        with self.crane(MariaDb) as cluster:
            address = cluster.address(cluster.primary())
            expected = fill(MariaDb, address)
            for generation in (2, 3):
                sql(MariaDb, address, TRANSACTION * 20)
                done = cluster.crane("restart")
                self.assertEqual(done.returncode, 0, done.stdout)
                self.await_generation(cluster, generation)
            self.assertEqual(sql(MariaDb, address, "SELECT n FROM counters ORDER BY id;").split(), ["40", "80"])
            self.assertEqual(sql(MariaDb, address, "SELECT count(*) FROM words;").strip(), "500")
            self.assertIn("word", expected)
            cluster.assert_identical()

    def test_server_that_ends_on_one_replica_alone(self):
        """By a signal from outside that looks like a crash of its own: at the primary, then at a backup."""
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(1)) as redis:
                redis("SET", "k", "v")
            primary = cluster.primary()
            backup = next(n for n in (1, 2, 3) if n != primary)
            for victim in (primary, backup):
                os.kill(cluster.server_pid(victim), signal.SIGSEGV)

                def back(n=victim):
                    row = cluster.status().get(n, {})
                    again = row.get("counters", {}).get("domain_restarts") == 1
                    return again and row["server"] == "listening" and row["lag"] == 0

                wait_until(back, 60, f"replica {victim} has made its server anew")
                with RedisClient(cluster.address(victim)) as redis:
                    self.assertEqual(redis("GET", "k"), b"v")
            for row in cluster.status().values():
                self.assertEqual((row["generation"], row["fenced"]), (1, ""))
            cluster.assert_identical()

    def test_server_that_ends_again_and_again(self):
        """The pauses between its starts grow, and the operator is told."""
        with self.crane(SavingRedis, options=["--restart", "on-failure"]) as cluster:
            address = cluster.address(1)
            for generation in (2, 3, 4):
                ask(address, "DEBUG", "PANIC")
                self.await_generation(cluster, generation)
            row = cluster.status()[1]
            self.assertEqual(row["server_ends"], 3)
            self.assertIn("signal", row["last_end"])
            cluster.assert_identical()
            ask(address, "SHUTDOWN", "NOSAVE")  # that is no failure, and crane-run ends with its server
            log = cluster.state / "crane-run.log"
            wait_until(lambda: "the server has ended on all replicas" in log.read_text(), 30, "the cluster has ended")

    def test_child_that_writes_over_what_all_share_costs_a_restart(self):
        """Not the cluster: it does the same at each replay, on every replica, so the server is ended there."""
        self.built_program("scribbler")

        def tell(replica, word):
            with socket.create_connection(cluster.address(replica), 20) as connection:
                connection.sendall(word + b"\n")
                return connection.makefile().read()

        with self.crane(Program, "scribbler") as cluster:
            self.assertEqual([tell(replica, b"count") for replica in (1, 2, 3)], ["1\n", "2\n", "3\n"])
            with contextlib.suppress(OSError):
                tell(1, b"scribble")
            self.await_generation(cluster, 2)
            self.assertEqual([int(tell(replica, b"count")) for replica in (1, 2, 3)], [4, 5, 6])
            cluster.assert_identical()
            cluster.kill_craned(2)
            self.await_generation(cluster, 2)
            self.assertEqual(tell(2, b"count"), "7\n")
            cluster.assert_identical()

    def test_primary_is_lost_while_no_server_runs(self):
        with self.crane(SavingRedis) as cluster:
            for round_ in range(2 if Settings.quick else 3):
                primary = cluster.primary()
                other = next(n for n in (1, 2, 3) if n != primary)
                with RedisClient(cluster.address(other)) as redis:
                    redis("SET", "round", round_)
                ask(cluster.address(other), "SHUTDOWN", "NOSAVE")
                cluster.kill_craned(primary)
                self.await_generation(cluster, round_ + 2)
                with RedisClient(cluster.address(other)) as redis:
                    self.assertEqual(redis("GET", "round"), str(round_).encode())
            cluster.assert_identical()
