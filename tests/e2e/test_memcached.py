"""memcached with four worker threads under Crane."""

import random
import socket

from support.case import CraneTest, together
from support.paths import Settings
from support.servers import Memcached


class Client:
    def __init__(self, address):
        self.socket = socket.create_connection(address, 30)
        self._file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self.socket.close()

    def line(self, text):
        self.socket.sendall(text.encode() + b"\r\n")
        return self._file.readline()

    def set(self, key, value, verb="set"):
        self.socket.sendall(b"%s %s 0 0 %d\r\n%s\r\n" % (verb.encode(), key.encode(), len(value), value))
        return self._file.readline()

    def get(self, key):
        head = self.line(f"get {key}")
        if head == b"END\r\n":
            return None
        size = int(head.split()[3])
        value = self._file.read(size + 2)[:-2]
        assert self._file.readline() == b"END\r\n"
        return value


def scripted(address):
    rng = random.Random(9)
    with Client(address) as client:
        seen = [client.line("version"), client.set("a", b"10"), client.line("incr a 5"), client.get("a"),
                client.set("a", b"x", "add"), client.set("b", b"y", "replace"), client.line("delete a"), client.get("a")]
        for size in (0, 1, 1023, 1024, 60_000, 1_000_000, 1_100_000):
            value = rng.randbytes(size)
            seen.append(client.set(f"k{size}", value))
            if size < 1024 * 1024:
                seen.append(client.get(f"k{size}") == value)
        with Client(address) as fresh:
            seen += [fresh.line("nonsense"), fresh.line("flush_all"), fresh.get("k1")]
    return seen


def counting(address, number, rounds):
    """Clients that meet on the same keys: increments, and gets whose answers depend on the order."""
    with Client(address) as client:
        client.set("counter", b"0", "add")
        for turn in range(rounds):
            client.line("incr counter 1")
            client.get("counter")
            client.set(f"shared{turn % 5}", b"%d-%d" % (number, turn))
            client.get(f"shared{(turn + 1) % 5}")


class MemcachedTest(CraneTest):
    def test_answers_equal_native(self):
        with self.native(Memcached) as native:
            expected = scripted(native.address())
        with self.crane(Memcached) as cluster:
            self.assertEqual(scripted(cluster.address()), expected)
            cluster.assert_identical()

    def test_clients_that_meet_on_the_same_keys(self):
        clients, rounds = (8, 50) if Settings.quick else (16, 200)
        with self.crane(Memcached) as cluster:
            with Client(cluster.address()) as client:
                client.set("counter", b"0")
            together(*(lambda n=n: counting(cluster.address(), n, rounds) for n in range(clients)))
            with Client(cluster.address()) as client:
                self.assertEqual(int(client.get("counter")), clients * rounds)
                client.line("gets shared1")  # cas numbers follow the order of all writes
            cluster.assert_identical()
