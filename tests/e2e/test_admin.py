"""A cluster administered from a host that has no replica: over TLS, by certificates with roles; and that whoever else comes,
however badly, is refused and takes nothing from the service."""

import json
import subprocess

from support.paths import CRANE_TOOL
from support.procs import wait_until
from support.three_hosts import CLUSTER, ThreeHosts

PORT = 7401

# On the host without a replica: argv is what to do, HOST, CERT, KEY, CA.
CLIENT = """
import socket, ssl, sys, time
what, host, cert, key, ca = sys.argv[1:]
def connect():
    plain = socket.create_connection((host, 7401), timeout=10)
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    context.load_cert_chain(cert, key)
    return context.wrap_socket(plain)
def ends(one):
    one.settimeout(20)
    try:
        while one.recv(65536):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
if what == "garbage":
    plain = socket.create_connection((host, 7401), timeout=10)
    plain.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n" * 1000)
    ends(plain)
    one = connect()
    try:
        one.sendall(b"\\xff" * 100000)
    except (ConnectionError, ssl.SSLError):
        pass
    ends(one)
elif what == "shown":
    print(ssl.cert_time_to_seconds(connect().getpeercert()["notAfter"]))
elif what == "silent":
    ends(socket.create_connection((host, 7401), timeout=10))
elif what == "many":
    held = []
    for _ in range(200):
        held.append(socket.create_connection((host, 7401), timeout=10))
    print("held", flush=True)
    time.sleep(30)
print("done")
"""


