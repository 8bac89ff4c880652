"""Servers that put themselves into the background: the process that goes on is the server."""

import signal

import test_images  # the modules: a class by name would be run here again
import test_restart
from support.case import CraneTest
from support.redisclient import Redis as RedisClient
from support.servers import Nginx, Program, Redis
from support.webclient import get
from test_programs import ask, fixed


class Daemon(Program):
    def __init__(self, way):
        self.way = way
        super().__init__("daemons")

    def command(self):
        return [*super().command(), self.way]


class RedisDaemon(Redis):
    def command(self):
        words = super().command()
        words[words.index("--daemonize") + 1] = "yes"
        return words


class NginxDaemon(Nginx):
    """As it comes."""

    def prepare(self):
        super().prepare()
        conf = self.site / "nginx.conf"
        text = conf.read_text()
        assert "daemon off;" in text
        conf.write_text(text.replace("daemon off;", ""))


class Daemons(CraneTest):
    lane = 2
    timeout_s = 240
    log, await_back, checkpoints = test_images.Images.log, test_images.Images.await_back, test_images.Images.checkpoints
    take, begin_there = test_images.Images.take, test_images.Images.begin_there
    serves, await_generation = test_restart.Restart.serves, test_restart.Restart.await_generation

    def served(self, cluster, line="x"):
        return fixed(ask(cluster.address(), line))

    def said(self, number):
        return [f"served {number}; parent 1; signal to the first process: -1 ESRCH"]

    def next_server(self, cluster, generation):
        self.await_generation(cluster, generation)
        self.assertEqual(self.served(cluster), self.said(1))

    def check_way(self, way):
        """It serves, its orphans die, and an image of it is taken."""
        self.built_program("daemons")
        with self.crane(Daemon, way) as cluster:
            self.assertEqual(self.served(cluster), self.said(1))
            self.assertEqual(self.served(cluster, "orphan"), self.said(2))
            holders = self.take(cluster)
            self.begin_there(cluster, holders[0])
            self.assertEqual(self.served(cluster), self.said(3))
            cluster.assert_identical()

    def test_what_ends_it_ends_the_server(self):
        self.built_program("daemons")
        with self.crane(Daemon, "twice", options=("--restart=always",)) as cluster:
            self.assertEqual(self.served(cluster), self.said(1))
            ask(cluster.address(), "end 0")
            self.next_server(cluster, 2)
            ask(cluster.address(), f"die {int(signal.SIGSEGV)}")
            self.next_server(cluster, 3)
            done = cluster.crane("signal", "TERM")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.next_server(cluster, 4)
            cluster.assert_identical()

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.needs_criu()

    def test_listens_before_it_leaves(self):
        self.check_way("listens")

    def test_by_the_library(self):
        self.check_way("daemon")

    def test_twice(self):
        self.check_way("twice")

    def test_waited_for(self):
        self.check_way("waited")

    def test_left_by_a_shell(self):
        self.check_way("shell")

    def test_nginx_as_it_comes(self):
        with self.crane(NginxDaemon) as cluster:
            page = get(cluster.address(), "/").body
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                self.assertEqual(get(cluster.address(), "/").body, page)
            cluster.assert_identical()

    def test_redis_in_the_background(self):
        with self.crane(RedisDaemon) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "key", "value")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    self.assertEqual(redis("GET", "key"), b"value")
            cluster.assert_identical()
