"""Redis under Crane: pipelines from 50 clients, expiry by virtual time, hash seeds, equal digests."""

import os
import random
import threading

from support.case import CraneTest, together
from support.paths import Settings
from support.procs import read, wait_until
from support.redisclient import Redis, RedisError, encode
from support.servers import Redis as RedisServer
from support.servers import RedisIoThreads


def scripted_commands(address):
    """Commands whose answers depend neither on time nor on random numbers."""
    rng = random.Random(5)
    with Redis(address) as redis:
        seen = [redis("PING"), redis("SET", "a", "1"), redis("INCR", "a"), redis("GET", "a"), redis("GET", "none")]
        for size in (0, 1, 100, 16_383, 16_385, 1_000_003):
            value = rng.randbytes(size)
            seen += [redis("SET", f"big{size}", value), redis("STRLEN", f"big{size}")]
            seen.append(redis("GET", f"big{size}") == value)
        for number in range(300):
            seen.append(redis("RPUSH", "list", rng.randbytes(20)))
            seen.append(redis("ZADD", "scores", rng.random(), f"member{number}"))
            seen.append(redis("HSET", "hash", f"field{number}", number))
        seen += [redis("LRANGE", "list", 0, -1), redis("ZRANGE", "scores", 0, -1), redis("HGETALL", "hash")]
        seen += [redis("EVAL", "return redis.call('incr', KEYS[1]) * 7", 1, "a"), redis("DBSIZE")]
        seen += [redis("MULTI"), redis("INCR", "a"), redis("EXEC"), redis("DEBUG", "DIGEST")]
        for wrong in (("NOSUCH",), ("LPUSH", "a", "x"), ("GET",)):
            try:
                seen.append(redis(*wrong))
            except RedisError as error:
                seen.append(str(error))
    return seen


def pipelined(address, seed, commands=2000):
    """A pipeline in pieces of random sizes; returns the replies."""
    rng = random.Random(seed)
    data = b"".join(encode(("INCR", "shared")) if n % 3 else encode(("LPUSH", f"l{seed % 7}", n))
                    for n in range(commands))
    with Redis(address) as redis:
        at, replies = 0, 0
        while replies < commands:
            if at < len(data):
                size = rng.randrange(1, 20_000)
                redis.socket.sendall(data[at : at + size])
                at += size
                continue
            redis.reply()
            replies += 1
    return replies


def keepalive_due_s(client_port):
    """When the other end of a client's connection is probed next, as the kernel has it; 0: no such timer is set."""
    for line in read("/proc/net/tcp").splitlines()[1:]:
        fields = line.split()
        timer, when = fields[5].split(":")
        if fields[2].endswith(f":{client_port:04X}") and timer == "02":
            return int(when, 16) / os.sysconf("SC_CLK_TCK")
    return 0


