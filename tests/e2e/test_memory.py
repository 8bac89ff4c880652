"""Clients that send and do not read, or are not read: they cost bounded memory, and slow nobody else.

The servers are Redis and a small one that does not read while it is told so (programs/slow_reader.py).
"""

import os
import resource
import socket
import struct
import time

from support.case import CraneTest, together
from support.procs import read, wait_until
from support.redisclient import Redis as RedisClient
from support.redisclient import encode
from support.servers import Apache, Redis, SlowReader
from support.webclient import Connection

MIB = 1 << 20


MOST_CLIENTS = 28_672  # that a server may have under Crane


def many_descriptors():
    """For this process and what it starts; root may raise the hard limit, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CLIENTS + 1024
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
        except (ValueError, OSError):
            wanted = hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)


def connect(address, timeout_s=20):
    client = socket.create_connection(address, timeout=timeout_s)
    client.settimeout(timeout_s)
    return client


def drop(clients):
    """Ends connections at once: what is under way is thrown away."""
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def push(clients, data, seconds):
    """Sends `data` on each client as far as it is taken; gives up after a while without."""
    sent = [0] * len(clients)
    for client in clients:
        client.setblocking(False)
    last = time.monotonic()
    while time.monotonic() - last < seconds and min(sent) < len(data):
        before = sum(sent)
        for place, client in enumerate(clients):
            if sent[place] < len(data):
                try:
                    sent[place] += client.send(data[sent[place] :])
                except BlockingIOError:
                    pass
        if sum(sent) > before:
            last = time.monotonic()
        time.sleep(0.02)
    return sent


class CrowdedRedis(Redis):
    def command(self):
        return [*super().command(), "--maxclients", 30_000]


class Memory(CraneTest):
    lane = 3
    timeout_s = 150

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        many_descriptors()

    def rss_mib(self, cluster):
        """Of every replica's craned."""
        rows = cluster.status()
        lines = {n: read(f"/proc/{row['pid']}/status") for n, row in rows.items()}
        return {n: int(text.split("VmRSS:")[1].split()[0]) // 1024 for n, text in lines.items()}

    def say_rss(self, cluster, what, limit_mib):
        sizes = self.rss_mib(cluster)
        self.note(f"{what}: craned has " + ", ".join(f"{size} MiB" for size in sizes.values()))
        self.assertLess(max(sizes.values()), limit_mib)

    def backup(self, cluster):
        return next(n for n in sorted(cluster.status()) if n != cluster.primary())

    def test_idle_clients_whose_requests_were_read_hold_nothing(self):
        """2,300 requests just below the step in which a busy socket's consumption is reported: 136 MiB in all."""
        with self.crane(Redis) as cluster:
            address = cluster.address(cluster.primary())
            idle, value = [], b"v" * 62_000
            for number in range(2300):
                client = connect(address)
                client.sendall(encode(("SET", f"k{number % 7}", value)))
                self.assertEqual(client.recv(100), b"+OK\r\n", f"client {number}")
                idle.append(client)
            with RedisClient(address) as redis:
                self.assertEqual(redis("PING"), "PONG")
            held = cluster.status()[cluster.primary()]["memory"]["input_bytes"]
            self.assertLess(held, MIB)
            drop(idle)
            cluster.assert_identical()

    def test_relayed_clients_of_a_server_that_does_not_read(self):
        """More than the domain holds, by connections that wait to be accepted and others that were, through a backup."""
        with self.crane(SlowReader, options=["--input-mib", 32]) as cluster:
            address = cluster.address(self.backup(cluster))
            first = connect(address)
            first.sendall(b"hold\n")
            self.assertEqual(first.recv(100), b"held\n")
            clients = [connect(address) for _ in range(1100)]
            push(clients, b"x" * 270_000, 3)
            self.say_rss(cluster, "1,100 relayed clients of 270 KB each", 250)
            for row in cluster.status().values():
                self.assertEqual(row["server"], "listening", row["message"])
                self.assertLessEqual(row["memory"]["input_bytes"], 32 * MIB)
            first.sendall(b"go\n")
            self.assertEqual(first.recv(100), b"gone on\n")
            drop(clients)
            with connect(address) as late:
                late.sendall(b"hello\n")
                self.assertEqual(late.recv(100), b"hello\n")
            first.close()
            cluster.assert_identical()

    def test_one_byte_each_and_a_change_of_primary(self):
        """Accepted and unread connections of one byte, direct and relayed; the next primary begins with them."""
        with self.crane(SlowReader) as cluster:
            primary = cluster.primary()
            backup = self.backup(cluster)
            clients = [connect(cluster.address(n)) for n in [primary, backup] * 400]
            for client in clients:
                client.sendall(b"1")
            wait_until(lambda: cluster.status()[primary]["open_connections"] == len(clients), 30,
                       "every client is connected")
            self.assertLess(cluster.status()[primary]["memory"]["input_bytes"], MIB)
            self.assertEqual(cluster.crane("transfer", backup).returncode, 0)
            wait_until(lambda: cluster.primary() == backup, 20, "the other replica leads")
            with connect(cluster.address(backup)) as late:
                late.sendall(b"hello\n")
                self.assertEqual(late.recv(100), b"hello\n")
            drop(clients)
            cluster.assert_identical()

    def test_more_clients_than_a_server_may_have(self):
        """All that there is place for are served, further ones wait and the operator is told."""
        crowd = min(MOST_CLIENTS + 200, many_descriptors() - 200)
        with self.crane(CrowdedRedis, options=["--output-log", "hash"]) as cluster:
            addresses = [cluster.address(cluster.primary()), cluster.address(self.backup(cluster))]
            first = RedisClient(addresses[0])
            clients = [connect(addresses[number % 2]) for number in range(crowd)]
            full = crowd > MOST_CLIENTS
            self.note(f"{crowd} clients" + ("" if full else ": the limit of open files allows no more"))

            def served():
                rows = cluster.status()
                alarms = "".join(rows[cluster.primary()]["alarms"])
                connected = min(crowd + 1, MOST_CLIENTS)
                return all(row["open_connections"] == connected for row in rows.values()) and full == ("clients wait" in alarms)

            wait_until(served, 60, "every client has its place, or waits")
            self.assertEqual(first("PING"), "PONG")
            self.say_rss(cluster, f"{crowd} clients", 150)
            drop(clients)
            with RedisClient(addresses[1], 60) as late:
                self.assertEqual(late("PING"), "PONG")
            self.assertEqual(first("PING"), "PONG")
            first.close()
            wait_until(lambda: not cluster.status()[cluster.primary()]["alarms"], 30, "the alarm ends")
            cluster.assert_identical()

    def test_output_that_nobody_reads(self):
        """200 clients that each ask for 8 MiB and do not read, at the primary and at a backup."""
        with self.crane(Redis, options=["--output-log", "hash", "--output-mib", 64]) as cluster:
            primary = cluster.primary()
            addresses = [cluster.address(primary), cluster.address(self.backup(cluster))]
            with RedisClient(addresses[0]) as redis:
                redis("SET", "big", b"b" * (8 * MIB))
                redis("SET", "small", b"s" * 200_000)
                before = self.rss_mib(cluster)
                deaf = []
                for number in range(200):
                    client = socket.socket()
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    client.connect(addresses[number % 2])
                    client.sendall(encode(("GET", "big")))
                    deaf.append(client)
                for _ in range(20):
                    self.assertEqual(len(redis("GET", "small")), 200_000)
                with RedisClient(addresses[1]) as relayed:
                    for _ in range(20):
                        self.assertEqual(len(relayed("GET", "small")), 200_000)
                # 64 MiB and 16 for what is closed, 200 first windows of 64 KiB, and what was there before.
                self.say_rss(cluster, f"200 unread values of 8 MiB (before: {before})", 64 + 16 + 13 + 100)
            drop(deaf)
            cluster.assert_identical()

    def test_long_upload_costs_no_election(self):
        with self.crane(Apache) as cluster:
            view = cluster.status()[cluster.primary()]["view"]
            piece = bytes(range(256)) * 4096
            pieces = (1024 if "CRANE_SOAK" in os.environ else 160) * MIB // len(piece)
            replica = cluster.primary() % 3 + 1  # carried to the primary
            with Connection(cluster.address(replica), timeout_s=60) as connection:
                connection.send(f"PUT /dav/upload HTTP/1.1\r\nHost: x\r\nContent-Length: {pieces * len(piece)}\r\n\r\n".encode())
                begun = time.monotonic()
                for _ in range(pieces):
                    connection.send(piece)
                self.assertIn("201", connection.reply().status)
            self.note(f"{pieces * len(piece) / MIB / (time.monotonic() - begun):.0f} MiB/s")
            for row in cluster.status().values():
                self.assertEqual((row["view"], row["fenced"]), (view, ""))
            cluster.assert_identical()

    def test_large_answers_arrive_whole_through_small_windows(self):
        with self.crane(Redis, options=["--output-mib", 1]) as cluster:
            value = bytes(range(256)) * 40_000
            primary = cluster.primary()
            with RedisClient(cluster.address(primary)) as redis:
                redis("SET", "big", value)

            def fetch(replica):
                with RedisClient(cluster.address(replica)) as redis:
                    return redis("GET", "big") == value

            self.assertEqual(together(*[lambda n=n: fetch(n) for n in (1, 2, 3) * 2]), [True] * 6)
            cluster.assert_identical()
