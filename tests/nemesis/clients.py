"""Clients of the register service, and what they saw: the history.

An operation is invoked when it is sent. What has no answer (time-out, reset, end of the connection) has an unknown
outcome: it may happen any time later, or never. What could not be sent did not happen.
"""

import random
import socket
import threading
import time

TIMEOUT_S = 3.0
SESSION_S = 2.0
KEYS_AT_ONCE = 4  # registers in use at a time; later ones take their place, so that no history grows too long
KEY_LIFE_S = 4.0


class Unknown(Exception):
    """Sent, but not answered."""


class Session:
    """One connection."""

    def __init__(self, address, timeout_s=TIMEOUT_S):
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""

    def close(self):
        self.socket.close()

    def line(self):
        while b"\n" not in self.input:
            try:
                piece = self.socket.recv(1 << 20)
            except OSError as error:
                raise Unknown(str(error)) from error
            if not piece:
                raise Unknown("the connection ended")
            self.input += piece
        line, self.input = self.input.split(b"\n", 1)
        return line.decode()

    def ask(self, request):
        try:
            self.socket.sendall(request.encode() + b"\n")
        except OSError as error:  # a part may have got away
            raise Unknown(str(error)) from error
        answer = self.line()
        if answer.startswith("error"):
            raise AssertionError(f"{request}: {answer}")
        return answer

    def dump(self):
        """All registers, and the last line as it was sent."""
        self.socket.sendall(b"dump\n")
        found = {}
        while not (line := self.line()).startswith("end "):
            key, value = line.split(" ")
            found[key] = value
        if len(found) != int(line.split(" ")[1]):
            raise AssertionError(f"a dump of {len(found)} registers ends with {line}")
        return found, line


class Client(threading.Thread):
    """Sends one operation at a time until told to stop."""

    def __init__(self, number, addresses, seed, stop, pause_s):
        super().__init__(daemon=True)
        self.number, self.addresses, self.stop, self.pause_s = number, addresses, stop, pause_s
        self.random = random.Random(seed * 1000 + number)
        self.life = 0  # after an unknown outcome a client is another one
        self.operations = []
        self.unique = {}  # key -> value: written once, acknowledged
        self.failed = 0
        self.cut = 0
        self.seen = {}
        self.count = 0
        self.error = None
        self.begin_s = time.monotonic()

    def run(self):
        try:
            address = self.addresses[self.number % len(self.addresses)]
            while not self.stop.is_set():
                try:
                    session = Session(address)
                except OSError:
                    self.failed += 1
                    address = self.another(address)
                    self.stop.wait(0.02)
                    continue
                try:
                    self.work(session)
                    address = self.random.choice(self.addresses)
                except Unknown:
                    self.cut += 1
                    self.life += 1
                    address = self.another(address)
                finally:
                    session.close()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error  # told in the report

    def another(self, address):
        return self.random.choice([one for one in self.addresses if one != address])

    def work(self, session):
        # Not for ever: after a while all clients would be where nothing has happened for longest.
        end_s = time.monotonic() + self.random.uniform(0.5, 1.5) * SESSION_S
        while not self.stop.is_set() and time.monotonic() < end_s:
            self.operate(session)
            if self.pause_s:
                time.sleep(self.random.uniform(0, 2 * self.pause_s))

    def operate(self, session):
        self.count += 1
        value = f"{self.number}.{self.count}"
        kind = self.random.random()
        if kind < 0.2:
            self.one(session, "set", f"u{value}", value)
            self.unique[f"u{value}"] = value
            return
        age = int((time.monotonic() - self.begin_s) / KEY_LIFE_S)
        key = f"k{age * KEYS_AT_ONCE + self.random.randrange(KEYS_AT_ONCE)}"
        if kind < 0.6:
            self.seen[key] = self.one(session, "get", key)
        elif kind < 0.8:
            self.one(session, "set", key, value)
            self.seen[key] = value
        elif self.one(session, "cas", key, value, self.seen.get(key, "-")) == "ok":
            self.seen[key] = value

    def one(self, session, kind, key, value="", old=""):
        record = {"client": self.number + 100 * self.life, "op": kind, "key": key, "value": value, "old": old,
                  "call": time.monotonic_ns()}
        request = " ".join(word for word in (kind, key, old, value) if word)
        self.operations.append(record)
        record["result"] = session.ask(request)
        record["return"] = time.monotonic_ns()
        return record["result"]


def longest_gap(operations):
    """(seconds, when it began in ns): between two answers, of whatever client."""
    times = sorted(one["return"] for one in operations if "return" in one)
    if len(times) < 2:
        return float("inf"), 0
    return max(((b - a) / 1e9, a) for a, b in zip(times, times[1:]))
