"""Servers that connect to others, which know nothing of replicas: each connection and request reaches them once."""

import http.server
import os
import pathlib
import shutil
import socket
import socketserver
import subprocess
import threading

from support.case import CraneTest, together
from support.paths import PYTHON, free_port, work_dir
from support.procs import listening, wait_until
from support.servers import Server, write
from support.webclient import get
import test_checkpoint  # the module: a class by name would be run here again
import test_images

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "programs" / "egress_server.py"


def own_address():
    """Of this host, and not of its loopback: a domain has a loopback of its own."""
    for line in subprocess.run(["ip", "-o", "-4", "addr", "show", "up"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines():
        address = line.split()[3].split("/")[0]
        if not address.startswith("127."):
            return address
    return None


class Lines(socketserver.StreamRequestHandler):
    """Each line comes back with its number."""

    def handle(self):
        backend = self.server
        with backend.lock:
            backend.connections += 1
        try:
            for line in self.rfile:
                if line.startswith(b"big "):
                    self.echo(int(line.split()[1]))
                    continue
                with backend.lock:
                    backend.requests.append(line.decode().strip())
                    number = len(backend.requests)
                if line.startswith(b"half "):
                    self.rfile.read()
                self.wfile.write(b"%d %s" % (number, line))
        except ConnectionError:
            pass  # the primary was killed
        finally:
            with backend.lock:
                backend.ended += 1

    def echo(self, left):
        while left:
            piece = self.rfile.read1(min(left, 65536))
            self.wfile.write(piece)
            left -= len(piece)


class Backend(socketserver.ThreadingTCPServer):
    """A server of the test, elsewhere."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler=Lines):
        self.lock = threading.Lock()
        self.connections, self.ended, self.requests = 0, 0, []
        super().__init__((own_address(), free_port()), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def name(self):
        return f"{self.server_address[0]}:{self.server_address[1]}"


class Asking(Server):
    """The application server."""

    name = "egress"
    container_port = 7100

    def __init__(self, there, port=None):
        self.there = there
        super().__init__(port)

    def prepare(self):
        shutil.copy(SOURCE, self.site / SOURCE.name)

    def command(self):
        return [PYTHON, self.site / SOURCE.name, self.port, self.there]


class Asker:
    """A client of it."""

    def __init__(self, address, timeout_s=30):
        self.socket = socket.create_connection(address, timeout_s)
        self.file = self.socket.makefile("rwb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def __call__(self, line):
        self.file.write(line.encode() + b"\n")
        self.file.flush()
        return self.file.readline().decode().strip()


class Egress(CraneTest):
    lane = 3
    timeout_s = 240
    log, await_back = test_checkpoint.Checkpoint.log, test_checkpoint.Checkpoint.await_back
    take, begin_there = test_images.Images.take, test_images.Images.begin_there

    def setUp(self):
        super().setUp()
        if not own_address():
            self.skipTest("this host has no address but loopback")

    def server(self, there, *options):
        return self.crane(Asking, there, options=["--egress", "primary", *options])

    def test_each_connection_is_made_once(self):
        def client(replica, number):
            with Asker(cluster.address(replica)) as ask:
                for turn in range(10):
                    count, text = ask(f"get {number}.{turn}").split()
                    self.assertEqual(text, f"{number}.{turn}")
                    counts.append(int(count))

        with Backend() as there, self.server(there.name()) as cluster:
            counts = []
            together(*(lambda n=n: client(1 + n % cluster.replicas, n) for n in range(6)))
            self.assertEqual(sorted(counts), list(range(1, 61)))
            self.assertEqual(there.connections, 60)
            cluster.assert_identical()
            rows = cluster.status()
            self.assertEqual(sum(row["egress"]["made"] for row in rows.values()), 60)
            wait_until(lambda: there.ended == 60, 10, "each connection is ended")
            self.assertEqual(rows[cluster.primary()]["egress"]["failed"], 0)

    def test_sockets_that_do_not_wait_time_limits_and_refusals(self):
        with Backend() as there, self.server(there.name()) as cluster, Asker(cluster.address(2)) as ask:
            self.assertEqual(ask("try one"), "EINPROGRESS 0 True True 1 one")
            self.assertEqual(ask("half two"), "2 half two")
            self.assertEqual(ask(f"big {8 << 20}"), str(8 << 20))
            self.assertEqual(ask(f"port {free_port()}"), "ECONNREFUSED")
            self.assertEqual(ask("keep three"), "3 three")
            self.assertEqual(ask("keep four"), "4 four")
            self.assertEqual(there.connections, 4)
            with socket.socket() as full:  # never accepts: beyond its queue nobody is answered
                full.bind((own_address(), 0))
                full.listen(0)
                others = [socket.socket() for _ in range(4)]
                for one in others:
                    one.setblocking(False)
                    one.connect_ex(full.getsockname())
                self.assertEqual(ask(f"within 300 {full.getsockname()[1]}"), "timed out")
                for one in others:
                    one.close()
            cluster.assert_identical()

    def test_datagrams(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.bind((own_address(), 0))
            heard = []

            def answer():
                while True:
                    try:
                        text, whom = there.recvfrom(2048)
                    except OSError:
                        return
                    if text == b"end":
                        return
                    heard.append(text)
                    there.sendto(b"%d %s" % (len(heard), text), whom)

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            try:
                with self.server(f"{own_address()}:{there.getsockname()[1]}") as cluster, Asker(cluster.address(3)) as ask:
                    for number in range(5):
                        self.assertEqual(ask(f"udp {number}"), f"{number + 1} {number}")
                    self.assertEqual(heard, [b"%d" % number for number in range(5)])
                    cluster.assert_identical()
            finally:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bye:
                    bye.sendto(b"end", there.getsockname())
                thread.join(5)

    def test_names_are_looked_up_by_the_primary(self):
        """When the containers have forgotten "localhost", the host alone knows it."""
        with Backend() as there, self.server(there.name()) as cluster, Asker(cluster.address(1)) as ask:
            self.assertIn("127.0.0.1", ask("name crane").replace("127.0.1.1", "127.0.0.1").split())  # in each container's file
            for replica in cluster.living():
                pathlib.Path(f"/proc/{cluster.server_pid(replica)}/root/etc/hosts").write_text("")
            for way, names in (("name", 1), ("old", 3)):  # Python asks twice for the latter
                self.assertIn("127.0.0.1", ask(f"{way} localhost").split())
                self.assertEqual(sum(row["egress"]["names"] for row in cluster.status().values()), names)
            self.assertEqual(ask("name 10.0.0.1"), "10.0.0.1")
            self.assertEqual(ask(f"name {'.'.join(['x' * 60] * 5)}"), f"error {socket.EAI_NONAME}")
            self.assertEqual(ask("old no-such.invalid").split()[0], "error")
            cluster.assert_identical()
            self.assertEqual(sum(row["egress"]["names"] for row in cluster.status().values()), 4)

    def test_after_a_failover_the_server_connects_again_and_nothing_is_asked_twice(self):
        self.needs_replicas()
        with Backend() as there, self.server(there.name()) as cluster:
            first = cluster.primary()
            other = 1 + first % 3
            with Asker(cluster.address(other)) as ask:
                for number in range(5):
                    self.assertEqual(ask(f"keep {number}"), f"{number + 1} {number}")
                self.assertEqual(there.connections, 1)
                cluster.kill_craned(first)
                for number in range(5, 10):
                    self.assertEqual(ask(f"keep {number}"), f"{number + 1} {number}")
                self.assertEqual(there.connections, 2)
                self.await_back(cluster, first)  # by a replay
                self.assertEqual(ask("keep on"), "11 on")
                self.assertEqual((there.connections, len(there.requests)), (2, 11))
            cluster.assert_identical()

    def test_what_is_under_way_when_the_primary_dies_is_done_by_the_next(self):
        self.needs_replicas()
        with socket.socket() as full, self.server(f"{own_address()}:1") as cluster:
            full.bind((own_address(), 0))
            full.listen(0)
            fillers = [socket.socket() for _ in range(4)]  # beyond its queue nobody is answered, until it accepts
            for one in fillers:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            first = cluster.primary()
            with Asker(cluster.address(1 + first % 3)) as ask:
                ask.file.write(f"port {full.getsockname()[1]}\n".encode())
                ask.file.flush()
                wait_until(lambda: cluster.status()[first]["egress"]["connecting"] == 1, 10, "it is under way")
                cluster.kill_craned(first)
                wait_until(lambda: cluster.primary() != first, 20, "another one leads")
                wait_until(lambda: cluster.status()[cluster.primary()]["egress"]["connecting"] == 1, 10, "it is under way there")
                for one in fillers:
                    one.close()
                full.settimeout(0.2)
                accepted = []
                thread = threading.Thread(target=lambda: accepted.append(ask.file.readline().decode().strip()))
                thread.start()
                while thread.is_alive():
                    try:
                        full.accept()[0].close()
                    except TimeoutError:
                        continue
                self.assertEqual(accepted, ["connected"])
            cluster.assert_identical()

    def test_many_are_served_on_when_the_primary_dies(self):
        """What was under way may be lost with it, as with any connection that breaks; nothing else is."""
        self.needs_replicas()

        def client(number):
            with Asker(cluster.address(1 + (first + number % 2) % 3)) as ask:  # not at the one that dies
                for turn in range(60):
                    text = f"{number}.{turn}"
                    while (answer := ask(f"get {text}")).split()[-1] != text:
                        self.assertIn(answer, ("ECONNRESET", "ECONNREFUSED"))
                    if number == 0 and turn == 20:
                        cluster.kill_craned(first)

        with Backend() as there, self.server(there.name()) as cluster:
            first = cluster.primary()
            together(*(lambda n=n: client(n) for n in range(6)))
            self.assertEqual(len(set(there.requests)), 360)
            self.assertLess(len(there.requests) - 360, 7)  # each client was in the midst of one at most
            self.await_back(cluster, first)
            asked = len(there.requests)
            self.assertLess(asked - 360, 7)
            cluster.assert_identical()
            self.assertEqual(len(there.requests), asked)

    def test_a_restart_of_all_asks_nothing_again(self):
        with Backend() as there, self.server(there.name()) as cluster:
            with Asker(cluster.address(1)) as ask:
                self.assertEqual(ask("keep one"), "1 one")
                self.assertEqual(ask("get two"), "2 two")
            cluster.stop()
            cluster.start_again()
            with Asker(cluster.address(1)) as ask:
                self.assertEqual(ask("keep three"), "3 three")
            self.assertEqual((there.connections, there.requests), (3, ["one", "two", "three"]))
            cluster.assert_identical()

    def test_the_next_server_connects_by_itself(self):
        with Backend() as there, self.server(there.name()) as cluster:
            with Asker(cluster.address(1)) as ask:
                self.assertEqual(ask("keep one"), "1 one")
            self.assertEqual(cluster.crane("restart").returncode, 0)
            wait_until(lambda: all(row["generation"] == 2 and row["server"] == "listening" for row in cluster.status().values()),
                       60, "the next server listens")
            wait_until(lambda: there.ended == 1, 10, "the old one's connection is ended")
            with Asker(cluster.address(1)) as ask:
                self.assertEqual(ask("keep two"), "2 two")
            self.assertEqual(there.connections, 2)
            cluster.assert_identical()

    def test_a_connection_outlives_the_images_of_the_backups(self):
        self.needs_replicas()
        self.needs_criu()
        with Backend() as there, self.server(there.name()) as cluster, Asker(cluster.address(cluster.primary())) as ask:
            self.assertEqual(ask("keep one"), "1 one")
            for victim in self.take(cluster):
                self.begin_there(cluster, victim)
                self.assertEqual(ask("keep again"), f"{len(there.requests)} again")
            self.assertEqual((there.connections, len(there.requests)), (1, 3))
            cluster.assert_identical()

    def test_it_is_refused_unless_it_is_let_out(self):
        with Backend() as there, self.crane(Asking, there.name()) as cluster, Asker(cluster.address(1)) as ask:
            self.assertEqual(ask("get one"), "ENETUNREACH")
            self.assertEqual(ask("get one"), "ENETUNREACH")
            cluster.assert_identical()
            for replica in cluster.living():
                self.assertEqual(self.log(cluster, replica).count(f"(connect to {there.name()})"), 1)
            self.assertEqual(there.connections, 0)

    def test_it_goes_where_it_is_allowed_to_alone(self):
        with Backend() as there, Backend() as elsewhere, \
                self.server(there.name(), "--egress-allow", there.name()) as cluster, Asker(cluster.address(1)) as ask:
            self.assertEqual(ask("get one"), "1 one")
            self.assertEqual(ask(f"port {elsewhere.server_address[1]}"), "ENETUNREACH")
            self.assertEqual(elsewhere.connections, 0)
            primary = cluster.primary()
            self.assertEqual(cluster.status()[primary]["egress"]["refused"], 1)
            self.assertIn(elsewhere.name(), self.log(cluster, primary))
            cluster.assert_identical()

    def test_a_redis_elsewhere(self):
        if not shutil.which("redis-server"):
            self.skipTest("no redis-server")
        self.needs_replicas()
        address, port, folder = own_address(), free_port(), work_dir("redis-elsewhere")
        redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", address, "--protected-mode", "no", "--save", "",
                                  "--dir", str(folder)], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: listening(address, port), 20, "redis listens")
            with self.server(f"{address}:{port}") as cluster:
                first = cluster.primary()
                with Asker(cluster.address(1 + first % 3)) as ask:
                    for number in range(1, 20):
                        self.assertEqual(ask("redis INCR counter"), f":{number}")
                    cluster.kill_craned(first)
                    self.assertEqual(ask("redis GET counter"), "19")
                    self.await_back(cluster, first)
                    self.assertEqual(ask("redis GET counter"), "19")
                cluster.assert_identical()
        finally:
            redis.terminate()
            redis.wait(10)
            shutil.rmtree(folder, ignore_errors=True)


# --- reverse proxies

class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_GET(self):
        with self.server.lock:
            self.server.requests.append(self.path)
        body = b"page " + self.path.encode() + b"\n" + b"x" * 100_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


NGINX = """\
daemon off;
user www-data;
pid {site}/nginx.pid;
error_log {site}/error.log;
worker_processes 2;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {site}/body; proxy_temp_path {site}/proxy; fastcgi_temp_path {site}/fastcgi;
    uwsgi_temp_path {site}/uwsgi; scgi_temp_path {site}/scgi;
    server {{
        listen 0.0.0.0:{port};
        location / {{ proxy_pass http://{there}; }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread 2
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    retries 3
    option redispatch
frontend web
    bind 0.0.0.0:{port}
    default_backend pages
backend pages
    option http-server-close
    server one {there}
"""


class ReverseProxy(Server):
    name = "reverse-proxy"
    container_port = 8090

    def __init__(self, program, there, port=None):
        self.program, self.there = program, there
        super().__init__(port)

    def prepare(self):
        text = NGINX if self.program == "nginx" else HAPROXY
        write(self.site / "proxy.conf", text.format(site=self.site, port=self.port, there=self.there))

    def command(self):
        if self.program == "nginx":
            return ["/usr/sbin/nginx", "-e", self.site / "error.log", "-c", self.site / "proxy.conf"]
        return ["/usr/sbin/haproxy", "-db", "-f", self.site / "proxy.conf"]


class ReverseProxies(CraneTest):
    lane = 3
    timeout_s = 240
    log, await_back = test_checkpoint.Checkpoint.log, test_checkpoint.Checkpoint.await_back

    def check(self, program):
        if not os.access(f"/usr/sbin/{program}", os.X_OK):
            self.skipTest(f"no {program}")
        if not own_address():
            self.skipTest("this host has no address but loopback")
        self.needs_replicas()

        def page(replica, number):
            answer = get(cluster.address(replica), f"/{number}")
            self.assertEqual(answer.status, "HTTP/1.1 200 OK")
            self.assertEqual(answer.body_bytes, len(b"page /%d\n" % number) + 100_000)

        with Backend(Pages) as there, self.crane(ReverseProxy, program, there.name(), options=["--egress", "primary"]) as cluster:
            together(*(lambda n=n: page(1 + n % 3, n) for n in range(12)))
            self.assertEqual(sorted(there.requests), sorted(f"/{n}" for n in range(12)))
            self.assertEqual(there.connections, 12)
            first = cluster.primary()
            cluster.kill_craned(first)
            for number in range(12, 20):
                page(1 + first % 3, number)
            self.await_back(cluster, first)
            page(first, 20)
            self.assertEqual(sorted(there.requests), sorted(f"/{n}" for n in range(21)))
            self.assertEqual(there.connections, 21)
            cluster.assert_identical()

    def test_nginx(self):
        self.check("nginx")

    def test_haproxy(self):
        self.check("haproxy")
