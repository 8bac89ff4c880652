#!/usr/bin/python3
"""Checkpoints of servers that run: how long one stands still, how large it is, how soon a replica is back from it.

usage: checkpoints.py [--rounds N] [--json FILE] [SERVER …]

For each server three replicas are started and filled. In each round `crane checkpoint take` has the backups take one each;
then the craned of a backup that holds one is killed, and the time is taken until that replica has its server restored
(from craned.log) and until it has caught up and serves. Medians, and the paper's Table 2 beside them. A server stands
still for the dump of its processes and the packing of its files together; restoring, too, is both.
"""

import argparse
import datetime
import json
import pathlib
import re
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

from support.cluster import Cluster  # noqa: E402
from support.databases import MariaDb, Postgres  # noqa: E402
from support.procs import wait_until  # noqa: E402
from support.redisclient import Redis as RedisClient  # noqa: E402
from support.servers import Apache, Memcached, Nginx, Redis  # noqa: E402
from support.webclient import get  # noqa: E402
from test_databases import fill, sql  # noqa: E402

FILL_MB = 100
# Milliseconds for the process and for the file system: to dump, to restore (the paper's Table 2; MySQL there).
PAPER = {"apache": (33, 48, 3069, 237), "mariadb": (88, 81, 53473, 712)}


def touch_web(cluster):
    get(cluster.address(cluster.primary()), "/10k.bin")


def fill_redis(cluster):
    with RedisClient(cluster.address(cluster.primary())) as redis:
        for number in range(FILL_MB):
            redis("SET", f"key:{number}", "x" * (1 << 20))


def fill_mariadb(cluster):
    fill(MariaDb, cluster.address(cluster.primary()))
    sql(MariaDb, cluster.address(cluster.primary()),
        "CREATE TABLE big (id int PRIMARY KEY AUTO_INCREMENT, body varchar(1000));"
        "INSERT INTO big (body) SELECT REPEAT('x', 1000) FROM words a JOIN words b LIMIT 5000;")


def touch_redis(cluster):
    with RedisClient(cluster.address(cluster.primary())) as redis:
        redis("INCR", "counter")


def touch_memcached(cluster):
    with socket.create_connection(cluster.address(cluster.primary()), timeout=10) as client:
        client.sendall(b"version\r\n")
        client.recv(100)


def touch_database(server_class):
    return lambda cluster: sql(server_class, cluster.address(cluster.primary()), "SELECT 1;")


# How it is filled, and a request that is answered.
SERVERS = {
    "apache": (Apache, touch_web, touch_web),
    "nginx": (Nginx, touch_web, touch_web),
    "memcached": (Memcached, touch_memcached, touch_memcached),
    "redis": (Redis, touch_redis, touch_redis),
    "redis-100mb": (Redis, fill_redis, touch_redis),
    "mariadb": (MariaDb, fill_mariadb, touch_database(MariaDb)),
    "postgres": (Postgres, lambda cluster: fill(Postgres, cluster.address(cluster.primary())), touch_database(Postgres)),
}


def log_of(cluster, replica):
    path = cluster.state / f"r{replica}" / "craned.log"
    return path.read_text(errors="replace")


def moments(text, what):
    """When lines that contain `what` were logged, in seconds."""
    found = re.findall(r"^(\S+ \S+) \w+ r\d+: .*" + re.escape(what), text, re.MULTILINE)
    return [datetime.datetime.fromisoformat(stamp).timestamp() for stamp in found]


def frozen_ms(cluster):
    """The latest on each replica that has taken one."""
    found = [re.findall(r"it stood still for (\d+) ms", log_of(cluster, n)) for n in (1, 2, 3)]
    return [int(values[-1]) for values in found if values]


def one_round(cluster, touch):
    before = {n: row["checkpoint"]["index"] for n, row in cluster.status().items()}
    touch(cluster)
    began = time.monotonic()
    done = cluster.crane("checkpoint", "take", timeout_s=200)
    took_ms = (time.monotonic() - began) * 1000
    if done.returncode != 0:
        raise RuntimeError(f"crane checkpoint take: {done.stdout}")
    holders = [n for n, row in cluster.status().items() if row["checkpoint"]["index"] > before[n]]
    sizes = json.loads(cluster.crane("checkpoint", "list", "--json").stdout)["checkpoints"]
    newest = max((row for row in sizes if row["replica"] == holders[0]), key=lambda row: row["index"])
    row = {"frozen_ms": statistics.median(frozen_ms(cluster)), "take_ms": took_ms, "bytes": newest["bytes"]}
    victim = holders[0]
    killed = time.monotonic()
    cluster.kill_craned(victim)

    def back():
        status = cluster.status().get(victim, {})
        return status.get("server") == "listening" and status.get("lag") == 0 and \
            "as it ran there" in log_of(cluster, victim)

    wait_until(back, 120, f"replica {victim} is back", poll_s=0.02)
    row["back_ms"] = (time.monotonic() - killed) * 1000
    text = log_of(cluster, victim)
    row["restore_ms"] = (moments(text, "the server is under the shim")[-1] -
                         moments(text, "starting from the checkpoint")[-1]) * 1000
    touch(cluster)  # or there is nothing that can be compared
    cluster.assert_identical()
    return row


def measure(name, rounds):
    server_class, prepare, touch = SERVERS[name]
    server = server_class()
    try:
        with Cluster(server.command(), server.port, environment=server.environment, name=server.name) as cluster:
            prepare(cluster)
            rows = [one_round(cluster, touch) for _ in range(rounds)]
    finally:
        server.remove()
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def main():
    parser = argparse.ArgumentParser(description="checkpoints of servers that run")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of: {', '.join(SERVERS)} (default all)")
    parser.add_argument("--rounds", type=int, default=5, help="for each server (default 5)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    for name in options.servers:
        if name not in SERVERS:
            parser.error(f"no server {name}; there are: {', '.join(SERVERS)}")
    results = {}
    print(f"{'server':12} {'frozen ms':>9} {'take ms':>8} {'restore ms':>10} {'back ms':>8} {'MB':>7}   "
          "the paper, ms: process dump, restore; files dump, restore")
    for name in options.servers or SERVERS:
        row = results[name] = measure(name, options.rounds)
        paper = PAPER.get(name)
        print(f"{name:12} {row['frozen_ms']:9.0f} {row['take_ms']:8.0f} {row['restore_ms']:10.0f} {row['back_ms']:8.0f} "
              f"{row['bytes'] / 1e6:7.1f}   {'{}, {}; {}, {}'.format(*paper) if paper else ''}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
