"""Another version of Crane takes the place of the one that runs, one replica after the other, while clients work."""

import pathlib
import re
import shutil
import threading

from support.case import CraneTest
from support.honest import Writer
from support.paths import BUILD, ROOT
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis

FRAME = (ROOT / "paxos" / "link" / "frame.hpp").read_text()
PROTOCOL, OLDEST = (int(re.search(rf"\b{name} = (\d+)", FRAME)[1]) for name in ("kProtocolVersion", "kOldestProtocolVersion"))


def put(path, text):
    """A new file in its place: the old one is in use."""
    new = path.with_name("new")
    new.write_bytes(text)
    new.chmod(0o755)
    new.rename(path)


class Installed:
    """A built Crane of its own, which can become the next version: another shim, and craneds that speak one version of the
    peers' protocol more."""

    def __init__(self, folder):
        self.folder = folder
        for part in ("bin", "lib"):
            shutil.copytree(BUILD / part, folder / part)

    def become_next(self, oldest=PROTOCOL):
        craned, shim = self.folder / "bin" / "craned", self.folder / "lib" / "libcrane.so"
        craned.rename(craned.with_name("craned-itself"))
        put(craned, f"#!/bin/sh\nCRANE_TEST_PROTOCOL={oldest}-{PROTOCOL + 1} exec {craned}-itself \"$@\"\n".encode())
        put(shim, shim.read_bytes() + b"\n")  # means nothing to the loader


class Rolled(CraneTest):
    lane = 3
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.needs_criu()

    def cluster_of_its_own(self):
        cluster = self.crane(Redis)
        installed = Installed(pathlib.Path(cluster.dir, "crane"))
        cluster.environment["CRANE_BUILD"] = str(installed.folder)
        return cluster, installed

    def protocols(self, cluster):
        """What each replica speaks to each other one."""
        return {(replica, peer["replica"]): peer["protocol"] for replica, row in cluster.status().items()
                for peer in row["peers"]}

    def replace(self, cluster, replica):
        def holds():
            if cluster.status()[replica]["checkpoint"]["index"] > begun:
                return True
            self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0, cluster.report())
            return False

        begun = cluster.status()[replica]["checkpoint"]["index"]
        wait_until(holds, 60, f"replica {replica} holds a checkpoint")
        pid = cluster.craned_pid(replica)
        cluster.kill_craned(replica)
        wait_until(lambda: cluster.status().get(replica, {}).get("pid", pid) != pid and
                   cluster.status()[replica].get("server") == "listening", 60, f"replica {replica} is the new one, and serves")

    def test_craneds_are_replaced_one_by_one(self):
        cluster, installed = self.cluster_of_its_own()
        stop = threading.Event()
        with cluster:
            self.assertEqual(set(self.protocols(cluster).values()), {PROTOCOL})
            clients = [Writer(number, [cluster.address(n) for n in (1, 2, 3)], 1, stop) for number in range(3)]
            for client in clients:
                client.start()
            try:
                installed.become_next()
                first = cluster.primary()
                backups = [n for n in (1, 2, 3) if n != first]
                self.replace(cluster, backups[0])
                wait_until(lambda: set(self.protocols(cluster).values()) == {PROTOCOL}, 20, "old and new speak as the old does")
                self.replace(cluster, backups[1])
                wait_until(lambda: self.protocols(cluster)[tuple(backups)] == PROTOCOL + 1, 20, "two new ones speak the newer")
                self.assertEqual(cluster.crane("transfer", backups[0]).returncode, 0, cluster.report())
                self.replace(cluster, first)
                wait_until(lambda: set(self.protocols(cluster).values()) == {PROTOCOL + 1}, 20, "all speak the newer")
                self.assertEqual(cluster.crane("restart").returncode, 0, cluster.report())  # takes the new shim
                wait_until(lambda: all(row.get("generation") == 2 and row.get("server") == "listening"
                                       for row in cluster.status().values()), 60, "all have the new shim")
                served = [len(client.took_s) for client in clients]
                wait_until(lambda: all(len(client.took_s) > before + 20 for client, before in zip(clients, served)), 30,
                           "the service goes on")
            finally:
                stop.set()
                for client in clients:
                    client.join(30)
            self.assertEqual([text for one in clients for text in one.wrong], [])
            for replica in (1, 2, 3):
                shim = cluster.state / f"r{replica}" / "shared" / "libcrane.so"
                self.assertEqual(shim.read_bytes(), (installed.folder / "lib" / "libcrane.so").read_bytes())
            cluster.assert_identical()

    def begin_with_another_ones(self, cluster, installed):
        """A primary takes no checkpoint of a server that runs."""
        first = cluster.primary()
        with RedisClient(cluster.address(first)) as client:
            for _ in range(100):
                client("INCR", "counter")
        held = cluster.status()[first]["checkpoint"]["index"]
        self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0, cluster.report())
        self.assertEqual(cluster.status()[first]["checkpoint"]["index"], held)
        installed.become_next()
        pid = cluster.craned_pid(first)
        cluster.kill_craned(first)
        wait_until(lambda: cluster.status().get(first, {}).get("pid", pid) != pid and
                   cluster.status()[first].get("server") == "listening", 60, "it serves under the shim of the one before")
        with RedisClient(cluster.address(first)) as client:
            self.assertEqual(client("INCR", "counter"), 101)
        cluster.assert_identical()

    def test_one_that_holds_no_checkpoint_begins_with_another_ones(self):
        cluster, installed = self.cluster_of_its_own()
        with cluster:
            self.begin_with_another_ones(cluster, installed)

    def test_one_that_holds_a_beginning_of_the_server_alone_begins_with_another_ones(self):
        """The place of a decided restart, which would be replayed from under another shim."""
        cluster, installed = self.cluster_of_its_own()
        with cluster:
            self.assertEqual(cluster.crane("restart").returncode, 0, cluster.report())
            wait_until(lambda: all(row.get("generation") == 2 and row.get("server") == "listening" and row["checkpoint"]["index"] > 0
                                   for row in cluster.status().values()), 60, "all have begun anew, and keep that")
            self.begin_with_another_ones(cluster, installed)

    def test_without_any_checkpoint_the_server_is_restarted_before_craneds_are_replaced(self):
        cluster, installed = self.cluster_of_its_own()
        with cluster:
            installed.become_next()
            self.assertEqual(cluster.crane("restart").returncode, 0, cluster.report())
            first = cluster.primary()
            for replica in [n for n in (1, 2, 3) if n != first] + [first]:
                pid = cluster.craned_pid(replica)
                cluster.kill_craned(replica)
                wait_until(lambda: cluster.status().get(replica, {}).get("pid", pid) != pid and
                           cluster.status()[replica].get("server") == "listening", 60, f"replica {replica} is the new one, and serves")
            cluster.assert_identical()

    def test_version_with_none_in_common_is_refused_in_words(self):
        cluster, installed = self.cluster_of_its_own()
        with cluster:
            installed.become_next(oldest=PROTOCOL + 1)
            primary = cluster.primary()
            replica = next(n for n in (1, 2, 3) if n != primary)
            cluster.kill_craned(replica)
            spoken = str(PROTOCOL) if OLDEST == PROTOCOL else f"{OLDEST} to {PROTOCOL}"
            said = f"protocol version {PROTOCOL + 1}, this replica {spoken}: replace"
            wait_until(lambda: said in (cluster.state / f"r{primary}" / "craned.log").read_text(), 30, "it is said why")
            with RedisClient(cluster.address(primary)) as client:
                self.assertEqual(client("SET", "key", "value"), "OK")
