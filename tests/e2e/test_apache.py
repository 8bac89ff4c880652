"""Debian's Apache under Crane: replicas byte-identical, answers equal to the native server's but for time."""

import contextlib
import random
import socket
import time

from support.case import CraneTest, together
from support.disturb import Disturber
from support.outputs import differing_answers
from support.paths import Settings
from support.servers import Apache
from support.webclient import Connection, get, wait_serving

BODY = random.Random(3).randbytes(300_001)
ODD_SIZES = [0, 1, 2, 1447, 1448, 1449, 4095, 8191, 8193, 65_537, 300_001]
TIME_HEADERS = ("date",)
# A file that was PUT has the time of its writing in both of these.
WRITTEN_HEADERS = ("date", "etag", "last-modified")


def scripted_requests(address):
    """One client after the other, so that two servers see the same; [(what, comparable reply)]."""
    seen = []

    def record(what, reply, without=TIME_HEADERS):
        seen.append((what, reply.comparable(without)))

    with Connection(address) as kept:  # keep-alive
        for path in ("/", "/10k.bin", "/compute.lua?1", "/missing", "/1m.bin", "/dav", "/10k.bin"):
            record(f"GET {path}", kept.request("GET", path))
        record("HEAD", kept.request("HEAD", "/1m.bin"))
        record("range", kept.request("GET", "/1m.bin", headers=["Range: bytes=1000-200999"]))
        record("gzip", kept.request("GET", "/", headers=["Accept-Encoding: gzip"]))
        record("OPTIONS", kept.request("OPTIONS", "/dav/"))
    for size in ODD_SIZES:
        with Connection(address) as connection:
            path = f"/dav/size{size}"
            record(f"PUT {size}", connection.request("PUT", path, BODY[:size]))
            record(f"GET put {size}", connection.request("GET", path), WRITTEN_HEADERS)
            record(f"PUT chunked {size}", connection.request("PUT", path, BODY[:size], chunked=True))
            record(f"GET chunked {size}", connection.request("GET", path), WRITTEN_HEADERS)
            record(f"POST {size}", connection.request("POST", "/compute.lua?1", BODY[:size]))
            record(f"DELETE {size}", connection.request("DELETE", path))
    with Connection(address) as connection:
        record("PUT with 100-continue", connection.request("PUT", "/dav/c", b"abc", ["Expect: 100-continue"]))
        record("HTTP/1.0 style close", connection.request("GET", "/10k.bin", headers=["Connection: close"]))
        seen.append(("closed by the server", connection.at_end()))
    with Connection(address) as connection:  # pipelined
        connection.send_request("GET", "/10k.bin")
        connection.send_request("GET", "/compute.lua?1")
        connection.send_request("GET", "/")
        for place in range(3):
            record(f"pipelined {place}", connection.reply())
    with Connection(address) as connection:
        connection.send(b"NONSENSE\r\n\r\n")
        seen.append(("bad request", connection.reply().status))  # its page names the port, which differs
    with Connection(address) as connection:  # half-close: the server still answers
        connection.send_request("GET", "/10k.bin", headers=["Connection: close"])
        connection.socket.shutdown(socket.SHUT_WR)
        record("half-closed", connection.reply())
    return seen


def slow_reader(address, path="/1m.bin", chunk=20_000, pace_s=0.01):
    with Connection(address, receive_buffer=8192) as connection:
        connection.read_chunk, connection.read_pace_s = chunk, pace_s
        return connection.request("GET", path)


def slow_writer(address, path, size=20_000):
    with Connection(address) as connection:
        return connection.request("PUT", path, BODY[:size], chunk=997, pace_s=0.02)


def aborted_clients(address, count, seed):
    """Clients that vanish: at once, within the request, within the answer; by FIN and by RST."""
    rng = random.Random(seed)
    for _ in range(count):
        connection = Connection(address)
        stage = rng.randrange(4)
        if stage == 1:
            connection.send(b"GET /1m.bin HTTP/1.1\r\nHo")
        elif stage == 2:
            connection.send_request("GET", "/1m.bin")
            connection.socket.recv(rng.randrange(1, 5000))
        elif stage == 3:
            connection.send(b"PUT /dav/aborted HTTP/1.1\r\nHost: crane.test\r\nContent-Length: 9000\r\n\r\nxyz")
        (connection.reset if rng.randrange(2) else connection.close)()


