"""Load generators, chosen for being cheap: wrk for HTTP, load/pingload.c for Redis and memcached.

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
from support.servers import Apache, Memcached, Redis  # noqa: E402

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
    def __init__(self, name, title, clients, path):
        super().__init__(name, title, Apache, clients)
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


LOADS = {load.name: load for load in (
    Wrk("apache-compute", "Apache, mod_lua page that computes, 8 clients", 8, "/compute.lua"),
    Wrk("apache-static", "Apache, 10 KB file, keep-alive, 8 clients", 8, "/10k.bin"),
    Ping("redis-50", "Redis, SET of 256 bytes, 50 clients, no pipeline", Redis, 50, "redis-set"),
    Ping("redis-1", "Redis, SET of 256 bytes, 1 client", Redis, 1, "redis-set"),
    Ping("memcached", "memcached, 9 get to 1 set of 256 bytes, 50 clients", Memcached, 50, "memcached"),
)}
