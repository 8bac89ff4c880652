"""Clients that write, and remember what was acknowledged: nothing of that may be lost, whatever becomes of the hosts.

A write is one of a counted sequence; one that failed is tried again, at the next host, until it is acknowledged.
"""

import contextlib
import http.client
import subprocess
import threading
import time

PATIENCE_S = 20  # for one answer
PAUSE_S = 0.02


class Writer(threading.Thread):
    """One client. Sends to one host until that fails, then to the next."""

    def __init__(self, addresses, number):
        super().__init__(daemon=True)
        self.addresses, self.number = addresses, number
        self.acknowledged, self.failures, self.longest_s, self.longest_before = 0, 0, 0.0, 0
        self.last_error = ""
        self._ended = threading.Event()

    def run(self):
        place, since = self.number, time.monotonic()
        while not self._ended.is_set():
            try:
                with contextlib.closing(self.connect(self.addresses[place % len(self.addresses)])) as connection:
                    while not self._ended.is_set():
                        self.write(connection, self.acknowledged + 1)
                        now = time.monotonic()
                        if now - since > self.longest_s:
                            self.longest_s, self.longest_before = now - since, self.acknowledged + 1
                        since = now
                        self.acknowledged += 1
                        self._ended.wait(PAUSE_S)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"
                place += 1
                self._ended.wait(PAUSE_S)

    def end(self):
        self._ended.set()
        self.join(PATIENCE_S * 2)

    def key(self, count):
        return f"w{self.number}-{count}"

    def connect(self, address):
        raise NotImplementedError

    def write(self, connection, count):
        """Raises if it was not acknowledged."""
        raise NotImplementedError

    def lost(self, address):
        """What was acknowledged and is not there, asked of one host."""
        raise NotImplementedError


class WebWriter(Writer):
    """PUTs a file each (mod_dav)."""

    port = 80

    def connect(self, address):
        return http.client.HTTPConnection(address, self.port, timeout=PATIENCE_S)

    def body(self, count):
        return f"{self.key(count)} {count * 7919}\n"

    def write(self, connection, count):
        connection.request("PUT", f"/dav/{self.key(count)}", self.body(count))
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (201, 204):
            raise ValueError(f"PUT was answered {answer.status}")

    def lost(self, address):
        lost = []
        with contextlib.closing(self.connect(address)) as connection:
            for count in range(1, self.acknowledged + 1):
                connection.request("GET", f"/dav/{self.key(count)}")
                answer = connection.getresponse()
                if answer.read().decode() != self.body(count):
                    lost.append(self.key(count))
        return lost


class Session:
    """A client program that answers each line with one."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        bufsize=1)

    def ask(self, line, want):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        watch = threading.Timer(PATIENCE_S, self.process.kill)
        watch.start()
        said = self.process.stdout.readline().strip()
        watch.cancel()
        if said != want:
            raise ValueError(f"answered {said!r}, not {want!r}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class DatabaseWriter(Writer):
    """INSERTs a row each, in a transaction of its own."""

    port = 3306

    def words(self, address):
        return ["mariadb", "--no-defaults", "-h", address, "-P", str(self.port), "-u", "tester", "-N", "-B", "-n", "--connect-timeout=5",
                "test"]

    def connect(self, address):
        return Session(self.words(address))

    def write(self, connection, count):
        connection.ask(f"INSERT IGNORE INTO acknowledged VALUES ('{self.key(count)}'); SELECT '{self.key(count)}';", self.key(count))

    def lost(self, address):
        done = subprocess.run(self.words(address) + ["-e", f"SELECT name FROM acknowledged WHERE name LIKE 'w{self.number}-%'"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S * 3, check=False)
        there = set(done.stdout.split())
        return [self.key(count) for count in range(1, self.acknowledged + 1) if self.key(count) not in there]
