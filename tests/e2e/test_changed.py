"""What a server is made of changes on the host: its program, its libraries, the files that its command line names."""

import pathlib
import shutil

from support.case import CraneTest
from support.cluster import ClusterError
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis


class OwnRedis(Redis):
    """A program, a library and a configuration file that may be changed."""

    def command(self):
        words = super().command()
        program, library = pathlib.Path(self.site, "redis-server"), pathlib.Path(self.site, "libatomic.so.1")
        if not program.exists():
            shutil.copy(words[0], program)
            shutil.copy("/lib/x86_64-linux-gnu/libatomic.so.1", library)
            pathlib.Path(self.site, "redis.conf").write_text("loglevel notice\n")
        self.environment["LD_LIBRARY_PATH"] = str(self.site)
        return [program, f"{self.site}/redis.conf", *words[1:]]


def change(path):
    """What is appended to an ELF file means nothing to the loader. A new file: the old one may be in use."""
    changed = path.with_name("changed")
    shutil.copy(path, changed)
    with open(changed, "ab") as file:
        file.write(b"\n")
    path.rename(path.with_name("kept"))
    changed.rename(path)


def put_back(path):
    path.with_name("kept").rename(path)


class Changed(CraneTest):
    lane = 2
    timeout_s = 180

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def site(self, cluster):
        return pathlib.Path(cluster.command[0]).parent

    def message(self, cluster, replica):
        return cluster.status().get(replica, {}).get("message", "")

    def write(self, cluster, replica, value):
        with RedisClient(cluster.address(replica)) as redis:
            redis("SET", "key", value)

    def assert_kept(self, cluster, value):
        for replica in (1, 2, 3):
            with RedisClient(cluster.address(replica)) as redis:
                self.assertEqual(redis("GET", "key"), value.encode())

    def test_log_is_replayed_with_what_it_was_made_with(self):
        with self.crane(OwnRedis, options=["--checkpoint-log-mib", 0]) as cluster:
            self.write(cluster, 1, "first")
            for name in ("redis-server", "libatomic.so.1", "redis.conf"):
                file = self.site(cluster) / name
                cluster.stop()
                change(file)
                with self.assertRaises(ClusterError) as refused:
                    cluster.start_again()
                self.assertIn(f"{file} has changed on this host", str(refused.exception))
                self.assertIn("--accept-changes", str(refused.exception))
                put_back(file)
                cluster.start_again()
                self.assert_kept(cluster, "first")
            cluster.stop()
            change(file)
            cluster.start_again("--accept-changes")
            self.assert_kept(cluster, "first")
            self.write(cluster, 2, "second")
            cluster.stop()
            cluster.start_again()  # the log says that it was accepted
            self.assert_kept(cluster, "second")
            cluster.assert_identical()

    def test_replica_whose_host_has_other_files_waits_for_them(self):
        with self.crane(OwnRedis, options=["--checkpoint-log-mib", 0]) as cluster:
            primary = cluster.primary()
            self.write(cluster, primary, "first")
            other = next(n for n in (1, 2, 3) if n != primary)
            file = self.site(cluster) / "libatomic.so.1"
            change(file)
            cluster.kill_craned(other)
            wait_until(lambda: f"{file} has changed on this host" in self.message(cluster, other), 30,
                       "the replica says what has changed")
            self.assertNotEqual(cluster.crane("status").returncode, 0)
            self.write(cluster, primary, "second")
            put_back(file)
            wait_until(lambda: cluster.status().get(other, {}).get("server") == "listening", 30,
                       "the replica is back by itself")
            self.assert_kept(cluster, "second")
            cluster.assert_identical()

    def test_restart_by_decision_takes_what_is_there(self):
        with self.crane(OwnRedis) as cluster:
            primary = cluster.primary()
            other = next(n for n in (1, 2, 3) if n != primary)
            file = self.site(cluster) / "redis.conf"
            change(file)
            cluster.kill_craned(other)
            wait_until(lambda: "has changed on this host" in self.message(cluster, other), 30,
                       "the replica says what has changed")
            self.assertEqual(cluster.crane("restart").returncode, 0)
            wait_until(lambda: all(cluster.status().get(n, {}).get("server") == "listening" for n in (1, 2, 3)), 60,
                       "all have the new one")
            self.write(cluster, other, "new")
            cluster.kill_craned(primary)
            cluster.wait_listening()
            wait_until(lambda: cluster.status().get(primary, {}).get("server") == "listening", 30, "it is back")
            self.assert_kept(cluster, "new")
            cluster.assert_identical()

    def test_image_is_restored_with_what_it_was_taken_with(self):
        self.needs_criu()
        with self.crane(OwnRedis, options=["--checkpoint-log-mib", 1]) as cluster:
            primary = cluster.primary()
            self.write(cluster, primary, "first")
            self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0)
            backup = wait_until(lambda: next((n for n, row in cluster.status().items() if row["checkpoint"]["index"]), 0),
                                30, "somebody has one")
            file = self.site(cluster) / "libatomic.so.1"
            change(file)
            cluster.kill_craned(backup)
            wait_until(lambda: f"{file} has changed on this host" in self.message(cluster, backup), 30,
                       "the replica says what has changed")
            put_back(file)
            wait_until(lambda: cluster.status().get(backup, {}).get("server") == "listening", 30, "it is back")
            self.assert_kept(cluster, "first")

    def test_log_says_what_a_server_is_made_of(self):
        with self.crane(OwnRedis) as cluster:
            self.write(cluster, 1, "first")
            log = cluster.crane("log")
            said = [line for line in log.stdout.splitlines() if "of server 1: " in line]
            self.assertEqual(len(said), 1, log.stdout[:2000])
            # The program, its configuration, the shim, some 20 libraries.
            self.assertRegex(said[0], r"of server 1: [12][0-9] files")
