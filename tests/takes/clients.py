"""Clients that keep one connection and forgive nothing: whatever one of them does not get as it should is an error."""

import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from support.redisclient import Redis  # noqa: E402
from support.webclient import Connection  # noqa: E402

TIMEOUT_S = 60
PAUSE_S = 0.005


class Client(threading.Thread):
    """Makes operations on one connection until `stop` is set, or until one fails."""

    def __init__(self, number, address, stop):
        super().__init__(daemon=True, name=f"client {number}")
        self.number, self.address, self.stop = number, address, stop
        self.operations, self.longest_s, self.error = 0, 0.0, ""

    def run(self):
        try:
            self.connect()
            while not self.stop.is_set():
                begin = time.monotonic()
                self.operate()
                self.longest_s = max(self.longest_s, time.monotonic() - begin)
                self.operations += 1
                time.sleep(PAUSE_S)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = f"{self.name} after {self.operations} operations: {type(error).__name__}: {error}"

    def connect(self):
        raise NotImplementedError

    def operate(self):
        raise NotImplementedError


class Pages(Client):
    """GETs one page again and again; it has to be the same each time."""

    path = "/10k.bin"

    def connect(self):
        self.connection, self.first = Connection(self.address, TIMEOUT_S), None

    def operate(self):
        reply = self.connection.request("GET", self.path)
        found = reply.status, reply.body_bytes, reply.digest
        self.first = self.first or found
        if found != self.first or " 200 " not in reply.status:
            raise AssertionError(f"{found}, and at first {self.first}")
        if (reply.header("connection") or "").lower() == "close":  # after so many requests
            self.connection.close()
            self.connection = Connection(self.address, TIMEOUT_S)


class FewPages(Pages):
    """For servers that end an idle connection, or one after some requests, without a word: a new one each time."""

    def operate(self):
        super().operate()
        self.connection.close()
        self.connection = Connection(self.address, TIMEOUT_S)


class Counted(Client):
    """GETs a counter that all clients share: it has to grow."""

    path = "/"

    def connect(self):
        self.connection, self.last = Connection(self.address, TIMEOUT_S), -1

    def operate(self):
        reply = self.connection.request("GET", self.path)
        count = int(re.search(rb"\d+", reply.body)[0])
        if " 200 " not in reply.status or count <= self.last:
            raise AssertionError(f"{count} after {self.last}")
        self.last = count


class RedisCounter(Client):
    def connect(self):
        self.redis, self.count = Redis(self.address, TIMEOUT_S), 0

    def operate(self):
        self.count += 1
        found = self.redis("INCR", f"counter:{self.number}")
        if found != self.count:
            raise AssertionError(f"{found} instead of {self.count}")


class Cached(Client):
    """memcached's text protocol."""

    def connect(self):
        self.socket = socket.create_connection(self.address, TIMEOUT_S)
        self.file, self.count = self.socket.makefile("rb"), 0

    def line(self, wanted):
        found = self.file.readline()
        if found != wanted:
            raise AssertionError(f"{found!r} instead of {wanted!r}")

    def operate(self):
        self.count += 1
        text = str(self.count).encode() * 100
        self.socket.sendall(b"set key:%d 0 0 %d\r\n%s\r\n" % (self.number, len(text), text))
        self.line(b"STORED\r\n")
        self.socket.sendall(b"get key:%d\r\n" % self.number)
        for wanted in (b"VALUE key:%d 0 %d\r\n" % (self.number, len(text)), text + b"\r\n", b"END\r\n"):
            self.line(wanted)


class Scanned(Client):
    """clamd: one session, in which a clean file and the test virus are looked at in turn."""

    virus = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"

    def connect(self):
        self.socket = socket.create_connection(self.address, TIMEOUT_S)
        self.socket.sendall(b"zIDSESSION\0")
        self.count, self.buffer = 0, b""

    def operate(self):
        self.count += 1
        data = self.virus if self.count % 2 else b"nothing in it " * 100
        self.socket.sendall(b"zINSTREAM\0" + len(data).to_bytes(4, "big") + data + bytes(4))
        while b"\0" not in self.buffer:
            more = self.socket.recv(4096)
            if not more:
                raise ConnectionError("clamd has closed the connection")
            self.buffer += more
        answer, _, self.buffer = self.buffer.partition(b"\0")
        if answer.endswith(b"FOUND") != bool(self.count % 2):
            raise AssertionError(f"{answer!r} for {data[:20]!r}")


class Tool(threading.Thread):
    """A database's own benchmark, again and again: it must end well each time, and says itself whether any request failed."""

    def __init__(self, command, failed, counted, stop, longest_ms=None):
        """Regular expressions; `longest_ms`: where it says how long the longest operation took."""
        super().__init__(daemon=True, name=pathlib.Path(str(command[0])).name)
        self.command, self.failed, self.counted, self.longest_ms = [str(word) for word in command], failed, counted, longest_ms
        self.stop = stop
        self.operations, self.longest_s, self.error = 0, 0.0 if longest_ms else None, ""

    def run(self):
        while not self.stop.is_set() and not self.error:
            done = subprocess.run(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, check=False)
            found = re.search(self.counted, done.stdout)
            self.operations += int(found[1]) if found else 0
            longest = re.search(self.longest_ms, done.stdout) if self.longest_ms else None
            if longest:
                self.longest_s = max(self.longest_s, float(longest[1]) / 1000)
            if done.returncode != 0 or not found or re.search(self.failed, done.stdout):
                self.error = f"{self.name} exited with {done.returncode}: {done.stdout[-1500:]}"
