"""`crane audit`: all replicas' outputs are found equal, a difference is found and told, and what is stated is signed."""

import json
import shutil
import signal
import subprocess

from support.case import CraneTest
from support.paths import CRANE
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis
from support.three_hosts import CLUSTER, ThreeHosts
from test_metrics import Looked
from test_repair import FLIPPED, VALUE, flip


class Audit(CraneTest):
    lane = 2
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def audit(self, cluster, *words, status=0):
        done = cluster.crane("audit", "--json", *words)
        self.assertEqual(done.returncode, status, done.stdout)
        return json.loads(done.stdout)

    def test_equal_replicas_and_a_statement_that_nobody_can_change(self):
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(1)) as redis:
                for _ in range(100):
                    redis("INCR", "counter")
                first = self.audit(cluster)
                self.assertEqual((first["verdict"], len(first["replicas"])), ("equal", 3))
                self.assertGreater(first["equal"]["records"], 100)
                for _ in range(100):
                    redis("INCR", "counter")
            second = self.audit(cluster)
            self.assertGreaterEqual(second["equal"]["records"], first["equal"]["records"] + 100)
            told = [row["audit"]["records"] for row in cluster.status().values()]
            self.assertEqual(told, [second["equal"]["records"]] * 3)
            file = cluster.state / "audit.statement"
            self.assertEqual(self.audit(cluster, "--verify", file)["statement"]["equal"], second["equal"])
            file.write_text(file.read_text().replace('"records":', '"records":1', 1))
            self.assertIn("signature is not good", self.audit(cluster, "--verify", file, status=1)["error"])
            self.assertIn("not gone on from", self.audit(cluster, status=2)["error"])

    def test_a_replica_that_is_down_is_not_called_equal(self):
        with self.crane(Redis, options=("--no-restart",)) as cluster:
            self.audit(cluster)
            stated = (cluster.state / "audit.statement").read_bytes()
            odd = next(n for n in (1, 2, 3) if n != cluster.primary())
            cluster.kill_craned(odd)
            shutil.move(cluster.state / f"r{odd}" / "output.log", cluster.dir / "lost")
            found = self.audit(cluster, status=2)
            self.assertEqual([row["replica"] for row in found["not_compared"]], [odd])
            self.assertEqual((cluster.state / "audit.statement").read_bytes(), stated)


class Alarm(Looked):
    lane = 2

    def test_a_difference_is_found_where_it_begins_and_its_alarm_clears_with_it(self):
        with self.looked_at(Redis, "--no-repair") as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            follow = subprocess.Popen([CRANE, "audit", "--follow", "--every", "1", "--json", "--state-dir", cluster.state],
                                      stdout=subprocess.PIPE, text=True)
            self.addCleanup(follow.stdout.close)
            self.addCleanup(follow.kill)
            self.assertEqual(json.loads(follow.stdout.readline())["verdict"], "equal")
            with RedisClient(cluster.address(leads)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                for replica in (leads, odd):
                    self.await_alarm(replica, "audit-differs", use=lambda: redis("INCR", "more"))
                found = next(row for row in map(json.loads, follow.stdout) if row["verdict"] == "different")
                self.assertIn(f"replica {odd} ", found["difference"])
                sides = {row["replica"]: row["record"] for row in found["at_difference"]}
                self.assertIn(FLIPPED.decode(), sides[odd])
                self.assertIn(VALUE.decode(), sides[leads])
                self.assertLess(found["equal"]["records"], found["first_different_record"] + 1)
                self.assertLessEqual(self.metrics(leads)["crane_audit_equal_records"], found["first_different_record"])
                self.assertEqual(cluster.crane("checkpoint", "restore", "--replica", odd).returncode, 0)
                for replica in (leads, odd):
                    self.await_alarm(replica, "audit-differs", raised=False, use=lambda: redis("INCR", "more"))
            follow.send_signal(signal.SIGTERM)
            self.assertEqual(follow.wait(timeout=30), 0)
            self.assertIn("different", follow.stdout.read() + json.dumps(found))


class FromOneHost(ThreeHosts):
    lane = 2

    def test_one_host_tells_of_all_and_signs_with_its_certificate(self):
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number)
        self.await_primary()
        words = [CRANE, "audit", "--state-dir", self.state(2), "--config", self.dir / "craned-2.toml"]
        stated = json.loads(self.tool(*words, "--json"))
        self.assertEqual((stated["verdict"], [row["replica"] for row in stated["replicas"]]), ("equal", [1, 2, 3]))
        said = self.tool(CRANE, "audit", "--verify", self.state(2) / "audit.statement", "--authority", self.dir / "ca/ca.crt")
        self.assertIn(f"good, signed by crane://{CLUSTER}/2 ", said)

    def test_a_follower_outlives_the_craned_that_it_asks(self):
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number)
        self.await_primary()
        follow = subprocess.Popen([CRANE, "audit", "--follow", "--every", "1", "--json", "--state-dir", self.state(2),
                                   "--config", self.dir / "craned-2.toml"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for end in (follow.stdout.close, follow.stderr.close, follow.kill):
            self.addCleanup(end)
        before = next(row for row in map(json.loads, follow.stdout) if row["verdict"] == "equal")["equal"]["records"]
        self.craneds[2].terminate()
        self.craneds[2].wait(timeout=30)
        self.assertIn("there is one log only", follow.stderr.readline())
        self.start(2)
        self.await_primary()
        self.assertEqual(self.redis(1, "SET", "key", "value"), "OK")
        next(row for row in map(json.loads, follow.stdout) if row["verdict"] == "equal" and row["equal"]["records"] > before)
        follow.send_signal(signal.SIGTERM)
        self.assertEqual(follow.wait(timeout=30), 0)
