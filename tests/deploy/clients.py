"""Clients that write, and remember what was acknowledged: nothing of that may be lost, whatever becomes of the hosts.

A write is one of a counted sequence; one that failed is tried again, at the next host, until it is acknowledged.
"""

import contextlib
import http.client
import re
import subprocess
import threading
import time

PATIENCE_S = 5  # for one answer: a host that is gone says nothing, and what it had been asked is asked again
READ_S = 60  # for all that was written
RUN_S = 20  # for a run of a load program
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
        self.join(PATIENCE_S * 4)

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


class Bench(threading.Thread):
    """A load program, run again and again to the end: what it has come to in all, by the numbers that it prints."""

    def __init__(self, name, words, count):
        super().__init__(daemon=True)
        self.name, self.words, self.count = name, words, count
        self.done, self.runs, self.broken, self.last_error = 0, 0, 0, ""
        self._ended = threading.Event()

    def run(self):
        while not self._ended.is_set():
            # Programs that wait for ever for a host that is gone are ended, as their users would.
            said = subprocess.run(["timeout", str(RUN_S), *self.words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            found = self.count.search(said.stdout)
            if said.returncode == 0 and found:
                self.done += int(found.group(1))
                self.runs += 1
            else:
                self.broken += 1
                self.last_error = f"exited with {said.returncode}: {said.stdout[-500:]}"
            self._ended.wait(0.3)

    def end(self):
        self._ended.set()
        self.join(READ_S)


def web_bench(address):
    return Bench("ab", ["ab", "-q", "-r", "-s", "5", "-c", "4", "-n", "200", f"http://{address}/index.html"],
                 re.compile(r"^Complete requests:\s+(\d+)", re.MULTILINE))


def database_bench(address):
    return Bench("sysbench", [*sysbench(address), "--threads=2", "--time=3", "--rate=20", "run"],
                 re.compile(r"^\s+transactions:\s+(\d+)", re.MULTILINE))


def sysbench(address):
    return ["sysbench", "oltp_read_write", "--db-driver=mysql", f"--mysql-host={address}", "--mysql-user=tester", "--mysql-db=test",
            "--mysql-ignore-errors=all", "--tables=1", "--table-size=1000"]


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
        lost, answered = [], time.monotonic()
        with contextlib.closing(http.client.HTTPConnection(address, self.port, timeout=READ_S)) as connection:
            for count in range(1, self.acknowledged + 1):
                try:
                    connection.request("GET", f"/dav/{self.key(count)}")
                    answer = connection.getresponse()
                    if answer.read().decode() != self.body(count):
                        lost.append(self.key(count))
                except (OSError, http.client.HTTPException) as error:
                    raise OSError(f"{address}, asked for {self.key(count)} of {self.acknowledged}, {time.monotonic() - answered:.2f} s "
                                  f"after its last answer: {type(error).__name__}: {error}") from error
                answered = time.monotonic()
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
                              timeout=READ_S, check=False)
        there = set(done.stdout.split())
        return [self.key(count) for count in range(1, self.acknowledged + 1) if self.key(count) not in there]