class ApacheTest(CraneTest):
    lane = 1
    timeout_s = 240

    def test_answers_equal_native(self):
        with self.native(Apache) as native:
            wait_serving(native.address())
            expected = scripted_requests(native.address())
        with self.crane(Apache) as cluster:
            found = scripted_requests(cluster.address())
            for (what, wanted), (_, got) in zip(expected, found):
                self.assertEqual(got, wanted, what)
            self.assertEqual(len(found), len(expected))
            cluster.assert_identical()

    def test_any_replica_serves_clients(self):
        with self.crane(Apache) as cluster:
            replies = [get(cluster.address(n), "/10k.bin") for n in range(1, cluster.replicas + 1)]
            self.assertEqual(len({reply.comparable() for reply in replies}), 1)
            cluster.assert_identical()

    def test_date_and_etag_are_current_and_equal(self):
        with self.crane(Apache) as cluster:
            host, port = cluster.address()
            with Connection((host, port)) as connection:
                connection.request("PUT", "/dav/page", b"a page")
                page = connection.request("GET", "/dav/page")
            sent = time.mktime(time.strptime(page.header("Date"), "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
            self.assertLess(abs(time.time() - sent), 5, f"Date is {page.header('Date')}: far from real time")
            written = time.mktime(time.strptime(page.header("Last-Modified"), "%a, %d %b %Y %H:%M:%S GMT"))
            self.assertLess(abs(time.time() - (written - time.timezone)), 5, "Last-Modified is far from real time")
            self.assertTrue(page.header("ETag"))
            cluster.assert_identical()

    def test_thousand_computing_requests(self):
        requests = 200 if Settings.quick else 1000
        with self.crane(Apache) as cluster:
            host, port = cluster.address()
            text = self.tool("ab", "-q", "-n", requests, "-c", 8, f"http://{host}:{port}/compute.lua", timeout_s=200)
            self.assertRegex(text, rf"Complete requests:\s+{requests}\b")
            self.assertRegex(text, r"Failed requests:\s+0\b")
            self.assertNotIn("Non-2xx", text)
            self.note(f"{requests} requests at concurrency 8: " + find(text, "Requests per second"))
            cluster.assert_identical()

    def test_files_of_all_sizes(self):
        with self.crane(Apache) as cluster:
            host, port = cluster.address()
            for path, count, clients, extra in (("10k.bin", 500, 8, ["-k"]), ("10k.bin", 200, 8, []),
                                                ("1m.bin", 40, 4, []), ("64m.bin", 2, 2, [])):
                text = self.tool("ab", "-q", *extra, "-n", count, "-c", clients, f"http://{host}:{port}/{path}")
                self.assertRegex(text, r"Failed requests:\s+0\b", path)
            cluster.assert_identical()

    def test_64_mb_arrives_whole(self):
        with self.native(Apache) as native:
            wait_serving(native.address())
            expected = get(native.address(), "/64m.bin").comparable()
        with self.crane(Apache) as cluster:
            self.assertEqual(get(cluster.address(), "/64m.bin").comparable(), expected)
            cluster.assert_identical()

    def test_aborted_and_slow_clients(self):
        with self.crane(Apache) as cluster:
            address = cluster.address()
            results = together(
                lambda: slow_reader(address), lambda: slow_reader(address, "/10k.bin", 500, 0.02),
                lambda: slow_writer(address, "/dav/slow1"), lambda: slow_writer(address, "/dav/slow2", 5_001),
                lambda: aborted_clients(address, 40, Settings.seed),
                lambda: [get(address, "/compute.lua?1") for _ in range(50)])
            self.assertEqual(results[0].body_bytes, 1024 * 1024)
            self.assertEqual(results[1].body_bytes, 10 * 1024)
            self.assertEqual(get(address, "/dav/slow1").body_bytes, 20_000)
            self.assertEqual(get(address, "/dav/slow2").body_bytes, 5_001)
            cluster.assert_identical()

    def test_idle_connections_take_no_worker(self):
        with self.crane(Apache) as cluster, contextlib.ExitStack() as idle:
            for _ in range(300):  # more than Apache's 150 workers; it asks for TCP_DEFER_ACCEPT
                idle.enter_context(Connection(cluster.address()))
            self.assertEqual(get(cluster.address(), "/10k.bin").body_bytes, 10 * 1024)
            if not Settings.native:
                self.assertLess(cluster.status()[1]["connections"], 10)
            cluster.assert_identical()

    def test_reader_that_stops_does_not_stop_others(self):
        with self.crane(Apache) as cluster:
            with Connection(cluster.address(), receive_buffer=4096) as stuck:
                stuck.send_request("GET", "/64m.bin")
                for _ in range(20):
                    self.assertEqual(get(cluster.address(), "/10k.bin").body_bytes, 10 * 1024)
            cluster.assert_identical()

    def test_shipped_configuration_through_apachectl(self):
        self.needs_replicas()
        with self.crane(ShippedApache) as cluster:
            reply = wait_serving(cluster.address())
            self.assertIn("200", reply.status)
            cluster.assert_identical()


class ShippedApache(Apache):
    """Nothing copied, nothing added: what `apachectl` starts on a freshly installed Debian."""

    def command(self):
        return ["/usr/sbin/apachectl", "-DFOREGROUND"]


def put_and_get(address, page, body):
    """The paper's micro-benchmark: PUT and GET of one page at the same moment."""

    def put():
        with Connection(address) as connection:
            return connection.request("PUT", page, body).status

    return together(put, lambda: get(address, page))


class MicroBenchmark(CraneTest):
    """Section 7.2 of the paper."""

    lane = 1
    timeout_s = 300

    def rounds(self, cluster, count):
        """How often the GET saw: no page, the old one, the new one."""
        outcomes = {"missing": 0, "old": 0, "new": 0}
        for number in range(count):
            page = f"/dav/page{number // 2}"  # every second PUT creates, every other replaces
            body = b"%d:" % number + BODY[: 5000 + number]
            status, reply = put_and_get(cluster.address(), page, body)
            self.assertIn(status.split()[1], ("201", "204"))
            key = "missing" if " 404" in reply.status else "new" if reply.body.startswith(b"%d:" % number) else "old"
            outcomes[key] += 1
        return outcomes

    def test_concurrent_put_and_get_agree(self):
        count = 30 if Settings.quick else 100
        with self.crane(Apache) as cluster:
            for number in range(count // 10):
                outcomes = self.rounds(cluster, 10)
                cluster.assert_identical()
                if number == 0:
                    self.note(f"the GET saw, in the first 10 of {count} runs: {outcomes}")

    def test_divergence_without_time_bubbles(self):
        self.needs_replicas()
        with self.crane(Apache, options=["--no-time-bubble"]) as cluster:
            logs = [cluster.state / f"r{n}" / "output.log" for n in range(1, cluster.replicas + 1)]
            parted_after = None
            for number in range(10):
                with Disturber(cluster, Settings.seed + number):
                    self.rounds(cluster, 10)
                identical, text = cluster.diff()
                if not identical and parted_after is None:
                    parted_after = 10 * (number + 1)
                    self.assertIn("first difference", text)
                if differing_answers(logs)[0]:  # what a client would notice
                    break
            self.assertIsNotNone(parted_after, "100 runs without time bubbles and no divergence: the check cannot fail")
            different, total = differing_answers(logs)
            self.note(f"crane diff found a divergence within {parted_after} runs; after {10 * (number + 1)} runs "
                      f"{different} of {total} connections had been answered differently")


def find(text, start):
    return next((" ".join(line.split()) for line in text.splitlines() if line.startswith(start)), f"no '{start}'")
