"""Servers started by the name of their profile alone: they serve through every replica, and on when the primary is lost."""

import http.client
import os
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

    def test_memcached(self):
        self.serve("memcached", "memcached", 11211, self.memcached_version)

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
