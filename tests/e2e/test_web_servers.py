"""nginx (master with workers, and single), lighttpd, CivetWeb, and Python's ThreadingHTTPServer under Crane."""

import json

from support.case import CraneTest, together
from support.paths import Settings
from support.servers import CivetWeb, Lighttpd, Nginx, NginxSingle, PythonCounter
from support.webclient import Connection, get
from test_apache import BODY, WRITTEN_HEADERS, aborted_clients, slow_reader


def static_requests(address, methods=("GET", "HEAD")):
    seen = []

    def exchange(method, path, headers=()):
        """On the kept connection; on a new one once the server has closed it."""
        nonlocal kept
        try:
            reply = kept.request(method, path, headers=headers)
        except ConnectionError:
            seen.append("closed")
            kept.close()
            kept = Connection(address)
            reply = kept.request(method, path, headers=headers)
        seen.append((method, path, reply.comparable(("date",))))

    kept = Connection(address)
    try:
        for path in ("/", "/10k.bin", "/missing", "/1m.bin", "/10k.bin"):
            for method in methods:
                exchange(method, path)
        exchange("GET", "/1m.bin", ["Range: bytes=5-70000"])
    finally:
        kept.close()
    with Connection(address) as connection:
        reply = connection.request("GET", "/10k.bin", headers=["Connection: close"])
        seen.append(("close", "", reply.comparable(("date",)), connection.at_end()))
    return seen


class WebServers(CraneTest):
    lane = 3

    def load(self, cluster, path, clients=8, kinds=([], ["-k"])):
        count = 100 if Settings.quick else 500
        host, port = cluster.address()
        for keep_alive in kinds:
            text = self.tool("ab", "-q", "-l", *keep_alive, "-n", count, "-c", clients, f"http://{host}:{port}{path}")
            self.assertRegex(text, r"Failed requests:\s+0\b")
            self.assertRegex(text, rf"Complete requests:\s+{count}\b")

    def check_static(self, server):
        with self.native(server) as native:
            expected = static_requests(native.address())
        with self.crane(server) as cluster:
            self.assertEqual(static_requests(cluster.address()), expected)
            self.load(cluster, "/10k.bin")
            address = cluster.address()
            together(lambda: slow_reader(address), lambda: aborted_clients(address, 20, Settings.seed),
                     lambda: [get(address, "/1m.bin") for _ in range(10)])
            self.assertEqual(get(address, "/64m.bin").body_bytes, 64 * 1024 * 1024)
            cluster.assert_identical()

    def test_nginx_master_and_workers(self):
        self.check_static(Nginx)

    def test_nginx_reloads(self):
        """Its processes talk over a pair that tells the master of each word by a signal of the kernel's."""
        with self.crane(Nginx) as cluster:
            for _ in range(3):
                self.assertEqual(get(cluster.address(), "/10k.bin").status, "HTTP/1.1 200 OK")
                reloaded = cluster.crane("signal", 1)
                self.assertEqual(reloaded.returncode, 0, reloaded.stdout)
            for _ in range(20):
                self.assertEqual(get(cluster.address(), "/10k.bin").status, "HTTP/1.1 200 OK")
            rows = cluster.status()
            self.assertEqual([(row["generation"], row["counters"]["domain_restarts"]) for row in rows.values()], [(1, 0)] * 3)
            cluster.assert_identical()

    def test_nginx_single(self):
        self.check_static(NginxSingle)

    def test_civetweb(self):
        self.check_static(CivetWeb)

    def test_lighttpd(self):
        self.check_static(Lighttpd)

    def test_lighttpd_scripts(self):
        with self.crane(Lighttpd) as cluster:

            def scripts():
                for n in range(5 if Settings.quick else 20):
                    with Connection(cluster.address()) as connection:
                        reply = connection.request("POST", f"/page.sh?{n}", BODY[: 1000 * n])
                        head = f"POST {n}\n".encode()
                        self.assertEqual(reply.body_bytes, len(head) + 1000 * n)
                        self.assertTrue(reply.body.startswith(head))

            together(*[scripts] * 4)
            cluster.assert_identical()

    def test_nginx_puts(self):
        with self.crane(NginxSingle) as cluster:
            for size in (0, 1, 4097, 16_385, 300_001):
                with Connection(cluster.address()) as connection:
                    put = connection.request("PUT", f"/dav/f{size}", BODY[:size])
                    self.assertIn(put.status.split()[1], ("201", "204"))
                    reply = connection.request("GET", f"/dav/f{size}")
                    self.assertEqual((reply.body_bytes, len(reply.comparable(WRITTEN_HEADERS))), (size, 4))
            cluster.assert_identical()

    def test_python_counter(self):
        clients, rounds = (4, 20) if Settings.quick else (8, 60)
        with self.crane(PythonCounter) as cluster:

            def count():
                return [json.loads(get(cluster.address(), "/add").body)["counter"] for _ in range(rounds)]

            seen = sum(together(*[count] * clients), [])
            self.assertEqual(sorted(seen), list(range(1, clients * rounds + 1)))  # each value once: no lost update
            self.load(cluster, "/add", kinds=([],))  # it does not answer ab's way of asking for keep-alive
            with Connection(cluster.address()) as connection:
                echoed = connection.request("POST", "/echo", BODY)
                self.assertEqual(echoed.body_bytes, len(BODY))
            random_reply = get(cluster.address(), "/entropy")
            self.assertIn("200", random_reply.status)
            cluster.assert_identical()
