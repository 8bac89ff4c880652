"""A server that an attacker has taken over stays in its container, and the memory it shares with craned is nobody else's."""

import os
import pathlib
import socket
import subprocess
import sys

from support.case import CraneTest
from support.paths import BUILD
from support.servers import Program, Redis

CRANED = BUILD / "bin" / "craned"


def ask(address):
    with socket.create_connection(address, 30) as connection:
        connection.sendall(b"try\n")
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer.decode(errors="replace").splitlines()


# As nobody: what of a running cluster's shared memory another local user can open.
LOOK = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for top in sys.argv[1:]:
    for name in [top, top + "/shared", top + "/shared/transport", top + "/shared/doorbell"]:
        for mode in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(name, mode)); print("opened", name)
            except OSError:
                pass
"""


class Confinement(CraneTest):
    lane = 3
    timeout_s = 120

    def attempt(self, *options):
        self.built_program("escape")
        cluster = self.crane(Program, "escape", options=options)
        cluster.environment["ESCAPE_STATE"] = str(cluster.state)
        with cluster:
            answer = ask(cluster.address())
            self.assertEqual([line for line in answer if line.startswith("FOUND")], [])
            for number, row in cluster.status().items():
                self.assertEqual(row["confinement_lost"], [], f"replica {number}")
            cluster.assert_identical()
            return answer

    def test_an_exception_that_craned_may_not_have_itself_is_told_of(self):
        """As under a unit that bounds capabilities and lets nobody gain privileges."""
        self.needs_replicas()
        if os.geteuid() != 0:
            self.skipTest("only root has what is taken away here")
        bounded = ["setpriv", "--bounding-set=-net_raw", "--no-new-privs"]
        cluster = self.crane(Redis, options=["--capability", "CAP_NET_RAW", "--new-privileges"])
        cluster.prefix = bounded
        with cluster:
            for number, row in cluster.status().items():
                lost = row["confinement_lost"]
                self.assertEqual([("CAP_NET_RAW" in one, "NoNewPrivileges=no" in one) for one in lost],
                                 [(True, False), (False, True)], f"replica {number}")
            shown = cluster.crane("status")
            self.assertEqual(shown.returncode, 0, shown.stdout)
            for number in (1, 2, 3):
                self.assertRegex(shown.stdout, f"warning: replica {number}: the server is not confined as it should be: .*CAP_NET_RAW")
            config = cluster.state / "r1" / "craned.toml"
            self.assertIn("CAP_NET_RAW", self.tool(*bounded, CRANED, "--check-config", "--config", config))
            self.assertNotIn("CAP_NET_RAW", self.tool(CRANED, "--check-config", "--config", config))

    def test_pids_that_cannot_be_kept_apart_are_told_of(self):
        self.needs_replicas()
        if os.geteuid() != 0:
            self.skipTest("only root has what is taken away here")
        cluster = self.crane(Redis)
        cluster.prefix = ["setpriv", "--bounding-set=-checkpoint_restore"]
        with cluster:
            for number, row in cluster.status().items():
                self.assertEqual(["pids may differ" in one and "CAP_CHECKPOINT_RESTORE" in one for one in row["confinement_lost"]],
                                 [True], f"replica {number}")

    def test_root_in_the_container_finds_nothing(self):
        self.needs_replicas()
        self.assertEqual(self.attempt()[-1], "uid 0, done")

    def test_another_user_finds_nothing_either(self):
        self.needs_replicas()
        self.assertEqual(self.attempt("--user", "nobody")[-1], "uid 65534, done")

    def test_no_local_user_opens_what_a_server_without_a_container_shares_with_craned(self):
        self.needs_replicas()
        if os.geteuid() != 0:
            self.skipTest("becoming another user needs root")
        self.built_program("identity")
        with self.crane(Program, "identity", options=["--isolation", "none"]) as cluster:
            places = [str(path) for path in pathlib.Path("/dev/shm").glob(f"crane-{cluster.cluster_id}*")]
            self.assertEqual(len(places), cluster.replicas)
            seen = subprocess.run([sys.executable, "-c", LOOK, *places], stdout=subprocess.PIPE, check=True)
            opened = [line for line in seen.stdout.decode().splitlines() if not line.endswith("/shared")]
            self.assertEqual(opened, [])
