"""Replicas on different hosts: certificates made by `crane ca`, links that are encrypted, and peers that are refused."""

import json
import shutil
import subprocess
import time

from support import procs
from support.case import CraneTest
from support.paths import BUILD, CRANE, SHIM, work_dir
from support.three_hosts import CLUSTER, ThreeHosts

CRANED = BUILD / "bin/craned"


class Certificates(CraneTest):
    """`crane ca`, and what craned says of its files, without a cluster."""
    lane = 2

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.dir = work_dir("ca")
        self.addCleanup(shutil.rmtree, self.dir)

    def ca(self, *words, status=0):
        done = subprocess.run([CRANE, "ca", *map(str, words)], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_authority_and_certificates(self):
        ca = self.dir / "ca"
        self.assertIn("hexadecimal", self.ca("init", "--dir", ca, "--cluster", "web", status=2))
        made = json.loads(self.ca("init", "--dir", ca, "--cluster", CLUSTER, "--json"))
        self.assertEqual((made["cluster"], made["authority"], made["valid_now"]), (CLUSTER, True, True))
        self.assertEqual((ca / "ca.key").stat().st_mode & 0o777, 0o600)
        key = (ca / "ca.key").read_bytes()
        self.assertIn("never overwritten", self.ca("init", "--dir", ca, "--cluster", CLUSTER, status=2))
        self.assertEqual((ca / "ca.key").read_bytes(), key)
        for number in (1, 2):
            self.assertIn(f"crane://{CLUSTER}/{number}", self.ca("issue", "--dir", ca, "--replica", number))
        self.assertEqual((ca / "replica-1/replica.key").stat().st_mode & 0o777, 0o600)
        self.assertEqual((ca / "replica-1").stat().st_mode & 0o777, 0o700)
        self.assertIn("not of", self.ca("issue", "--dir", ca, "--replica", 1, "--out", ca / "replica-2", status=2))
        old = (ca / "replica-1/replica.crt").read_bytes()
        renewed = json.loads(self.ca("issue", "--dir", ca, "--replica", 1, "--days", 10, "--json"))
        self.assertEqual(renewed["replica"], 1)
        self.assertNotEqual((ca / "replica-1/replica.crt").read_bytes(), old)
        rows = json.loads(self.ca("show", "--dir", ca, "--json"))
        self.assertEqual([row["name"] for row in rows], [f"crane://{CLUSTER}{end}" for end in ("", "/1", "/2")])
        self.assertIn("renew it", self.ca("show", "--dir", ca))
        # Others' tools agree.
        self.assertIn("OK", self.tool("openssl", "verify", "-x509_strict", "-CAfile", ca / "ca.crt",
                                      ca / "replica-1/replica.crt"))
        self.assertIn("ca init", self.ca("issue", "--dir", self.dir / "none", "--replica", 1, status=2))

    def test_half_an_authority_is_not_a_circle_of_advice(self):
        ca = self.dir / "ca"
        self.ca("init", "--dir", ca, "--cluster", CLUSTER)
        for name in ("ca.crt", "ca.key"):
            (ca / name).rename(self.dir / name)
            for words in (("init", "--cluster", CLUSTER), ("issue", "--replica", 1)):
                self.assertIn(f"{name}: put that back", self.ca(*words, "--dir", ca, status=2))
            (self.dir / name).rename(ca / name)
        self.ca("issue", "--dir", ca, "--replica", 1)

    def test_another_authoritys_folder_is_not_issued_into(self):
        """Its ca.crt, which is what its holder trusts and maybe the only copy, would be replaced."""
        ca, other, foreign = (self.dir / name for name in ("ca", "other", "foreign"))
        for place, cluster in ((ca, CLUSTER), (other, CLUSTER), (foreign, CLUSTER[::-1])):
            self.ca("init", "--dir", place, "--cluster", cluster)
            self.ca("issue", "--dir", place, "--replica", 2)
        as_reader = ("--role", "read", "--name", "anna")
        for out in (other, foreign, other / "replica-2", foreign / "replica-2"):
            before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
            for whose in (("--replica", 1), ("--replica", 2), as_reader):
                said = self.ca("issue", "--dir", ca, *whose, "--out", out, status=2)
                self.assertIn("give another directory with --out", said)
                self.assertEqual({path: path.read_bytes() for path in out.rglob("*") if path.is_file()}, before)
        (other / "replica-2/ca.crt").unlink()
        (foreign / "replica-2/ca.crt").unlink()
        self.ca("issue", "--dir", ca, "--replica", 2, "--out", other / "replica-2")  # the same replica's, by this authority from now on
        self.assertIn("not of cluster", self.ca("issue", "--dir", ca, *as_reader, "--out", foreign / "replica-2", status=2))
        # A ca.crt with both stays so; the authority's own folder, and one of its replica's, take what it issues.
        both = (ca / "ca.crt").read_text() + (other / "ca.crt").read_text()
        (ca / "replica-2/ca.crt").write_text(both)
        for place in (ca, other):
            self.ca("issue", "--dir", place, "--replica", 2, "--out", ca / "replica-2")
            self.assertEqual((ca / "replica-2/ca.crt").read_text(), both)
        self.ca("issue", "--dir", ca, *as_reader, "--out", ca / "replica-2")
        self.ca("issue", "--dir", ca, *as_reader, "--out", ca)

    def test_craned_checks_its_files(self):
        ca, config = self.dir / "ca", self.dir / "craned.toml"
        self.ca("init", "--dir", ca, "--cluster", CLUSTER)
        for number in (1, 2):
            self.ca("issue", "--dir", ca, "--replica", number)

        def check(folder):
            text = (f'cluster_id = "{CLUSTER}"\nreplica_id = 1\nstate_dir = "{self.dir}/state"\nserver = ["/bin/true"]\n'
                    f'shim = "{SHIM}"\ninit = "{BUILD}/bin/crane-init"\n')
            if folder:
                text += (f'[tls]\nca = "{folder}/ca.crt"\ncertificate = "{folder}/replica.crt"\n'
                         f'key = "{folder}/replica.key"\n')
            config.write_text(text + '[[replica]]\nid = 1\npeer = "192.0.2.1:7400"\n')
            done = subprocess.run([CRANED, "--check-config", "--config", config], capture_output=True, text=True,
                                  timeout=20, check=False)
            return done.returncode, done.stdout + done.stderr

        status, text = check(None)
        self.assertEqual(status, 1, text)
        self.assertIn(f"crane ca init --dir /root/crane-ca --cluster {CLUSTER}", text)
        status, text = check(ca / "replica-1")
        self.assertEqual(status, 0, text)
        self.assertIn("peers by TLS", text)
        status, text = check(ca / "replica-2")
        self.assertEqual(status, 1, text)
        self.assertIn("certificate of replica 2", text)
        self.assertRegex(text, "settings [0-9a-f]{16}\n")  # which a deployment that will mend them asks for
        (ca / "replica-1/replica.key").chmod(0o644)
        status, text = check(ca / "replica-1")
        self.assertEqual(status, 1, text)
        self.assertIn("chmod 600", text)


    def test_an_authority_that_ends_before_what_it_signed_is_told_of(self):
        """openssl lets it, and the playbooks use openssl."""
        ca, config = self.dir / "ca", self.dir / "craned.toml"
        self.ca("init", "--dir", ca, "--cluster", CLUSTER, "--days", 20)
        self.ca("issue", "--dir", ca, "--replica", 1)
        folder = ca / "replica-1"
        (self.dir / "extensions").write_text("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                                             "extendedKeyUsage=serverAuth,clientAuth\nauthorityKeyIdentifier=keyid\n"
                                             f"subjectAltName=URI:crane://{CLUSTER}/1\n")
        self.tool("openssl", "req", "-new", "-key", folder / "replica.key", "-subj", "/CN=1", "-out", self.dir / "csr")
        self.tool("openssl", "x509", "-req", "-in", self.dir / "csr", "-CA", ca / "ca.crt", "-CAkey", ca / "ca.key", "-days", 800,
                  "-set_serial", 7, "-extfile", self.dir / "extensions", "-out", folder / "replica.crt")
        config.write_text(f'cluster_id = "{CLUSTER}"\nreplica_id = 1\nstate_dir = "{self.dir}/state"\nserver = ["/bin/true"]\n'
                          f'shim = "{SHIM}"\ninit = "{BUILD}/bin/crane-init"\n'
                          f'[tls]\nca = "{folder}/ca.crt"\ncertificate = "{folder}/replica.crt"\nkey = "{folder}/replica.key"\n'
                          '[[replica]]\nid = 1\npeer = "192.0.2.1:7400"\n')
        said = self.tool(CRANED, "--check-config", "--config", config)
        self.assertIn(f"the authority's certificate in {folder}/ca.crt expires on", said)


class OverTls(ThreeHosts):
    lane = 2

    def test_an_authority_gives_way_to_another_one_while_the_cluster_runs(self):
        """In the three steps of docs/deployment.md, each of which is taken into use before the next."""
        old, new = self.dir / "ca", self.dir / "next"
        self.tool(CRANE, "ca", "init", "--dir", new, "--cluster", CLUSTER)
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number)
        primary = self.await_primary()
        certificates = {place: (place / "ca.crt").read_text() for place in (old, new)}
        steps = [(certificates[old] + certificates[new], None), (certificates[new] + certificates[old], new), (certificates[new], None)]
        for place, (authorities, issuer) in enumerate(steps):
            for number in (1, 2, 3):
                if issuer:
                    self.tool(CRANE, "ca", "issue", "--dir", issuer, "--replica", number, "--out", self.tls(number))
                (self.tls(number) / "ca.crt").write_text(authorities)
            # Every replica makes new links: to those that are started again.
            for number in (1, 2, 3):
                self.craneds[number].terminate()
                self.craneds[number].wait(60)
                self.start(number)
                procs.wait_until(lambda n=number: self.linked(n), 60, f"replica {number} has links to all after step {place + 1}")
            primary = self.await_primary()
            self.assertEqual(self.redis(primary, "SET", "step", place), "OK")
        for number in (1, 2, 3):
            self.assertNotIn("is not signed by the authority", self.log(number))
        # The old one makes no replica any more.
        (self.tls(3) / "ca.crt").unlink()
        self.issue(3)
        (self.tls(3) / "ca.crt").write_text(certificates[new])
        done = subprocess.run([CRANED, "--check-config", "--config", self.dir / "craned-3.toml"], capture_output=True, text=True,
                              timeout=20, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not signed by the authority", done.stderr)

    def linked(self, number):
        row = self.rows().get(number, {})
        return row.get("server") == "listening" and len([1 for peer in row["peers"] if peer["connected"]]) == 2

    def test_cluster_over_tls(self):
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number)
        primary = self.await_primary()
        self.assertEqual(self.redis(primary, "SET", "key", "a secret that nobody reads on the way"), "OK")
        backup = primary % 3 + 1
        self.assertIn("a secret", self.redis(backup, "GET", "key"))
        # A plain connection gets no greeting, and no reason either: an alert at most.
        probe = self.hosts.on(4, "timeout", "5", "bash", "-c",
                              f"exec 3<>/dev/tcp/{self.hosts.address(primary)}/7400; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; "
                              "wc -c <&3")
        self.assertLess(int(self.tool(*probe)), 20)
        self.await_line(primary, f"a peer connection from {self.hosts.address(4)} came to nothing: the other side does not "
                                 "speak TLS 1.3")
        # The primary's host is cut off, and comes back.
        self.hosts.unplug(primary)
        old, row = primary, None
        procs.wait_until(lambda: [n for n, row in self.rows().items() if n != old and row.get("role") == "primary" and
                                  row.get("server") == "listening"], 60, "another primary")
        now = next(n for n, row in self.rows().items() if n != old and row.get("role") == "primary")
        procs.wait_until(lambda: self.redis(now, "SET", "key", "after") == "OK", 30, "it serves")
        self.hosts.unplug(old, False)
        procs.wait_until(lambda: self.rows().get(old, {}).get("role") == "backup", 60, "the old primary follows")
        self.assertEqual(self.redis(old, "GET", "key"), "after")
        # Renewed while it runs.
        self.issue(old, "--days", "20")
        self.craneds[now].kill()
        self.craneds[now].wait()
        self.start(now)
        self.await_line(old, "the certificate has been read again")
        self.await_line(old, "this replica's certificate expires on")

    def test_a_certificate_without_its_key_is_told_of_until_the_key_is_there(self):
        """What is in use is another one; with the files as they are craned would not start."""
        for number in (1, 2, 3):
            self.issue(number)
        self.issue(1, "--days", "20")
        for number in (1, 2, 3):
            self.start(number)
        self.await_primary()
        renewed, place = self.dir / "renewed", self.tls(1)
        self.tool(CRANE, "ca", "issue", "--dir", self.dir / "ca", "--replica", 1, "--out", renewed)

        def said():
            done = subprocess.run([CRANE, "status", "--state-dir", self.state(1)], capture_output=True, text=True, timeout=20, check=False)
            return done.stdout + done.stderr

        def left_days():
            return (self.rows()[1]["certificate_ends_s"] - time.time()) / 86400

        procs.wait_until(lambda: "this replica's certificate expires in 19 days (alarm certificate)" in said(), 30, "it ends soon")
        shutil.copy(renewed / "replica.crt", place / "replica.crt")
        unusable = "the certificate files are not used, and craned does not start with them"
        procs.wait_until(lambda: unusable in said(), 30, "the key does not belong to it")
        self.assertIn("expires in 19 days", said())
        self.assertLess(left_days(), 21)
        (place / "replica.crt").write_text("garbage")
        self.await_line(1, "has no certificate in PEM")
        self.assertLess(19, left_days())
        lost = self.rows()[1]["init_pid"]
        procs.kill(lost)  # the server is made anew with what craned has read before

        def is_made_anew():
            row = self.rows().get(1, {})
            return row.get("server") == "listening" and row["init_pid"] != lost

        procs.wait_until(is_made_anew, 30, "the server is made anew")
        for name in ("replica.crt", "replica.key"):
            shutil.copy(renewed / name, place / name)
        procs.wait_until(lambda: "alarm certificate" not in said(), 30, "the pair is in use")
        self.assertLess(800, left_days())

    def test_client_whose_host_is_gone_leaves(self):
        """It could say nothing at its end."""
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number, "[clients]\nkeepalive_idle_s = 1\nkeepalive_interval_s = 1\nkeepalive_probes = 3\n")
        primary = self.await_primary()
        backup = primary % 3 + 1
        for replica, words in ((primary, "PING"), (backup, "PING"), (backup, "SUBSCRIBE news")):
            script = f"exec 3<>/dev/tcp/{self.hosts.address(replica)}/{self.client_port}; echo '{words}' >&3; exec cat <&3"
            client = subprocess.Popen(self.hosts.on(4, "bash", "-c", script), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL)
            self.addCleanup(lambda one=client: (one.kill(), one.wait()))

        def connections():
            return {n: row["open_connections"] for n, row in self.rows().items()}

        procs.wait_until(lambda: set(connections().values()) == {3}, 30, "every replica knows of three clients")
        self.hosts.unplug(4)
        procs.wait_until(lambda: set(connections().values()) == {0}, 60, "all of them are closed, on all replicas")

    def test_certificate_of_another_authority_is_refused(self):
        for number in (1, 2):
            self.issue(number)
        other = self.dir / "other-ca"
        self.tool(CRANE, "ca", "init", "--dir", other, "--cluster", CLUSTER)
        self.tool(CRANE, "ca", "issue", "--dir", other, "--replica", 3, "--out", self.tls(3))
        for number in (1, 2, 3):
            self.start(number)
        primary = self.await_primary()
        self.assertIn(primary, (1, 2))
        self.assertEqual(self.redis(primary, "SET", "key", "value"), "OK")
        self.await_line(1, f"crane://{CLUSTER}/3 is not signed by the authority in this replica's tls.ca")
        self.await_line(3, f"crane://{CLUSTER}/1 is not signed by the authority in this replica's tls.ca")
        self.assertNotEqual(self.rows().get(3, {}).get("role"), "primary")
