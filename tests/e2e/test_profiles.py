"""Servers started by the name of their profile alone: they serve through every replica, and on when the primary is lost."""

import http.client
import os
import pathlib
import shutil
import socket

from support.case import CraneTest
from support.cluster import START_TIMEOUT_S, Cluster, ClusterError
from support.paths import CRANE_RUN
from support.procs import wait_until
from support.redisclient import Redis as RedisClient


class ByProfile(Cluster):
    def start(self):
        done = self._run([str(word) for word in (
            CRANE_RUN, "--detach", "--state-dir", self.state, "--port-map", f"{self.server_port}:{self.client_port}", *self.command)],
            START_TIMEOUT_S, env=os.environ | {"XDG_CONFIG_HOME": str(self.dir)})
        if done.returncode != 0:
            raise ClusterError(f"crane-run exited with {done.returncode}\n{done.stdout}{self.report()}")
        self.cluster_id = self.config(1)["cluster_id"]
        self.wait_listening()
        return done.stdout


class Profiles(CraneTest):
    lane = 2
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def serve(self, name, program, port, ask):
        if not shutil.which(program):
            self.skipTest(f"no {program}")
        with ByProfile([name], port, name=name) as cluster:
            answers = [ask(cluster, n) for n in (1, 2, 3)]
            self.assertTrue(all(answers), answers)
            leads = cluster.primary()
            cluster.kill_craned(leads)
            left = next(n for n in (1, 2, 3) if n != leads)
            wait_until(lambda: ask(cluster, left), 30, f"{name} serves on")
            wait_until(lambda: ask(cluster, leads), 60, "where it was killed, too")
            cluster.assert_identical()

    def page(self, cluster, replica):
        try:
            connection = http.client.HTTPConnection(*cluster.address(replica), timeout=10)
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def incremented(self, cluster, replica):
        try:
            with RedisClient(cluster.address(replica), timeout_s=10) as redis:
                return int(redis("INCR", "counter"))
        except OSError:
            return 0

    def memcached_version(self, cluster, replica):
        try:
            with socket.create_connection(cluster.address(replica), timeout=10) as client:
                client.sendall(b"set key 0 0 5\r\nvalue\r\nget key\r\n")
                text = b""
                while not text.endswith(b"END\r\n"):
                    more = client.recv(4096)
                    if not more:
                        return False
                    text += more
                return text == b"STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n"
        except OSError:
            return False

    def test_apache2(self):
        self.serve("apache2", "apache2", 80, self.page)

    def test_nginx(self):
        self.serve("nginx", "nginx", 80, self.page)

    def greeted(self, cluster, replica):
        """By MariaDB, which speaks first."""
        try:
            with socket.create_connection(cluster.address(replica), timeout=10) as client:
                return b"MariaDB" in client.recv(4096)
        except OSError:
            return False

    def test_lighttpd(self):
        self.serve("lighttpd", "lighttpd", 80, self.page)

    def test_mariadb(self):
        if not pathlib.Path("/var/lib/mysql/mysql").is_dir():
            self.skipTest("no data in /var/lib/mysql")
        self.serve("mariadb", "mariadbd", 3306, self.greeted)

    def test_memcached(self):
        self.serve("memcached", "memcached", 11211, self.memcached_version)

    def answered(self, cluster, replica, asked, expected):
        try:
            with socket.create_connection(cluster.address(replica), timeout=10) as client:
                client.sendall(asked)
                return client.recv(4096).startswith(expected)
        except OSError:
            return False

    def test_mosquitto(self):
        connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test"
        self.serve("mosquitto", "mosquitto", 1883, lambda cluster, n: self.answered(cluster, n, connect, b"\x20\x02\x00"))

    def test_php_fpm(self):
        values = b"\x01\x09\x00\x00\x00\x11\x00\x00" + b"\x0f\x00FCGI_MPXS_CONNS"
        self.serve("php-fpm", "php-fpm8.2", 9000, lambda cluster, n: self.answered(cluster, n, values, b"\x01\x0a"))

    def test_postgresql(self):
        if not pathlib.Path("/var/lib/postgresql/15/main/base").is_dir():
            self.skipTest("no data in /var/lib/postgresql/15/main")
        parameters = b"user\x00nobody\x00database\x00postgres\x00\x00"
        start = (8 + len(parameters)).to_bytes(4, "big") + b"\x00\x03\x00\x00" + parameters
        # It asks for a password, or says that it does not let this client in: either is PostgreSQL's own answer.
        self.serve("postgresql", "/usr/lib/postgresql/15/bin/postgres", 5432,
                   lambda cluster, n: self.answered(cluster, n, start, (b"R", b"E")))

    def test_slapd(self):
        bind = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00"
        self.serve("slapd", "slapd", 389, lambda cluster, n: self.answered(cluster, n, bind, b"\x30\x0c\x02\x01\x01\x61"))

    def test_redis_keeps_what_it_holds_over_a_restart(self):
        self.serve("redis", "redis-server", 6379, self.incremented)
        with ByProfile(["redis"], 6379, name="redis") as cluster:
            held = self.incremented(cluster, 1)
            done = cluster.crane("restart")
            self.assertEqual(done.returncode, 0, done.stdout)
            wait_until(lambda: all(row["generation"] == 2 and row["server"] == "listening" for row in cluster.status().values()), 60,
                       "another server runs")
            again = wait_until(lambda: self.incremented(cluster, 2), 30, "it serves")
            self.assertGreater(again, held)
