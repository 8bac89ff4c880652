"""What the shell that starts a cluster hands down to it, and what other processes of the host hold of it."""

import os
import resource
import signal
import socket
import subprocess

from support.case import CraneTest
from support.paths import CRANE_TOOL
from support.procs import end_group, wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis
import test_struck  # the module: a class by name would be run here again

CRANED = CRANE_TOOL.parent / "craned"
LOW = {resource.RLIMIT_FSIZE: (1 << 20, "LimitFSIZE"), resource.RLIMIT_CPU: (600, "LimitCPU"),
       resource.RLIMIT_AS: (2 << 30, "LimitAS"), resource.RLIMIT_DATA: (1 << 30, "LimitDATA"),
       resource.RLIMIT_STACK: (128 << 10, "LimitSTACK")}
HELD = 625


class HandedDown(CraneTest):
    lane = 1
    is_back = test_struck.Struck.is_back

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def test_soft_limits_that_are_low_are_lived_with(self):
        cluster = self.crane(Redis)
        cluster.prefix = ["bash", "-c", 'ulimit -S -f 100 -v 3000000 -d 1000000 -s 128 -l 16 -c 0 -n 64 -i 10; exec "$@"', "bash"]
        with cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for number in range(200):
                    redis("SET", number, "x" * 10_000)
            backup = next(n for n in (1, 2, 3) if n != cluster.primary())
            before = cluster.status()[backup]["counters"]["domain_restarts"]
            cluster.kill_server(backup)
            wait_until(lambda: self.is_back(cluster, backup, before + 1), 60, "its server is made anew")
            cluster.assert_identical()

    def test_craned_refuses_by_name_a_hard_limit_that_is_too_low(self):
        with self.crane(Redis) as cluster:
            for what, (value, of_unit) in LOW.items():
                done = subprocess.run([CRANED, "--config", cluster.state / "r1/craned.toml"], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False,
                                      preexec_fn=lambda what=what, value=value: resource.setrlimit(what, (value, value)))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr.decode(), f"craned: the hard limit of .* {of_unit}= of a systemd unit")

    def test_craned_without_standard_descriptors(self):
        with self.crane(Redis) as cluster:
            (supervisor,) = cluster.supervisor_pids()
            os.kill(supervisor, signal.SIGSTOP)
            try:
                cluster.kill_craned(2)
                wait_until(lambda: cluster.craned_pid(2) is None, 20, "it is dead")
                own = subprocess.Popen(["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", str(CRANED), "--config",
                                        str(cluster.state / "r2/craned.toml")], start_new_session=True)
                try:
                    wait_until(lambda: self.is_back(cluster, 2, 0), 60, "its server is there")
                    self.assertEqual([os.readlink(f"/proc/{own.pid}/fd/{n}") for n in range(3)], ["/dev/null"] * 3)
                finally:
                    end_group(own)
            finally:
                os.kill(supervisor, signal.SIGCONT)
            wait_until(lambda: self.is_back(cluster, 2, 0), 60, "crane-run has started it again")

    def test_operator_is_answered_beside_connections_that_are_held(self):
        with self.crane(Redis) as cluster:
            held = []
            self.addCleanup(lambda: [one.close() for one in held])
            folder = os.open(cluster.state / "r1", os.O_PATH)
            self.addCleanup(os.close, folder)
            for _ in range(HELD):
                held.append(socket.socket(socket.AF_UNIX))
                held[-1].connect(f"/proc/self/fd/{folder}/control.sock")
            for _ in range(3):
                self.assertEqual(sorted(cluster.status()), [1, 2, 3])
