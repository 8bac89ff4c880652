"""Clients that mean no good. Each attack is one round, repeated until the end, and says how often it was made.

An attack knows nobody's state: whatever the server or Crane answers (a refusal, a reset, nothing) is no error of it.
"""

import random
import socket
import struct
import threading
import time

from support.redisclient import encode

MIB = 1 << 20
# For as long as a server is down or a primary is missing, attackers try again no faster than this.
PAUSE_S = 0.2


class Attacker(threading.Thread):
    """Repeats one attack on replicas chosen at random until `stop` is set."""

    def __init__(self, attack, addresses, seed, stop):
        super().__init__(daemon=True, name=attack.__name__)
        self.attack, self.addresses, self.stop = attack, addresses, stop
        self.random = random.Random(f"{attack.__name__} {seed}")
        self.rounds = 0  # in which at least one connection was made, however they ended

    def run(self):
        while not self.stop.is_set():
            self.connected = False
            try:
                self.attack(self)
            except OSError:
                self.stop.wait(PAUSE_S)
            self.rounds += self.connected

    def connect(self, timeout_s=5, receive_buffer_bytes=0):
        client = socket.socket()
        client.settimeout(timeout_s)
        if receive_buffer_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            client.connect(self.random.choice(self.addresses))
        except OSError:
            client.close()
            raise
        self.connected = True
        return client

    def connect_many(self, count, **options):
        clients = []
        try:
            for _ in range(count):
                clients.append(self.connect(**options))
        except OSError:
            if not clients:
                raise
        return clients


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def reset_all(clients):
    for client in clients:
        reset(client)


def read_to_end(client):
    count = 0
    while data := client.recv(65536):
        count += len(data)
    return count


def upload(attacker, client, head, total_bytes):
    """As fast as it is taken, for at most a minute."""
    block, sent, begin = attacker.random.randbytes(MIB), 0, time.monotonic()
    client.sendall(head)
    while sent < total_bytes and not attacker.stop.is_set() and time.monotonic() - begin < 60:
        client.sendall(block)
        sent += len(block)


def storm(attacker):
    """5,000 connections, as fast as they can be begun, half of them reset before they are answered."""
    clients = []
    address = attacker.random.choice(attacker.addresses)
    for number in range(5000):
        client = socket.socket()
        client.setblocking(False)
        try:
            client.connect(address)
        except BlockingIOError:
            pass
        except OSError:
            client.close()
            continue
        attacker.connected = True
        if number % 2:
            reset(client)
        else:
            clients.append(client)
        if len(clients) >= 500:
            reset_all(clients)
            clients = []
    reset_all(clients)
    attacker.stop.wait(attacker.random.uniform(2, 8))


def reset_soon(attacker, count, request):
    """Answers that are thrown away as soon as they are on their way."""
    clients = attacker.connect_many(count)
    for client in clients:
        client.sendall(request)
    attacker.stop.wait(attacker.random.uniform(0, 0.1))
    reset_all(clients)
    attacker.stop.wait(PAUSE_S)


def never_read(attacker, count, requests):
    """Large answers that nobody reads."""
    clients = attacker.connect_many(count, receive_buffer_bytes=4096)
    for client in clients:
        client.sendall(requests)
    attacker.stop.wait(attacker.random.uniform(1, 8))
    reset_all(clients)


def half_close(attacker, request):
    with attacker.connect(timeout_s=20) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        read_to_end(client)


# --- HTTP


def http_resets(attacker):
    reset_soon(attacker, 5, b"GET /1m.bin HTTP/1.1\r\nHost: x\r\n\r\n")


def http_deaf(attacker):
    never_read(attacker, 8, b"GET /64m.bin HTTP/1.1\r\nHost: x\r\n\r\n" * 3)


def http_half_close(attacker):
    half_close(attacker, b"GET /1m.bin HTTP/1.0\r\nHost: x\r\n\r\n")


def http_loris(attacker):
    """Headers that come a byte at a time."""
    clients = attacker.connect_many(10)
    for byte in b"GET /10k.bin HTTP/1.1\r\nHost: x\r\nX-Slow: 1":
        for client in clients:
            client.send(bytes([byte]))
        if attacker.stop.wait(0.5):
            break
    reset_all(clients)


def http_upload(attacker):
    with attacker.connect(timeout_s=20) as client:
        upload(attacker, client, b"POST /cgi/eat HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (1024 * MIB),
               1024 * MIB)
        client.recv(1000)


def http_crash(attacker):
    """A script that is killed by a signal; one that kills the server's process that runs it."""
    path = attacker.random.choice([b"abort", b"overflow", b"parent"])
    with attacker.connect(timeout_s=20) as client:
        client.sendall(b"GET /cgi/%s HTTP/1.0\r\nHost: x\r\n\r\n" % path)
        read_to_end(client)
    attacker.stop.wait(PAUSE_S)


# --- Redis


def redis_resets(attacker):
    reset_soon(attacker, 10, encode(("GET", "big")))


def redis_deaf(attacker):
    """As much as Redis itself can well keep for its clients."""
    never_read(attacker, 25, encode(("GET", "big")) * 4)


def redis_half_close(attacker):
    half_close(attacker, encode(("GET", "big")))


def redis_loris(attacker):
    clients = attacker.connect_many(50)
    for byte in encode(("SET", "slow", "x" * 20)):
        for client in clients:
            client.send(bytes([byte]))
        if attacker.stop.wait(0.3):
            break
    reset_all(clients)


def redis_upload(attacker):
    """One value of 500 MiB that is never whole, then many that are."""
    with attacker.connect(timeout_s=20) as client:
        upload(attacker, client, b"*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n$%d\r\n" % (500 * MIB), 100 * MIB)
        reset(client)
    with attacker.connect(timeout_s=20) as client:
        for _ in range(30):
            client.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % MIB + attacker.random.randbytes(MIB) + b"\r\n")
        client.recv(100)


def redis_fork(attacker):
    """A forked child of the server that is busy, and a new one before it has ended."""
    with attacker.connect(timeout_s=20) as client:
        client.sendall(encode(("BGSAVE",)))
        client.recv(100)
    attacker.stop.wait(2)


HTTP = [storm, http_loris, http_resets, http_deaf, http_upload, http_half_close, http_crash]
REDIS = [storm, redis_loris, redis_resets, redis_deaf, redis_upload, redis_half_close, redis_fork]
