"""Servers of datagrams (UDP): clients at any replica, failovers, replays, images, and real servers."""

import socket
import struct

from support.case import CraneTest, together
from support.procs import wait_until
from support.servers import Memcached, Program
from test_programs import ask
import test_checkpoint  # the module: a class by name would be run here again
import test_images

TRIES = 40


class Client:
    """Asks again when nothing comes, as clients of UDP do."""

    def __init__(self, address, timeout_s=0.5):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address)
        self.socket.settimeout(timeout_s)
        self.sent = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def __call__(self, text):
        """The number that the server gave it."""
        for _ in range(TRIES):
            self.socket.send(text)
            self.sent += 1
            try:
                while True:
                    number, _, back = self.socket.recv(65536).partition(b" ")
                    if back == text[:65507 - len(number) - 1]:
                        return int(number)
            except OSError:  # nothing came, or nobody has the port just now
                continue
        raise AssertionError(f"no answer to {text[:20]}")

    def silent(self):
        """Nothing that was sent before comes again."""
        self.socket.settimeout(0.3)
        try:
            return self.socket.recv(65536) == b""
        except TimeoutError:
            return True

GROUPS = """\
hops at first 1 1
hops set 0
too many -1 EINVAL
of IPv6 0
too many of IPv6 -1 EINVAL
hops now 9 9
loop 0
by 0.0.0.0 0
by 127.0.0.1 0
by 192.0.2.77 0
by 224.0.0.2 -1 EADDRNOTAVAIL
by 255.255.255.255 -1 EADDRNOTAVAIL
it is 127.0.0.1
by a number of none -1 EADDRNOTAVAIL
of IPv6 -1 ENODEV
no group -1 EINVAL
join 0
join again by request 0
half a request -1 EFAULT
heard 5 from 192.0.0.8
not heard: -1 EAGAIN
heard 5 from 192.0.0.8
to all 3
heard 3 from 192.0.0.8
to one 3
heard 3 from 127.0.0.1
leave 0
a second one at the port 0
its own address 192.0.0.8
"""


class Datagrams(CraneTest):
    lane = 1
    timeout_s = 240
    log, await_back = test_checkpoint.Checkpoint.log, test_checkpoint.Checkpoint.await_back
    take, begin_there = test_images.Images.take, test_images.Images.begin_there

    def setUp(self):
        super().setUp()
        self.built_program("datagram_server")

    def server(self, **options):
        return self.crane(Program, "datagram_server", **options)

    def test_clients_are_answered_where_they_ask(self):
        with self.server() as cluster:
            numbers = []
            for replica in range(1, cluster.replicas + 1):
                with Client(cluster.address(replica), 5) as client:
                    numbers += [client(b"one"), client(b""), client(b"x" * 65507)]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
            self.assertEqual(ask(cluster.address()), f"{len(numbers)}\n")
            self.assertNotIn("no byte of output", cluster.assert_identical())
            for row in cluster.status().values():
                self.assertEqual((row["datagrams"]["received"], row["datagrams"]["sent"]), (3, 3), row)

    def test_who_answers_from_a_port_of_its_own_is_heard_at_once(self):
        with self.server() as cluster, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            ports = set()
            for number in range(1, 51):
                client.sendto(b"apart %d" % number, cluster.address(1 + number % cluster.replicas))
                text, (_, port) = client.recvfrom(100)
                self.assertEqual(text, b"%d apart %d" % (number, number))
                ports.add(port)
            self.assertGreater(len(ports), 1)
            self.assertNotIn(cluster.address()[1], ports)
            cluster.assert_identical()

    def test_many_clients_at_once(self):
        def client_of(replica, number):
            with Client(cluster.address(replica), 5) as client:
                for turn in range(30):
                    client(b"%d of %d" % (turn, number))
                sent.append(client.sent)

        with self.server() as cluster:
            sent = []
            together(*(lambda n=n: client_of(1 + n % cluster.replicas, n) for n in range(12)))
            self.assertEqual(ask(cluster.address()), f"{sum(sent)}\n")
            cluster.assert_identical()

    def test_a_failover_costs_a_client_a_repetition_and_a_replay_sends_nothing_again(self):
        self.needs_replicas()
        with self.server() as cluster:
            first = cluster.primary()
            other = 1 + first % 3
            with Client(cluster.address(other)) as client, Client(cluster.address(first)) as its_own:
                before = [client(b"%d" % n) for n in range(20)]
                its_own(b"at the primary")
                cluster.kill_craned(first)
                after = [client(b"%d" % n) for n in range(20)]
                self.assertEqual(sorted(set(before + after)), before + after)
                self.await_back(cluster, first)
                self.assertTrue(its_own.silent())
                self.assertGreater(its_own(b"again"), after[-1])
                self.assertTrue(client.silent())
            cluster.assert_identical()

    def test_a_server_out_of_an_image_hears_and_answers(self):
        self.needs_replicas()
        self.needs_criu()
        with self.server() as cluster:
            with Client(cluster.address(cluster.primary())) as client:
                last = client(b"before")
                for victim in self.take(cluster):
                    self.begin_there(cluster, victim)
                    with Client(cluster.address(victim)) as there:
                        self.assertEqual(there(b"there"), last + there.sent)
                        last += there.sent
            cluster.assert_identical()

    def test_memcached(self):
        """A real server, by the protocol that it has for datagrams."""
        class Both(Memcached):
            def command(self):
                words = super().command()
                words[words.index("-U") + 1] = self.port
                return words

        with self.crane(Both) as cluster:
            with socket.create_connection(cluster.address()) as tcp:
                tcp.sendall(b"set key 0 0 5\r\nvalue\r\n")
                self.assertEqual(tcp.recv(64), b"STORED\r\n")
            for replica in range(1, cluster.replicas + 1):
                udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                with udp:
                    udp.settimeout(5)
                    udp.connect(cluster.address(replica))
                    udp.send(struct.pack(">HHHH", 77, 0, 1, 0) + b"get key\r\n")
                    answer = udp.recv(65536)
                self.assertEqual(answer, struct.pack(">HHHH", 77, 0, 1, 0) + b"VALUE key 0 5\r\nvalue\r\nEND\r\n")
            cluster.assert_identical()

    def test_groups_are_the_servers_own(self):
        self.built_program("groups")
        with self.crane(Program, "groups") as cluster:
            for _ in range(2):
                self.assertEqual(ask(cluster.address()), GROUPS)
            self.assertIn("multicast", cluster.report())
            cluster.assert_identical()

    def test_nobody_is_sent_a_datagram_unasked(self):
        self.built_program("datagrams_out")
        with self.crane(Program, "datagrams_out") as cluster:
            self.assertEqual(ask(cluster.address()), "to the outside 1\nto a name server -1 ENETUNREACH\nconnected -1 ENETUNREACH\n"
                             "to a group 1\na name is not found\n")
            wait_until(lambda: all(row["datagrams"]["unasked"] == 1 for row in cluster.status().values()), 10, "counted")
            for words in ("nothing goes to the outside by itself", "a question from the server to a name server outside (192.0.2.1:53)"):
                self.assertIn(words, cluster.report())
            cluster.assert_identical()
