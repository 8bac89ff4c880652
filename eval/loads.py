"""Load generators, chosen for being cheap: wrk for HTTP, load/pingload.c for Redis and memcached; for databases the usual
ones, sysbench and pgbench.

run(addresses, seconds) sends the same closed-loop load to each address at once and returns a Result per address.
"""

import json
import pathlib
import re
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

from support.paths import BUILD  # noqa: E402
from support.databases import MariaDb, Postgres  # noqa: E402
from support.servers import Apache, CivetWeb, Clamd, Memcached, Nginx, Redis  # noqa: E402

UNITS_US = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}


class Result:
    def __init__(self, requests, seconds, p50_us, p99_us, errors):
        self.requests, self.seconds, self.errors = requests, seconds, errors
        self.p50_us, self.p99_us = p50_us, p99_us

    @property
    def per_second(self):
        return self.requests / self.seconds


def client_cpu_seconds():
    """Of all load generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Load:
    def __init__(self, name, title, server, clients):
        self.name, self.title, self.server, self.clients = name, title, server, clients

    def prepare(self, addresses):
        """Fills the servers with what the load needs."""

    def command(self, host, port, seconds, copy):
        raise NotImplementedError

    def parse(self, text):
        raise NotImplementedError

    def run(self, addresses, seconds):
        """The results, and the CPU seconds that the generators used."""
        before = client_cpu_seconds()
        running = [subprocess.Popen(list(map(str, self.command(*address, seconds, copy))), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                   for copy, address in enumerate(addresses)]
        results = []
        try:
            for process in running:
                text = process.communicate(timeout=seconds + 60)[0].decode()
                if process.returncode != 0:
                    raise RuntimeError(f"{process.args[0]} exited with {process.returncode}: {text[-400:]}")
                results.append(self.parse(text))
        finally:
            for process in running:
                process.kill()
                process.wait()
        return results, client_cpu_seconds() - before


class Wrk(Load):
    def __init__(self, name, title, clients, path, server=Apache):
        super().__init__(name, title, server, clients)
        self.path = path

    def command(self, host, port, seconds, copy):
        return ["wrk", "--latency", "-t", 1, "-c", self.clients, "-d", f"{max(1, round(seconds))}s", "--timeout", "20s",
                f"http://{host}:{port}{self.path}"]

    def parse(self, text):
        def latency(percent):
            found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)$", text, re.M)
            return float(found[1]) * UNITS_US[found[2]] if found else float("nan")

        total = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", text)
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
        errors = int(bad[1]) if bad else 0
        errors += sum(map(int, sockets.groups())) if sockets else 0
        return Result(int(total[1]), float(total[2]) * UNITS_US[total[3]] / 1e6, latency(50), latency(99), errors)


class Ping(Load):
    def __init__(self, name, title, server, clients, kind):
        super().__init__(name, title, server, clients)
        self.kind = kind

    def command(self, host, port, seconds, copy):
        return [BUILD / "load" / "pingload", host, port, self.clients, seconds, self.kind, copy]

    def parse(self, text):
        row = json.loads(text)
        return Result(row["requests"], row["seconds"], row["p50_us"], row["p99_us"], row["errors"])


class Sysbench(Load):
    """Transactions a second; 4 tables of 10,000 rows."""

    script = "oltp_{test}"

    def __init__(self, test, clients):
        super().__init__(f"mariadb-{test.replace('_', '-')}-{clients}", f"MariaDB, sysbench {test}, {clients} clients", MariaDb,
                         clients)
        self.test = test

    def words(self, host, port, *rest):
        return ["sysbench", self.script.format(test=self.test), "--db-driver=mysql", f"--mysql-host={host}", f"--mysql-port={port}",
                "--mysql-user=tester", "--mysql-db=test", "--tables=4", "--table-size=10000", *rest]

    def prepare(self, addresses):
        for host, port in addresses:
            subprocess.run(self.words(host, port, "prepare"), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def command(self, host, port, seconds, copy):
        # A transaction that ends in a deadlock is made again, as by any client.
        return self.words(host, port, f"--threads={self.clients}", f"--time={max(1, round(seconds))}", "--percentile=99", "run")

    def parse(self, text):
        total = re.search(r"transactions: +(\d+) +\(([\d.]+) per sec", text)
        average, p99 = (float(re.search(rf"{name}: +([\d.]+)", text)[1]) for name in ("avg", "99th percentile"))
        reconnects = int(re.search(r"reconnects: +(\d+)", text)[1])
        requests = int(total[1])
        return Result(requests, requests / max(float(total[2]), 1e-9), average * 1e3, p99 * 1e3, reconnects)


class Computing(Sysbench):
    """Queries a second of a query that reads nothing and computes."""

    script = str(pathlib.Path(__file__).resolve().parent / "load" / "{test}.lua")

    def words(self, host, port, *rest):
        return [word for word in super().words(host, port, *rest) if not word.startswith("--table")]

    def prepare(self, addresses):
        pass


class Pgbench(Load):
    """Transactions a second of pgbench's own kind."""

    def __init__(self, clients):
        super().__init__(f"postgres-{clients}", f"PostgreSQL, pgbench (TPC-B), {clients} clients", Postgres, clients)

    def words(self, host, port, *rest):
        return ["pgbench", "-h", host, "-p", port, "-U", "tester", *rest, "postgres"]

    def prepare(self, addresses):
        for host, port in addresses:
            subprocess.run(list(map(str, self.words(host, port, "-i", "-q", "-s", 10))), check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def command(self, host, port, seconds, copy):
        return self.words(host, port, "-n", "-c", self.clients, "-j", 1, "-T", max(1, round(seconds)))

    def parse(self, text):
        requests = int(re.search(r"transactions actually processed: (\d+)", text)[1])
        failed = int(re.search(r"failed transactions: (\d+)", text)[1])
        rate = float(re.search(r"tps = ([\d.]+)", text)[1])
        average_us = float(re.search(r"latency average = ([\d.]+) ms", text)[1]) * 1e3
        return Result(requests, requests / max(rate, 1e-9), average_us, float("nan"), failed)


# Without being asked for; the others by name.
USUAL = ("apache-compute", "apache-static", "redis-50", "redis-1", "memcached")
LOADS = {load.name: load for load in (
    Wrk("apache-compute", "Apache, mod_lua page that computes, 8 clients", 8, "/compute.lua"),
    Wrk("apache-static", "Apache, 10 KB file, keep-alive, 8 clients", 8, "/10k.bin"),
    Ping("redis-50", "Redis, SET of 256 bytes, 50 clients, no pipeline", Redis, 50, "redis-set"),
    Ping("redis-1", "Redis, SET of 256 bytes, 1 client", Redis, 1, "redis-set"),
    Ping("memcached", "memcached, 9 get to 1 set of 256 bytes, 50 clients", Memcached, 50, "memcached"),
    Wrk("nginx", "nginx, 10 KB file, keep-alive, 8 clients", 8, "/10k.bin", Nginx),
    Wrk("civetweb", "CivetWeb, 10 KB file, keep-alive, 3 clients", 3, "/10k.bin", CivetWeb),
    Ping("clamd", "clamd, scan of 4 KB that come with the request, 8 clients", Clamd, 8, "clamd"),
    Computing("compute", 8),
    *(Sysbench(test, clients) for test in ("read_only", "read_write", "update_index") for clients in (1, 8, 16)),
    *(Pgbench(clients) for clients in (1, 8)),
)}
