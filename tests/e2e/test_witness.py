"""Two replicas with a server and a witness, which votes and keeps the log; and one replica with two."""

import json
import os
import pathlib
import signal
import subprocess

from support.case import CraneTest
from support.cluster import ClusterError
from support.paths import CRANE_TOOL
from support.procs import read, wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis
from test_repair import FLIPPED, VALUE, flip

ONE_WITNESS = ("--witnesses=1",)
CRANED = CRANE_TOOL.parent / "craned"
WITNESS = 3


class WitnessTest(CraneTest):
    lane = 3
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def row(self, cluster, replica):
        return cluster.status().get(replica, {})

    def wait_level(self, cluster, replicas):
        def level():
            rows = cluster.status()
            return all(n in rows and rows[n]["server"] == "listening" and rows[n]["lag"] == 0 for n in replicas)
        wait_until(level, 60, f"{replicas} are level\n{cluster.report()}")

    def served(self, cluster, replica):
        """Writes once through it; False: not now."""
        try:
            with RedisClient(cluster.address(replica), timeout_s=5) as client:
                return int(client("INCR", "counter"))
        except OSError:
            return 0

    def test_it_runs_no_server_and_says_so(self):
        with self.crane(Redis, options=ONE_WITNESS) as cluster:
            row = self.row(cluster, WITNESS)
            self.assertEqual((row["server"], row["role"], row["witness"]), ("witness", "backup", True))
            self.assertEqual(cluster.crane("status").returncode, 0, cluster.report())
            self.assertFalse((cluster.state / f"r{WITNESS}" / "container").exists())
            for _ in range(20):
                self.assertTrue(self.served(cluster, 1))
            wait_until(lambda: self.row(cluster, WITNESS)["decided"] > 20, 10, "it has the log")
            refused = cluster.crane("transfer", WITNESS)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("is a witness: it does not lead", refused.stdout)
            cluster.assert_identical()

    def test_service_goes_on_with_it_when_either_server_is_lost(self):
        with self.crane(Redis, options=ONE_WITNESS) as cluster:
            for _ in range(2):
                lost = cluster.primary()
                other = 3 - lost
                before = self.served(cluster, lost)
                go_on = self.stopped(cluster, lost)
                wait_until(lambda to=other: self.served(cluster, to), 20, f"replica {other} serves with the witness alone")
                self.assertEqual(cluster.primary(), other)
                self.assertGreater(self.served(cluster, other), before)
                go_on()
                self.wait_level(cluster, [1, 2])
            cluster.assert_identical()

    def test_what_it_alone_has_is_given_to_a_server_before_anybody_is_served(self):
        with self.crane(Redis, options=ONE_WITNESS) as cluster:
            first = cluster.primary()
            behind = 3 - first
            go_on = self.stopped(cluster, behind)
            with RedisClient(cluster.address(first)) as client:
                for number in range(100):
                    client("SET", f"k{number}", number)
            for pid in [cluster.craned_pid(first), *cluster.supervisor_pids()]:
                os.kill(pid, signal.SIGSTOP)
                self.addCleanup(self._continue, pid)
            go_on()
            wait_until(lambda: self.served(cluster, behind), 40, f"replica {behind} serves\n{cluster.report()}")
            with RedisClient(cluster.address(behind)) as client:
                self.assertEqual(int(client("EXISTS", *(f"k{number}" for number in range(100)))), 100)
            for pid in [cluster.craned_pid(first), *cluster.supervisor_pids()]:
                os.kill(pid, signal.SIGCONT)
            self.wait_level(cluster, [1, 2])
            cluster.assert_identical()

    def _continue(self, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_the_log_is_cut_with_its_help_while_a_server_is_lost(self):
        self.needs_criu()
        options = (*ONE_WITNESS, "--checkpoint-log-mib=0")
        with self.crane(Redis, options=options) as cluster:
            lost = next(n for n in (1, 2) if n != cluster.primary())
            serving = 3 - lost
            go_on = self.stopped(cluster, lost)
            with RedisClient(cluster.address(serving)) as client:
                for number in range(300):
                    client("SET", f"k{number}", "x" * 100)
            taken = cluster.crane("checkpoint", "take")
            self.assertEqual(taken.returncode, 0, taken.stdout)

            def held():
                row = self.row(cluster, WITNESS)
                return list((cluster.state / f"r{WITNESS}" / "checkpoints").glob("0*")) and row["first_log_index"] > 1
            wait_until(held, 60, f"the witness holds it, and the log is cut\n{cluster.report()}")
            cluster.kill_craned(WITNESS)
            wait_until(lambda: self.row(cluster, WITNESS).get("lag", 1) == 0, 30, "it is back")
            go_on()
            self.wait_level(cluster, [1, 2])
            cluster.assert_identical()

    def test_nobody_is_sent_to_a_primary_that_is_left_with_a_witness_without_the_log(self):
        self.needs_criu()
        options = (*ONE_WITNESS, "--checkpoint-log-mib=0")
        with self.crane(Redis, options=options) as cluster:
            primary = cluster.primary()
            other = 3 - primary
            witness_goes_on = self.stopped(cluster, WITNESS)
            had = self.row(cluster, primary)["decided"]
            with RedisClient(cluster.address(primary)) as client:
                for number in range(300):
                    client("SET", f"k{number}", "x" * 100)
            self.assertEqual(cluster.crane("checkpoint", "take").returncode, 0)
            wait_until(lambda: self.row(cluster, primary)["first_log_index"] > had + 1, 60, f"the log is cut\n{cluster.report()}")
            # No checkpoint comes to it before there is room.
            held = cluster.state / f"r{WITNESS}" / "checkpoints"
            held.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "tmpfs", held], check=True)
            try:
                witness_goes_on()

                def problems():
                    return json.loads(cluster.crane("status", "--json").stdout)["problems"]
                lacks = f"replica {WITNESS} lacks what the others no longer have in their logs"
                wait_until(lambda: any(one.startswith(lacks) for one in problems()), 60, f"it is told\n{cluster.report()}")
                self.assertEqual(cluster.crane("health", "--primary").returncode, 0)  # with the other one it serves
                other_goes_on = self.stopped(cluster, other)
                wait_until(lambda: "no quorum: 1 of 3" in cluster.crane("health", "--primary", "--replica", str(primary)).stdout, 30,
                           f"nobody is sent there\n{cluster.report()}")
                self.assertTrue(any(one.startswith("no quorum") for one in problems()), problems())
            finally:
                subprocess.run(["umount", "--lazy", held], check=True)
            # It is fed by the primary that is left, and then the two go on.
            wait_until(lambda: cluster.crane("health", "--primary").returncode == 0, 120, f"it is served again\n{cluster.report()}")
            self.assertGreater(self.served(cluster, primary), 0)
            other_goes_on()
            self.wait_level(cluster, [1, 2])
            wait_until(lambda: not problems(), 60, f"all is well: {problems()}")

    def test_a_server_that_ends_is_started_again_though_the_other_is_lost(self):
        with self.crane(Redis, options=ONE_WITNESS) as cluster:
            lost = next(n for n in (1, 2) if n != cluster.primary())
            serving = 3 - lost
            self.stopped(cluster, lost)
            with RedisClient(cluster.address(serving)) as client:
                try:
                    client("SHUTDOWN", "NOSAVE")
                except OSError:
                    pass
            wait_until(lambda: self.row(cluster, serving).get("generation") == 2 and self.served(cluster, serving), 40,
                       f"it serves again\n{cluster.report()}")

    def test_two_that_differ_are_told_though_a_witness_is_silent(self):
        with self.crane(Redis, options=(*ONE_WITNESS, "--no-repair")) as cluster:
            other = 3 - cluster.primary()
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "planted", VALUE)
                self.assertGreater(flip(cluster.server_pid(other), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "planted"), VALUE)

                def told():
                    redis("INCR", "more")
                    status = cluster.crane("status")
                    return status.returncode != 0 and "no majority agrees" in status.stdout
                wait_until(told, 30, f"it is said that they differ\n{cluster.report()}")

    def test_one_replica_with_two(self):
        with self.crane(Redis, options=("--witnesses=2",)) as cluster:
            self.assertTrue(self.served(cluster, 1))
            cluster.kill_craned(2)
            self.assertTrue(self.served(cluster, 1))
            wait_until(lambda: self.row(cluster, 2).get("server") == "witness", 20, "it is back")
            cluster.kill_craned(1)
            wait_until(lambda: self.served(cluster, 1) > 2, 40, f"it serves again\n{cluster.report()}")
            self.assertFalse(pathlib.Path(cluster.state / "r2" / "output.log").exists())
            self.assertIn("witness", read(cluster.state / "r2" / "craned.log"))

    def test_left_alone_it_serves_when_it_is_given_a_server(self):
        with self.crane(Redis, options=ONE_WITNESS) as cluster:
            for count in range(1, 6):
                self.assertEqual(self.served(cluster, cluster.primary()), count)
            wait_until(lambda: len({row["decided"] for row in cluster.status().values()}) == 1, 20, "all have the log")
            cluster.stop()
            told = cluster.crane("recover", "--force-new-cluster", "--replica", WITNESS)
            self.assertEqual(told.returncode, 0, told.stdout)
            self.assertIn("It is a witness, which serves nobody", told.stdout)
            config = cluster.state / f"r{WITNESS}" / "craned.toml"
            self.assertIn(str(config), told.stdout)
            config.write_text(read(config).replace("witness = true", "witness = false"))
            with subprocess.Popen([CRANED, "--config", config], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as craned:
                wait_until(lambda: self.served(cluster, WITNESS) > 5, 60, f"it serves\n{cluster.report()}")
                craned.terminate()
                self.assertEqual(craned.wait(30), 0)

    def test_all_cannot_be_witnesses(self):
        with self.assertRaisesRegex(ClusterError, "at least one has to run the server"):
            with self.crane(Redis, options=("--witnesses=3",)):
                pass
