"""The servers whose checkpoints are measured: how each is filled, and a request that is answered."""

import shutil
import socket
import threading

from subjects import SUBJECTS
from support.databases import MariaDb, Postgres
from support.redisclient import Redis as RedisClient
from support.servers import Apache, Memcached, Nginx, Redis
from support.webclient import get
from test_databases import fill, sql

FILL_MB = 100


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


def fill_mariadb_1gb(cluster):
    """A table of a thousand thousand rows of a kilobyte; and what belongs to it."""
    fill(MariaDb, cluster.address(cluster.primary()))
    address = cluster.address(cluster.primary())
    sql(MariaDb, address, "CREATE TABLE big (id int PRIMARY KEY AUTO_INCREMENT, body varchar(1000));"
                          "INSERT INTO big (body) SELECT REPEAT('x', 1000) FROM words a JOIN words b LIMIT 4000;")
    for _ in range(8):  # each doubles it
        sql(MariaDb, address, "INSERT INTO big (body) SELECT body FROM big;")


def by_a_client(name):
    """A server that checkpoints at work are tried of, too: one operation of such a client, which looks at the answer."""
    subject = SUBJECTS[name]

    def touch(cluster):
        client = subject.client(0, cluster.address(cluster.primary()), threading.Event())
        client.connect()
        client.operate()
        for held in vars(client).values():
            if hasattr(held, "close"):
                held.close()

    return subject.kind, touch, touch


def missing(name):
    """Programs that it takes and that are not here."""
    return [program for program in getattr(SUBJECTS.get(name), "needs", ()) if shutil.which(program) is None]


# How it is filled, and a request that is answered.
SERVERS = {
    "apache": (Apache, touch_web, touch_web),
    "apache-php": by_a_client("apache-php"),
    "nginx": (Nginx, touch_web, touch_web),
    "civetweb": by_a_client("civetweb"),
    "memcached": (Memcached, touch_memcached, touch_memcached),
    "redis": (Redis, touch_redis, touch_redis),
    "redis-100mb": (Redis, fill_redis, touch_redis),
    "mariadb": (MariaDb, fill_mariadb, touch_database(MariaDb)),
    "postgres": (Postgres, lambda cluster: fill(Postgres, cluster.address(cluster.primary())), touch_database(Postgres)),
    "clamd": by_a_client("clamd"),
    "java": by_a_client("java"),
    "node": by_a_client("node"),
    "mariadb-1gb": (MariaDb, fill_mariadb_1gb, touch_database(MariaDb)),
    "mariadb-1gb-xfs": (MariaDb, fill_mariadb_1gb, touch_database(MariaDb)),
}
LONG = ("mariadb-1gb", "mariadb-1gb-xfs")  # only where they are named

# Of its own; each replica takes the space.
OPTIONS = {"mariadb-1gb-xfs": ("--disk-quota-bytes", str(3 << 30), "--disk-format", "xfs")}