class FromElsewhere(ThreeHosts):
    lane = 2

    def begin(self):
        for number in (1, 2, 3):
            self.issue(number)
            self.start(number, f'[admin]\nlisten = "0.0.0.0:{PORT}"\n')
        for role, name in (("read", "ann"), ("operate", "bob")):
            self.tool(CRANE_TOOL, "ca", "issue", "--dir", self.dir / "ca", "--role", role, "--name", name)
        return self.await_primary()

    def place(self, *numbers):
        return ",".join(f"{self.hosts.address(n)}:{PORT}" for n in numbers)

    def ask(self, who, *words, at=None, status=0, whose="operator"):
        """From host 4. What it says."""
        folder = who if hasattr(who, "parent") else self.dir / f"ca/operator-{who}"
        command = self.hosts.on(4, CRANE_TOOL, "--cluster", at or self.place(1), "--cert", folder / f"{whose}.crt", "--key",
                                folder / f"{whose}.key", *map(str, words))
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=100, check=False)
        text = done.stdout.decode()
        self.assertEqual(done.returncode, status, text)
        return text

    def client(self, what, folder="bob"):
        folder = self.dir / f"ca/operator-{folder}"
        return [str(word) for word in self.hosts.on(4, "python3", "-c", CLIENT, what, self.hosts.address(1), folder / "operator.crt",
                                                    folder / "operator.key", folder / "ca.crt")]

    def test_each_role_does_what_it_may(self):
        primary = self.begin()
        self.assertEqual(self.redis(primary, "SET", "key", "value"), "OK")
        for at in (1, 2, 3):
            told = json.loads(self.ask("ann", "status", "--json", at=self.place(at)))
            self.assertEqual((told["primary"], told["healthy"], [row["replica"] for row in told["replicas"]]),
                             (primary, True, [1, 2, 3]), told)
        self.assertIn("ok: replica", self.ask("ann", "health"))
        self.assertIn("equal on all replicas up to record", self.ask("ann", "diff"))
        chains = json.loads(self.ask("ann", "output", "--at", 1, "--json"))
        self.assertEqual((len(chains), len({row["chain"] for row in chains})), (3, 1))
        entries = json.loads(self.ask("ann", "log", "--json", "--replica", primary % 3 + 1))["entries"]
        self.assertEqual([entry["index"] for entry in entries], list(range(1, len(entries) + 1)))
        self.assertIn("value", json.dumps(entries))
        self.assertIn("primary: replica", self.ask("ann", "top", "--once"))
        successor = primary % 3 + 1
        for words in (("transfer", successor), ("signal", 1), ("restart",), ("checkpoint", "take"), ("member", "remove", successor)):
            self.assertIn("needs the role operate", self.ask("ann", *words, status=1 if words[0] != "member" else 2))
        self.assertIn("on a replica's host", self.ask("bob", "backup", "file", status=2))
        self.ask("bob", "transfer", successor, at=self.place(primary % 3 + 1))
        self.assertEqual(self.await_primary(), successor)
        self.assertIn("another server serves", self.ask("bob", "restart"))
        # A replica's own certificate does, too; and the log tells who ordered what.
        self.ask(self.tls(2), "transfer", primary, whose="replica")
        self.assertEqual(self.await_primary(), primary)
        self.assertIn(f"crane://{CLUSTER}/operate/bob ({self.hosts.address(4)}) orders: ", self.log(successor))
        # One that does not answer is passed over, and shown to be down.
        self.craneds[1].kill()
        self.craneds[1].wait()
        told = json.loads(self.ask("ann", "status", "--json", at=self.place(1, 2), status=1))
        self.assertEqual({row["replica"]: row["alive"] for row in told["replicas"]}, {1: False, 2: True, 3: True})

    def test_others_are_refused_with_a_reason(self):
        self.begin()
        ca, other = self.dir / "ca", self.dir / "other"
        self.tool(CRANE_TOOL, "ca", "init", "--dir", other, "--cluster", CLUSTER)
        self.tool(CRANE_TOOL, "ca", "issue", "--dir", other, "--role", "operate", "--name", "eve")
        self.assertIn("is not signed by the authority", self.ask(other / "operator-eve", "status", status=2))
        (other / "operator-eve/ca.crt").write_bytes((ca / "ca.crt").read_bytes())
        self.assertIn("it refuses", self.ask(other / "operator-eve", "status", status=2))
        self.await_line(1, f"crane://{CLUSTER}/operate/eve is not signed by the authority")
        # Of the right authority, and without a role; and one that has ended.
        for name, begins, ends in (("none", "20200101000000Z", "20400101000000Z"), ("old", "20200101000000Z", "20200201000000Z")):
            folder = self.dir / name
            folder.mkdir()
            san = f"URI:crane://{CLUSTER}" if name == "none" else f"URI:crane://{CLUSTER}/operate/{name}"
            self.tool("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
                      "-keyout", folder / "operator.key", "-out", folder / "csr")
            (folder / "ext").write_text(f"subjectAltName={san}\nextendedKeyUsage=clientAuth\n")
            (folder / "db").write_text("")
            (folder / "ca.cnf").write_text(f"[ca]\ndefault_ca=x\n[x]\ndatabase={folder}/db\nnew_certs_dir={folder}\nrand_serial=yes\n"
                                           "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            self.tool("openssl", "ca", "-batch", "-config", folder / "ca.cnf", "-cert", ca / "ca.crt", "-keyfile", ca / "ca.key",
                      "-in", folder / "csr", "-out", folder / "operator.crt", "-extfile", folder / "ext", "-startdate", begins,
                      "-enddate", ends, "-notext")
            (folder / "ca.crt").write_bytes((ca / "ca.crt").read_bytes())
        self.assertIn("has no role in cluster", self.ask(self.dir / "none", "status", status=2))
        self.assertIn("it refuses", self.ask(self.dir / "old", "status", status=2))
        self.await_line(1, f"crane://{CLUSTER}/operate/old expired on")
        # An operator's certificate makes no replica.
        self.assertIn("all is well", self.ask("ann", "top", "--once"))

    def test_operators_are_shown_the_certificate_that_is_in_use(self):
        """Though nobody of them came while its files were right."""
        self.begin()
        self.issue(1, "--days", 400)
        self.await_line(1, "the certificate has been read again")
        (self.tls(1) / "replica.crt").write_text("garbage")
        self.await_line(1, "has no certificate in PEM")
        shown = self.tool(*self.client("shown")).split()
        self.assertEqual(shown, [str(self.rows()[1]["certificate_ends_s"]), "done"])

    def test_whoever_comes_badly_takes_nothing_from_the_service(self):
        primary = self.begin()
        view = self.rows()[primary]["view"]
        self.assertEqual(self.tool(*self.client("garbage")).strip(), "done")
        self.await_line(1, "a connection for administration from")
        self.assertEqual(self.tool(*self.client("silent")).strip(), "done")  # it is closed
        with subprocess.Popen(self.client("many"), stdout=subprocess.PIPE, text=True) as many:
            self.addCleanup(many.kill)
            self.assertEqual(many.stdout.readline().strip(), "held")
            self.assertIn("all is well", self.ask("ann", "top", "--once"))
            self.assertEqual(self.redis(primary, "SET", "key", "value"), "OK")
            many.kill()
        wait_until(lambda: self.rows()[1]["view"] == view, 10, "nobody took the primary for dead")
