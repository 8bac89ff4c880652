"""Servers on base images: the same files on every replica, whatever their hosts have, and moving to other ones."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from support.case import CraneTest
from support.cluster import Cluster, ClusterError
from support.paths import CRANE, CRANE_TOOL, free_port, work_dir
from support.procs import read, wait_until
from support.redisclient import Redis as RedisClient
from support.tree import make_tree

PROGRAMS = ("/usr/bin/redis-server", "/bin/sh", "/bin/cat")
CONFIGURATION = "bind 0.0.0.0\nport {port}\nprotected-mode no\nsave \"\"\nappendonly no\ndir /var/lib/served\nmaxclients {most}\n"


class BaseImages(CraneTest):
    lane = 2
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.dir = work_dir("images")
        self.addCleanup(shutil.rmtree, self.dir)
        self.store = self.dir / "store"
        self.port = free_port()

    def crane_tool(self, *words):
        return self.tool(CRANE, *words)

    def image(self, name, most):
        """A file, and the name of what is in it."""
        tree = make_tree(self.dir / f"{name}.tree", PROGRAMS,
                         [("/etc/redis.conf", CONFIGURATION.format(port=self.port, most=most))])
        file = self.dir / f"{name}.img"
        made = self.crane_tool("image", "make", file, "--from", tree)
        return file, made.split()[0]

    def cluster(self, image, *options, command=("redis-server", "/etc/redis.conf")):
        return Cluster(command, self.port, name="imaged",
                       options=["--image-store", self.store, "--image", image, *options])

    def ask(self, cluster, replica, *words):
        with RedisClient(cluster.address(replica)) as redis:
            return redis(*words)

    def assert_all(self, cluster, most, value):
        for replica in (1, 2, 3):
            self.assertEqual(self.ask(cluster, replica, "CONFIG", "GET", "maxclients")[1], str(most).encode())
            self.assertEqual(self.ask(cluster, replica, "GET", "key"), value.encode())

    def wait_for(self, cluster, replica, text):
        wait_until(lambda: text in cluster.status().get(replica, {}).get("message", ""), 60, text)

    def wait_serving(self, cluster, *replicas):
        wait_until(lambda: all(cluster.status().get(n, {}).get("server") == "listening" for n in replicas), 60, "they serve")

    def test_image_is_all_that_a_server_sees(self):
        file, name = self.image("one", 111)
        with self.cluster(file, "--user", "imaged") as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            self.assert_all(cluster, 111, "value")
            for replica in (1, 2, 3):
                pid = cluster.server_pid(replica)
                status = dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").splitlines())
                self.assertEqual(status["Uid"].split(), ["4711"] * 4)
                self.assertEqual(status["Groups"].split(), ["4712", "4713"])
                root = pathlib.Path(f"/proc/{pid}/root")
                self.assertEqual(sorted(os.listdir(root / "usr/bin")), ["cat", "redis-server", "sh"])
                self.assertFalse((root / "home").exists())
                self.assertEqual(cluster.status()[replica]["base_image"], name)
            self.assertNotIn("squashfs", read("/proc/self/mounts"))
            cluster.assert_identical()
            cluster.stop()
            cluster.start_again()
            self.assert_all(cluster, 111, "value")
            cluster.assert_identical()

    def test_same_files_make_the_same_image(self):
        (first, one), (second, other) = self.image("one", 111), self.image("two", 111)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(one, other)
        self.assertNotEqual(self.image("three", 222)[1], one)

    def test_file_that_cannot_be_read_is_not_left_out_silently(self):
        tree = make_tree(self.dir / "tree", ["/bin/cat"], [("/etc/closed", "x")])
        (tree / "etc/closed").chmod(0)
        self.dir.chmod(0o777)
        file = self.dir / "part.img"
        made = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", CRANE_TOOL, "image", "make",
                               file, "--from", tree], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 2, made.stdout)
        self.assertIn("etc/closed", made.stderr)
        self.assertEqual([path.name for path in self.dir.iterdir()], ["tree"])

    def test_what_belongs_to_a_host_is_left_out_of_an_image(self):
        tree = make_tree(self.dir / "tree", ["/bin/cat"], [("/etc/shadow", "x"), ("/etc/odd*name", "x"), ("/run/left", "x"),
                                                           ("/etc/oddname", "x")])
        for folder in ("mine", "systemd-private-0a1b-x.service-Ab3/tmp"):
            (tree / "var/tmp" / folder).mkdir(parents=True)
        (tree / "srv/data/kept").mkdir(parents=True)
        (tree / "srv/data/big").write_text("x", encoding="ascii")
        file = tree / "inside.img"  # nor itself
        self.crane_tool("image", "make", file, "--from", tree, "--exclude", "/etc/odd*name", "--exclude", "/srv",
                         "--keep", "/srv/data/kept")
        listed = self.tool("unsquashfs", "-l", file)
        for path in ("/etc/oddname", "/var/tmp/mine", "/srv/data/kept", "/run", "/proc", "/usr/bin/cat"):
            self.assertIn(f"squashfs-root{path}\n", listed)
        for path in ("/etc/shadow", "/etc/odd*name", "/run/left", "/srv/data/big", "/inside.img", "/var/tmp/systemd-private-"):
            self.assertNotIn(f"squashfs-root{path}", listed)

    def test_image_is_for_nobody_but_who_makes_it(self):
        """What is in it may be what only root can read: keys, tables of passwords."""
        tree = make_tree(self.dir / "tree", ["/bin/cat"], [("/etc/key", "x")])
        before = os.umask(0o022)
        try:
            self.crane_tool("image", "make", self.dir / "own.img", "--from", tree)
        finally:
            os.umask(before)
        self.assertEqual((self.dir / "own.img").stat().st_mode & 0o777, 0o600)

    def test_processes_that_begin_meanwhile_are_left_out_of_an_image(self):
        """As the one that makes it, of a tree with a /proc such as a host's."""
        tree = make_tree(self.dir / "tree", ["/bin/cat"], [])
        (tree / "proc").mkdir(exist_ok=True)
        self.tool("mount", "--bind", "/proc", tree / "proc")
        self.addCleanup(self.tool, "umount", tree / "proc")
        file = self.dir / "host.img"
        self.crane_tool("image", "make", file, "--from", tree)
        self.assertEqual([line for line in self.tool("unsquashfs", "-l", file).split() if "/proc" in line], ["squashfs-root/proc"])

    def test_restart_moves_to_another_image(self):
        file, first = self.image("one", 111)
        other, second = self.image("two", 222)
        with self.cluster(file, "--checkpoint-log-mib", "0") as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            refused = cluster.crane("restart", "--image", "sha256:" + "0" * 64)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("no replica that can be reached has the base image sha256:000", refused.stdout)
            moved = cluster.crane("restart", "--image", other)
            self.assertEqual(moved.returncode, 0, moved.stdout)
            self.wait_serving(cluster, 1, 2, 3)
            for replica in (1, 2, 3):
                self.assertEqual(cluster.status()[replica]["base_image"], second)
            self.ask(cluster, 2, "SET", "key", "moved")
            self.assert_all(cluster, 222, "moved")
            # Each from the log or a checkpoint, and all of them; what they are started with is the first one still.
            cluster.kill_craned(cluster.primary())
            self.wait_serving(cluster, 1, 2, 3)
            self.assert_all(cluster, 222, "moved")
            cluster.stop()
            cluster.start_again()
            self.assert_all(cluster, 222, "moved")
            cluster.assert_identical()
            back = cluster.crane("restart", "--image", first)
            self.assertEqual(back.returncode, 0, back.stdout)
            self.wait_serving(cluster, 1, 2, 3)
            self.assertEqual(self.ask(cluster, 3, "CONFIG", "GET", "maxclients")[1], b"111")
            cluster.assert_identical()

    def ask_craned(self, cluster, replica, **request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(20)
            control.connect(str(cluster.state / f"r{replica}" / "control.sock"))
            control.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(control.makefile().readline())

    def test_order_of_a_primary_that_is_none_any_more_moves_no_later_server(self):
        """The image stayed the wanted one, and the next server that this replica began as primary was moved to it."""
        file, first = self.image("one", 111)
        other, second = self.image("two", 222)
        self.crane_tool("image", "add", other, "--store", self.store)
        with self.cluster(file, "--checkpoint-log-mib", "0") as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            old = cluster.primary()
            go_on = [self.stopped(cluster, replica) for replica in (1, 2, 3) if replica != old]
            self.assertEqual(self.ask_craned(cluster, old, cmd="restart", image=second), {"ok": True})
            wait_until(lambda: self.ask_craned(cluster, old, cmd="status")["role"] != "primary", 30, "nobody hears it")
            for each in go_on:
                each()
            wait_until(lambda: self.ask_craned(cluster, old, cmd="status")["leader"], 30, "somebody leads")
            moved = cluster.crane("transfer", old)
            self.assertEqual(moved.returncode, 0, moved.stdout)
            # The signal of the order may have come into the log, and the server ends by it.
            self.wait_serving(cluster, 1, 2, 3)
            ends = self.ask_craned(cluster, old, cmd="status")["generation"]
            wait_until(lambda: cluster.crane("signal", int(signal.SIGKILL)).returncode == 0, 60, "there is a server to end")
            wait_until(lambda: self.ask_craned(cluster, old, cmd="status")["generation"] > ends, 60, "the next server begins")
            self.wait_serving(cluster, 1, 2, 3)
            self.assertEqual({row["base_image"] for row in cluster.status().values()}, {first})
            cluster.assert_identical()

    def test_image_that_no_server_can_be_started_on_costs_no_more_than_a_restart(self):
        """One without the program, and one that cannot be mounted: the next order is taken all the same."""
        file, first = self.image("one", 111)
        tree = make_tree(self.dir / "bare.tree", ("/bin/sh",))
        self.crane_tool("image", "make", self.dir / "bare.img", "--from", tree)
        broken = self.dir / "broken.img"
        broken.write_bytes(file.read_bytes()[:20_000])
        with self.cluster(file, "--checkpoint-log-mib", "0") as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            for bad in (self.dir / "bare.img", broken):
                self.assertNotEqual(cluster.crane("restart", "--image", bad, timeout_s=120).returncode, 0)
                wait_until(lambda: all("could not be started" in row.get("last_end", "") for row in cluster.status().values()),
                           90, "nobody can start a server on it")
                mended = cluster.crane("restart", "--image", first, timeout_s=120)
                self.assertEqual(mended.returncode, 0, mended.stdout)
                self.wait_serving(cluster, 1, 2, 3)
                self.assertEqual(self.ask(cluster, 2, "CONFIG", "GET", "maxclients")[1], b"111")
            cluster.stop()
            cluster.start_again()
            self.wait_serving(cluster, 1, 2, 3)
            cluster.assert_identical()

    def test_log_of_an_image_is_replayed_on_it_whatever_is_configured(self):
        file, first = self.image("one", 111)
        other, _ = self.image("two", 222)
        with self.cluster(file, "--checkpoint-log-mib", "0") as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            cluster.stop()
            said = cluster.start_again("--image", other)
            self.assertIn(f"warning: the server runs on {first}, as its log says", said)
            self.assert_all(cluster, 111, "value")
            self.assertEqual(cluster.status()[1]["base_image"], first)
            cluster.stop()
            cluster.start_again("--image", other, "--accept-changes")
            self.assert_all(cluster, 222, "value")
            cluster.assert_identical()

    def test_image_of_a_running_server_lies_on_the_same_files(self):
        self.needs_criu()
        file, name = self.image("one", 111)
        with self.cluster(file) as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            taken = cluster.crane("checkpoint", "take")
            self.assertEqual(taken.returncode, 0, taken.stdout)
            backup = wait_until(lambda: next((n for n, row in cluster.status().items() if row["checkpoint"]["index"]), 0),
                                30, "somebody has one")
            self.ask(cluster, 1, "SET", "key", "later")
            cluster.kill_craned(backup)
            self.wait_serving(cluster, 1, 2, 3)
            self.assert_all(cluster, 111, "later")
            self.assertEqual(cluster.status()[backup]["base_image"], name)
            cluster.assert_identical()
            archive = self.dir / "backup.tar"
            made = cluster.crane("backup", archive)
            self.assertEqual(made.returncode, 0, made.stdout)
        restored = Cluster(cluster.command, self.port, name="restored",
                           options=["--image-store", self.store, "--restore", archive])
        with restored as cluster:
            self.assert_all(cluster, 111, "later")
            self.assertEqual(cluster.status()[1]["base_image"], name)

    def test_replica_waits_for_its_image(self):
        file, name = self.image("one", 111)
        with self.cluster(file) as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            backup = next(n for n in (1, 2, 3) if n != cluster.primary())
            kept = self.store / (name.removeprefix("sha256:") + ".squashfs")
            damaged = bytearray(kept.read_bytes())
            damaged[len(damaged) // 2] ^= 1
            for change, said in ((kept.unlink, "is not on this host"), (lambda: kept.write_bytes(damaged), "is damaged")):
                change()
                cluster.kill_craned(backup)
                self.wait_for(cluster, backup, said)
                self.assertIn("crane image add", cluster.status()[backup]["message"])
                kept.unlink(missing_ok=True)
                added = self.crane_tool("image", "add", file, "--store", self.store)
                self.assertEqual(added.strip(), name)
                self.wait_serving(cluster, 1, 2, 3)
            self.assert_all(cluster, 111, "value")
            cluster.assert_identical()

    def give_own_store(self, cluster, replica):
        """As on a host of its own; empty."""
        store = self.dir / f"store-{replica}"
        path = cluster.state / f"r{replica}" / "craned.toml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f'store = "{self.store}"', f'store = "{store}"'), encoding="utf-8")
        cluster.kill_craned(replica)
        return store

    def test_replica_that_lacks_an_image_gets_it_from_another(self):
        file, name = self.image("one", 111)
        other, second = self.image("two", 222)
        with self.cluster(file) as cluster:
            self.ask(cluster, 1, "SET", "key", "value")
            primary = cluster.primary()
            backup = next(n for n in (1, 2, 3) if n != primary)
            store = self.give_own_store(cluster, backup)
            wait_until(lambda: cluster.status().get(backup, {}).get("image_store") == str(store), 30, "it has another store")
            self.wait_serving(cluster, 1, 2, 3)
            self.assertEqual([path.name for path in store.iterdir()], [name.removeprefix("sha256:") + ".squashfs"])
            self.assert_all(cluster, 111, "value")
            # What only a backup has, the primary fetches, and so does the third.
            self.crane_tool("image", "add", other, "--store", store)
            moved = cluster.crane("restart", "--image", second)
            self.assertEqual(moved.returncode, 0, moved.stdout)
            self.wait_serving(cluster, 1, 2, 3)
            for replica in (1, 2, 3):
                self.assertEqual(cluster.status()[replica]["base_image"], second)
                self.assertEqual(self.ask(cluster, replica, "CONFIG", "GET", "maxclients")[1], b"222")
            cluster.assert_identical()
            self.assertEqual(cluster.crane("status").returncode, 0, "nothing is wanted any more")

    def test_what_cannot_be_an_image_is_refused(self):
        file, _ = self.image("one", 111)
        (self.dir / "empty").mkdir()
        made = subprocess.run([CRANE_TOOL, "image", "make", self.dir / "empty.img", "--from", self.dir / "empty"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(made.returncode, 2, made.stdout)
        self.assertIn("is empty: no server could be started on it", made.stdout)
        text = self.dir / "text"
        text.write_text("no image", encoding="ascii")
        for options, said in (((text,), "is no base image"), ((self.dir / "absent",), "there is no such file"),
                              (("sha256:12",), "has 64 digits"), (("sha256:" + "0" * 64,), "is not on this host"),
                              ((file, "--isolation", "none"), "is for containers"),
                              ((file, "--user", "www-data"), "is not known in the base image")):
            with self.assertRaises(ClusterError) as refused:
                with self.cluster(*options):
                    pass
            self.assertIn(said, str(refused.exception))
        with self.assertRaises(ClusterError) as refused:
            with self.cluster(file, command=("apache2", "-DFOREGROUND")):
                pass
        self.assertIn("apache2: command not found", str(refused.exception))
