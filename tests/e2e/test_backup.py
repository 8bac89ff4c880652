"""A cluster as one file, and new clusters from it: crane backup, crane-run --restore, crane restore."""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tomllib

from support.case import CraneTest
from support.cluster import Cluster
from support.databases import MariaDb
from support.paths import CRANE_RUN, CRANE_TOOL
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Apache, Redis
from support.webclient import get
from test_databases import QUESTIONS, TRANSACTION, fill, sql
from test_restart import SavingRedis

SOME = 300  # keys


class Backup(CraneTest):
    lane = 3
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()

    def back_up(self, cluster, *options):
        file = cluster.dir / "cluster.backup"
        done = cluster.crane("backup", file, *options, timeout_s=150)
        self.assertEqual(done.returncode, 0, done.stdout)
        return file

    def back_up_files(self, cluster):
        """What a host without CRIU has: a checkpoint between two servers."""
        self.assertEqual(cluster.crane("restart").returncode, 0)
        wait_until(lambda: any(row["checkpoint"]["index"] > 0 for row in cluster.status().values()), 30, "one is kept")
        return self.back_up(cluster, "--newest")

    def restored(self, cluster, file, replicas=3):
        """Another cluster of the same server; the first one has to have ended."""
        return Cluster(cluster.command, cluster.server_port, replicas=replicas, name=f"{cluster.dir.name}-restored",
                       options=["--restore", file], environment=cluster.environment)

    def refused(self, *words):
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_new_clusters_of_other_sizes_go_on_with_the_server_as_it_ran(self):
        self.needs_criu()
        with self.crane(Redis) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for number in range(SOME):
                    redis("SET", f"key:{number}", number)
                with RedisClient(cluster.address(1)) as one, RedisClient(cluster.address(2)) as two, \
                        RedisClient(cluster.address(3)) as three:
                    for each in (one, two, three):
                        each("PING")
                    file = self.back_up(cluster)
                redis("SET", "after", "it")
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
            cluster.stop()
            for replicas in (1, 3, 5):
                with self.restored(cluster, file, replicas=replicas) as other:
                    with RedisClient(other.address(other.primary())) as redis:
                        self.assertEqual(redis("DBSIZE"), SOME)
                        # The clients of old are gone: the server is told so.
                        wait_until(lambda: redis("CLIENT", "LIST").count(b"\n") == 1, 20, "old connections are closed")
                        redis("SET", "soon", "gone", "PX", "50")
                        wait_until(lambda: redis("EXISTS", "soon") == 0, 20, "timers go on")
                    if replicas > 1:
                        other.assert_identical()
                    if replicas == 3:
                        self.goes_on(other)

    def goes_on(self, cluster):
        """As any cluster: a primary that dies, a checkpoint, a replica that comes back."""
        primary = cluster.primary()
        cluster.kill_craned(primary)
        wait_until(lambda: cluster.primary() not in (None, primary), 20, "another primary")
        with RedisClient(cluster.address(cluster.primary())) as redis:
            redis("SET", "more", "than before")
            self.assertEqual(redis("DBSIZE"), SOME + 1)
        wait_until(lambda: len(cluster.living()) == 3 and
                   all(row["server"] == "listening" for row in cluster.status().values()), 60, "all are back")
        done = cluster.crane("checkpoint", "take")
        self.assertEqual(done.returncode, 0, done.stdout)
        cluster.assert_identical()

    def test_server_of_many_processes(self):
        self.needs_criu()
        with self.crane(Apache) as cluster:
            page = get(cluster.address(), "/").body
            file = self.back_up(cluster)
            cluster.stop()
            with self.restored(cluster, file) as other:
                for replica in (1, 2, 3):
                    self.assertEqual(get(other.address(replica), "/").body, page)
                other.assert_identical()

    def test_database_between_its_transactions(self):
        self.needs_criu()
        with self.crane(MariaDb) as cluster:
            fill(MariaDb, cluster.address())
            sql(MariaDb, cluster.address(), TRANSACTION * 5)
            answers = sql(MariaDb, cluster.address(), QUESTIONS)
            file = self.back_up(cluster)
            cluster.stop()
            with self.restored(cluster, file) as other:
                self.assertEqual(sql(MariaDb, other.address(2), QUESTIONS), answers)
                sql(MariaDb, other.address(1), TRANSACTION)
                self.assertEqual(sql(MariaDb, other.address(3), "SELECT n FROM counters WHERE id = 1;").strip(), "6")
                self.assertEqual(sql(MariaDb, other.address(1), "CHECK TABLE words, counters;").count("OK"), 2)
                other.assert_identical()

    def test_files_alone_where_a_server_began_anew(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                for number in range(SOME):
                    redis("SET", f"key:{number}", number)
            file = self.back_up_files(cluster)
            cluster.stop()
            with self.restored(cluster, file) as other:
                with RedisClient(other.address(other.primary())) as redis:
                    self.assertEqual(redis("DBSIZE"), SOME)
                other.assert_identical()

    def test_cluster_goes_back_to_an_older_checkpoint(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "good", 1)
                cluster.crane("checkpoint", "take")
                good = max(row["index"] for row in self.checkpoints(cluster))
                redis("FLUSHALL")
                cluster.crane("checkpoint", "take")
            file, newest = cluster.dir / "good", cluster.dir / "newest"
            backup = (CRANE_TOOL, "backup", "--state-dir", cluster.state)
            self.assertIn(f"no checkpoint of entry {good - 1}", self.refused(*backup, file, "--entry", good - 1))
            for words in ((file, "--entry", good), (newest, "--newest")):
                done = cluster.crane("backup", *words)
                self.assertEqual(done.returncode, 0, done.stdout)
            cluster.stop()
            for path, keys in ((file, 1), (newest, 0)):
                with self.restored(cluster, path) as other, RedisClient(other.address(other.primary())) as redis:
                    self.assertEqual(redis("DBSIZE"), keys)

    def checkpoints(self, cluster):
        listed = cluster.crane("checkpoint", "list", "--json")
        self.assertEqual(listed.returncode, 0, listed.stdout)
        return json.loads(listed.stdout)["checkpoints"]

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "a", 1)
            self.assertIn("no checkpoint", self.refused(CRANE_TOOL, "backup", cluster.dir / "none", "--newest",
                                                        "--state-dir", cluster.state))
            file = self.back_up_files(cluster)
            self.assertIn("is there already", self.refused(CRANE_TOOL, "backup", file, "--state-dir", cluster.state))
            self.assertEqual([path.name for path in cluster.dir.glob("*.part-*")], [])
            run = [CRANE_RUN, "--port-map", f"{cluster.server_port}:{cluster.client_port}", "--restore"]
            self.assertIn("is in use", self.refused(*run, file, "--state-dir", cluster.state))
            self.assertIn("another command", self.refused(*run, file, "--state-dir", cluster.dir / "other", "--", "/bin/true"))
            self.assertIn("no backup", self.refused(*run, "/bin/true", "--state-dir", cluster.dir / "other"))
            config = cluster.state / "r1" / "craned.toml"
            os.mkfifo(cluster.dir / "fifo")
            (cluster.dir / "empty").touch()
            for path, what in ((cluster.dir / "fifo", "is a fifo"), (cluster.dir / "empty", "is empty"),
                               (cluster.dir, "is a directory"), ("/dev/null", "is a device")):
                self.assertIn(f"{path} {what}", self.refused(CRANE_TOOL, "restore", path, "--config", config))
                self.assertIn(f"{path} {what}", self.refused(*run, path, "--state-dir", cluster.dir / "other"))
            self.assertIn("works on", self.refused(CRANE_TOOL, "restore", file, "--config", config))
            self.assertEqual(len(cluster.living()), 3)
            cluster.stop()
            self.assertIn("not overwritten", self.refused(CRANE_TOOL, "restore", file, "--config", config))
            self.assertIn("holds a cluster", self.refused(*run, file, "--state-dir", cluster.state))
            for name, place in (("files.tar.zst", 20_000), ("manifest.json", 40), ("backup.json", 60)):
                damaged = self.damaged(file, name, place)
                said = self.refused(*run, damaged, "--state-dir", cluster.dir / "other")
                self.assertRegex(said, "damaged|not as it was|manifest|no backup", name)
                self.assertEqual(list((cluster.dir / "other").glob("r*/db")), [], name)
            with self.restored(cluster, file) as other, RedisClient(other.address(other.primary())) as redis:
                self.assertEqual(redis("GET", "a"), b"1")

    def damaged(self, file, name, place):
        """A copy with one bit of that member turned."""
        copy = file.with_name("damaged")
        with tarfile.open(file) as archive:
            at = archive.getmember(name).offset_data + min(place, archive.getmember(name).size - 2)
        text = bytearray(file.read_bytes())
        text[at] ^= 1
        copy.write_bytes(text)
        return copy

    def cut_short(self, cluster, file, *options):
        """A restore that is killed when the first replica has been begun."""
        words = [CRANE_RUN, "--state-dir", cluster.state, "--port-map", f"{cluster.server_port}:{cluster.client_port}",
                 "--restore", file, *options]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with process:
            wait_until(lambda: (cluster.state / "r1/checkpoints").exists(), 30, "it has begun")
            process.send_signal(signal.SIGKILL)

    def test_log_that_a_restore_was_to_replace_is_back_when_that_is_cut_short(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "a", 1)
                file = self.back_up_files(cluster)
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "after", "it")
            cluster.stop()
            shutil.rmtree(cluster.state / "r1/checkpoints")
            self.cut_short(cluster, file, "--fresh")
            self.assertTrue((cluster.state / "earlier-log").exists(), "the restore was quicker than the signal")
            for _ in range(2):
                self.assertIn("holds a cluster", self.refused(CRANE_RUN, "--state-dir", cluster.state, "--restore", file))
            cluster.start()
            with RedisClient(cluster.address(2)) as redis:
                self.assertEqual(redis("GET", "after"), b"it")
            self.assertEqual(cluster.crane("stop").returncode, 0)

    def test_backup_that_never_came_to_be_ready_is_not_begun_without(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "a", 1)
            file = self.back_up_files(cluster)
            cluster.stop()
            other = self.restored(cluster, file)
            words = [CRANE_RUN, "--state-dir", other.state, "--port-map", f"{other.server_port}:{other.client_port}"]
            process = subprocess.Popen([str(word) for word in [*words, "--restore", file]], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)

            def restored():
                record = other.state / "run.json"
                return record.exists() and json.loads(record.read_text()).get("restored")

            with process:
                wait_until(restored, 30, "the backup is restored, and the server is being started", poll_s=0.005)
                process.send_signal(signal.SIGKILL)
            self.assertFalse(json.loads((other.state / "run.json").read_text())["ready"], "it was quicker than the signal")
            self.assertIn("begun from a backup", self.refused(*words, "--quantum", 7, "--", *cluster.command))
            self.assertIn("never came to be ready", self.refused(*words, "--restore", file))
            other.options, other.cwd = [], cluster.cwd
            with other, RedisClient(other.address(other.primary())) as redis:
                self.assertEqual(redis("GET", "a"), b"1")

    def test_restore_that_was_cut_short_is_done_again(self):
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "a", 1)
            file = self.back_up_files(cluster)
            cluster.stop()
            other = self.restored(cluster, file)
            self.cut_short(other, file)
            record = json.loads((other.state / "run.json").read_text())
            if record.get("restoring"):  # else it was quicker than the signal
                self.assertIn("cut short", self.refused(CRANE_RUN, "--state-dir", other.state, "--", *cluster.command))
            else:
                self.note("the restore was done before the signal came")
                record["restoring"] = True
                (other.state / "run.json").write_text(json.dumps(record))
            with other, RedisClient(other.address(other.primary())) as redis:
                self.assertEqual(redis("GET", "a"), b"1")

    def test_replicas_of_several_hosts_are_given_it_one_by_one(self):
        """crane restore, with a craned.toml that is not crane-run's."""
        with self.crane(SavingRedis, options=("--checkpoint-log-mib=0",)) as cluster:
            with RedisClient(cluster.address(cluster.primary())) as redis:
                redis("SET", "a", 1)
            file = self.back_up_files(cluster)
            text = (cluster.state / "r1" / "craned.toml").read_text()
            cluster.stop()
            elsewhere = cluster.dir / "elsewhere.toml"
            (cluster.state / "r1" / "craned.toml").rename(elsewhere)
            again = [CRANE_TOOL, "backup", cluster.dir / "again", "--state-dir", cluster.state / "r1"]
            self.assertIn("--config", self.refused(*again))
            done = subprocess.run([str(word) for word in [*again, "--config", elsewhere]], stdout=subprocess.PIPE, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            folder = cluster.dir / "host"
            config = cluster.dir / "host.toml"
            old = tomllib.loads(text)
            text = text.replace(old["cluster_id"], "abcd").replace(old["state_dir"], str(folder))
            config.write_text(text.replace("abcd", old["cluster_id"]))
            self.assertIn("choose another", self.refused(CRANE_TOOL, "restore", file, "--config", config))
            config.write_text(text.replace("quantum = 1000", "quantum = 999"))
            self.assertIn("otherwise than it ran", self.refused(CRANE_TOOL, "restore", file, "--config", config))
            config.write_text(text)
            done = subprocess.run([str(CRANE_TOOL), "restore", str(file), "--config", str(config), "--json"],
                                  stdout=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(json.loads(done.stdout)["cluster"], "abcd")
            sound = subprocess.run([str(CRANE_TOOL), "log", "verify", "--state-dir", str(folder), "--json"],
                                   stdout=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertTrue(json.loads(sound.stdout)["sound"], sound.stdout)
            self.witness_begins(file, text, cluster.dir / "witness")

    def witness_begins(self, file, text, folder):
        """It runs no server, so its configuration does not say how it ran; and no backup is made by that alone."""
        config = folder.with_suffix(".toml")
        servers = ("server", "shim", "init", "cwd", "environment", "witness")
        lines = [line for line in text.splitlines() if line.split(" ")[0] not in servers]
        lines = [line if not line.startswith("state_dir") else f'state_dir = "{folder}"' for line in lines]
        config.write_text("witness = true\n" + "\n".join(lines) + "\n")
        done = subprocess.run([str(CRANE_TOOL), "restore", str(file), "--config", str(config)], stdout=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        self.assertEqual((done.returncode, "as a witness" in done.stdout), (0, True), done.stdout)
        self.assertIn("is a witness'", self.refused(CRANE_TOOL, "backup", folder / "backup", "--state-dir", folder, "--config", config))
