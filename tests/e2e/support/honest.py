"""Honest clients: they keep what they were told, how long it took, and go to another replica when theirs fails."""

import random
import socket
import threading
import time

from .redisclient import Redis, RedisError

TIMEOUT_S = 10  # of one operation; a client that is left waiting for longer goes elsewhere
PAUSE_S = 0.02


class Honest(threading.Thread):
    """Makes operations until `stop` is set. A call counts from its first try, whoever answers in the end."""

    def __init__(self, number, addresses, seed, stop):
        super().__init__(daemon=True, name=f"honest {number}")
        self.number, self.addresses, self.stop = number, addresses, stop
        self.random = random.Random(f"honest {number} {seed}")
        self.took_s, self.served_at, self.failures, self.wrong = [], [], 0, []

    def run(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            while not self.stop.is_set():
                try:
                    self.operate()
                except (OSError, RedisError):
                    self.failures += 1
                    self.disconnect()
                    self.stop.wait(PAUSE_S)
                    continue
                self.took_s.append(time.monotonic() - begin)
                self.served_at.append(time.monotonic())
                break
            self.stop.wait(self.random.uniform(0, 2 * PAUSE_S))
        self.disconnect()

    def address(self):
        return self.random.choice(self.addresses)

    def operate(self):
        raise NotImplementedError

    def disconnect(self):
        pass


class Browser(Honest):
    """Gets a page on a new connection and compares every byte."""

    def __init__(self, number, addresses, seed, stop, page):
        super().__init__(number, addresses, seed, stop)
        self.page = page

    def operate(self):
        with socket.create_connection(self.address(), TIMEOUT_S) as client:
            client.sendall(b"GET /10k.bin HTTP/1.0\r\nHost: crane.test\r\n\r\n")
            data = bytearray()
            while more := client.recv(65536):
                data += more
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 ") or (len(body) < len(self.page) and self.page.startswith(body)):
            raise OSError("cut short, or an answer of a server in trouble")  # as any browser would, it asks again
        if body != self.page:
            self.wrong.append(f"a page of {len(body)} bytes that are not those of the file")


class Writer(Honest):
    """Counts upwards in a key of its own; what was acknowledged must never be missing from a later answer."""

    def __init__(self, number, addresses, seed, stop):
        super().__init__(number, addresses, seed, stop)
        self.key, self.tried, self.acknowledged = f"honest:{number}", 0, 0
        self.redis = None

    def operate(self):
        if self.redis is None:
            self.redis = Redis(self.address(), TIMEOUT_S)
        self.tried += 1
        self.redis("SET", self.key, self.tried)
        self.acknowledged = self.tried
        found = int(self.redis("GET", self.key))
        if found != self.tried:
            self.wrong.append(f"{self.key} is {found} after {self.tried} was acknowledged")

    def disconnect(self):
        if self.redis is not None:
            self.redis.close()
        self.redis = None

    def lost(self, redis):
        found = int(redis("GET", self.key) or 0)
        if not self.acknowledged <= found <= self.tried:
            return f"{self.key} is {found}; acknowledged was {self.acknowledged}, tried {self.tried}"
        return None


def longest_gap_s(clients, begin, end):
    """The longest time in which nobody was served."""
    times = sorted([begin, end, *(at for client in clients for at in client.served_at)])
    return max(after - before for before, after in zip(times, times[1:]))