class RedisTest(CraneTest):
    def test_what_monitoring_asks_for(self):
        """Sizes of memory, times, the kernel: of no host's own."""
        with self.crane(RedisServer) as cluster:
            with Redis(cluster.address(1)) as redis:
                for _ in range(5):
                    redis("SET", "k", "v" * 1000)
                    self.assertIn(b"used_memory_rss", redis("INFO", "everything"))
                    redis("MEMORY", "STATS")
                    redis("MEMORY", "DOCTOR")
            cluster.assert_identical()

    def test_answers_equal_native(self):
        with self.native(RedisServer) as native:
            expected = scripted_commands(native.address())
        with self.crane(RedisServer) as cluster:
            self.assertEqual(scripted_commands(cluster.address()), expected)
            cluster.assert_identical()

    def test_benchmark_with_pipelines_and_50_clients(self):
        count = 5_000 if Settings.quick else 25_000
        with self.crane(RedisServer) as cluster:
            host, port = cluster.address()
            for extra in (["-P", 16], []):
                requests = count if extra else count // 5
                text = self.tool("redis-benchmark", "-h", host, "-p", port, "-c", 50, "-n", requests, "-r", 10_000,
                                 "-q", "-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,mset", *extra, timeout_s=150)
                self.assertNotIn("ERR", text)
                lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if "requests per second" in line]
                self.note(f"pipeline {extra[1] if extra else 1}: {lines[0] if lines else text[-200:]}")
            with Redis((host, port)) as redis:
                digest = redis("DEBUG", "DIGEST")  # its reply is in every replica's output log
                self.assertNotEqual(digest, "0" * 40)
            cluster.assert_identical()

    def test_threads_of_input_and_output(self):
        """They spin on memory without `pause`, and are really used; the primary ends in the midst of it."""
        self.needs_replicas()
        with self.crane(RedisIoThreads, options=["--no-restart"]) as cluster:
            host, port = cluster.address()
            text = self.tool("redis-benchmark", "-h", host, "-p", port, "-c", 50, "-n", 5_000 if Settings.quick else 20_000,
                             "-r", 10_000, "-q", "-t", "set,get,lpush", "-P", 16, timeout_s=150)
            self.assertNotIn("ERR", text)
            self.note(text.replace("\r", "\n").strip().splitlines()[-1])
            with Redis(cluster.address()) as redis:
                stats = dict(line.split(b":", 1) for line in redis("INFO", "stats").splitlines() if b":" in line)
            for name in (b"io_threaded_reads_processed", b"io_threaded_writes_processed"):
                self.assertGreater(int(stats[name]), 0)
            cluster.assert_identical()
            old = cluster.primary()
            writers = [threading.Thread(target=self.written, args=(cluster.address(old), n)) for n in range(20)]
            for writer in writers:
                writer.start()
            decided = cluster.status()[old]["decided"]
            wait_until(lambda: cluster.status()[old]["decided"] > decided + 50, 30, "they write")
            cluster.kill_craned(old)
            for writer in writers:
                writer.join()
            new = wait_until(lambda: (now := cluster.primary()) != old and now, 10, "another replica leads")
            together(*(lambda n=n: pipelined(cluster.address(new), n) for n in range(20)))
            cluster.assert_identical()

    @staticmethod
    def written(address, seed):
        """As much as its server takes before it ends."""
        try:
            for n in range(100):
                pipelined(address, seed + n)
        except (OSError, EOFError):
            pass

    def test_digest_is_equal_on_every_replica(self):
        """Asks one replica, ends it, asks the next that leads: what a backup holds is what the primary held."""
        self.needs_replicas()
        with self.crane(RedisServer, options=["--no-restart"]) as cluster:
            together(*(lambda n=n: pipelined(cluster.address(), n) for n in range(20)))
            old = cluster.primary()
            before = self.state(cluster.address(old))
            cluster.kill_craned(old)
            new = wait_until(lambda: (now := cluster.primary()) != old and now, 10, "another replica leads")
            self.assertEqual(self.state(cluster.address(new)), before)
            cluster.assert_identical()

    def state(self, address):
        with Redis(address) as redis:
            return redis("DEBUG", "DIGEST"), redis("GET", "shared"), redis("DBSIZE")

    def test_random_and_hash_order_are_equal(self):
        with self.crane(RedisServer) as cluster:
            with Redis(cluster.address()) as redis:
                for number in range(500):
                    redis("SADD", "set", os.urandom(8).hex())
                    redis("SET", f"key{number}", number)
                for _ in range(20):
                    redis("SRANDMEMBER", "set", 5)
                    redis("RANDOMKEY")
                redis("KEYS", "*")
                redis("SPOP", "set", 50)
                self.assertIn(b"run_id", redis("INFO", "server"))
                redis("TIME")
            cluster.assert_identical()

    def test_keys_expire_by_virtual_time(self):
        with self.crane(RedisServer) as cluster:
            with Redis(cluster.address()) as redis:
                redis("SET", "short", "x", "PX", 300)
                redis("SET", "long", "x", "PX", 100_000)
                self.assertEqual(redis("BLPOP", "nothing", 1), None)  # blocks for a second of virtual time
                self.assertEqual((redis("GET", "short"), redis("GET", "long")), (None, b"x"))
            cluster.assert_identical()

    def test_keepalive_of_the_server_reaches_the_clients_socket(self):
        """Redis has silent clients probed after its tcp-keepalive; the connection that can find out is craned's."""
        self.needs_replicas()
        with self.crane(RedisServer) as cluster:
            backup = next(n for n in (1, 2, 3) if n != cluster.primary())
            for replica in (cluster.primary(), backup):
                with Redis(cluster.address(replica)) as redis:
                    redis("PING")
                    port = redis.socket.getsockname()[1]
                    # Debian's Redis: 300 s. Crane's own setting is 60 s, and stands until the server has spoken.
                    wait_until(lambda port=port: 200 < keepalive_due_s(port) <= 300, 10, "the server's time is kept")

    def test_many_clients_at_once(self):
        clients = 10 if Settings.quick else 50
        with self.crane(RedisServer) as cluster:
            replies = together(*(lambda n=n: pipelined(cluster.address(), n, 300) for n in range(clients)))
            self.assertEqual(replies, [300] * clients)
            with Redis(cluster.address()) as redis:
                self.assertEqual(int(redis("GET", "shared")), clients * 200)
            cluster.assert_identical()
