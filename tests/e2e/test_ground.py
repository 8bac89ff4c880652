"""Replicas on different ground: other processors, other file systems of other sizes, other disks beside them. What the
server can see of its host is the same all the same."""

import os
import subprocess

import test_checkpoint  # the module: a class by name would be run here again
from support.case import CraneTest
from support.servers import Program
from test_programs import ask

MIB = 1 << 20


class Ground(CraneTest):
    timeout_s = 180
    await_back = test_checkpoint.Checkpoint.await_back

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        if os.geteuid() != 0:
            self.skipTest("mounting needs root")

    def mount(self, cluster, point, size_mib, *make):
        """A disk of its own, in a file."""
        image = cluster.dir / f"{point.name}.img"
        point.mkdir(parents=True, exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(size_mib * MIB)
        self.tool(*make, image)
        self.tool("mount", "-o", "loop", image, point)
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(point)], stderr=subprocess.DEVNULL, check=False)

    def test_shows_in_nothing_that_a_server_can_look_at(self):
        self.built_program("surroundings")
        cluster = self.crane(Program, "surroundings")
        self.mount(cluster, cluster.state / "r2", 200, "mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0")
        self.mount(cluster, cluster.state / "r3", 400, "mkfs.xfs", "-q", "-f")
        with cluster:
            # Whose server is started anew, by a daemon that may use one processor, when another disk is there.
            self.mount(cluster, cluster.dir / "beside", 64, "mkfs.ext4", "-q", "-F")
            os.sched_setaffinity(cluster.supervisor_pids()[0], {max(os.sched_getaffinity(0))})
            cluster.kill_craned(3)
            self.await_back(cluster, 3)
            texts = [ask(cluster.address(replica)) for replica in (1, 2, 3)]
            self.assertIn("release fits 1", texts[0])
            for promised in ("~uname Linux|crane|5.15.0-crane|#1 SMP PREEMPT_DYNAMIC Crane|x86_64|",
                             "~statfs / 0 type 794c7630 blocks ", "~read /proc/version 80 0 ",
                             "~read /sys/devices/system/node/online 2 0 ", "~open /proc/self/pagemap -1 EACCES"):
                self.assertIn(promised, texts[0])
            for inside in ("below a descriptor version ", "with dots version ", "lstat /sys/fs/cgroup "):
                self.assertIn(inside, texts[2])
            self.assertNotIn(os.uname().release, "".join(texts))
            cluster.assert_identical()
            cluster.stop()
            self.tool("umount", cluster.state / "r2", cluster.state / "r3", cluster.dir / "beside")
