"""A threaded server that asks another one, elsewhere: a line from a client, a line back.

usage: egress_server.py PORT HOST:PORT      (of the other one)

  get TEXT      by a connection of its own
  keep TEXT     by a connection that is kept, and made again when it has broken
  try TEXT      by a socket that does not wait, with poll
  half TEXT     sends, shuts down its side, and reads to the end
  big N         N bytes there and back
  udp TEXT      by a datagram
  port N        connects there instead, and says how that went
  within MS N   the same, with a time limit
  redis WORDS   a command of Redis' protocol, by a connection that is kept
  name HOST     the host's addresses
  old HOST      the same, by gethostbyname
"""

import errno
import select
import socket
import socketserver
import sys
import threading

HOST, PORT = sys.argv[2].rsplit(":", 1)
THERE = (HOST, int(PORT))
kept, lock = {}, threading.Lock()


def line_of(connection):
    answer = b""
    while not answer.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "ended")
        answer += piece
    return answer.decode().strip()


def asked(connection, text):
    connection.sendall(text.encode() + b"\n")
    return line_of(connection)


def by_kept(what, ask):
    """Of one connection for all threads; one that has broken is made again."""
    with lock:
        for last in (False, True):
            try:
                if what not in kept:
                    kept[what] = socket.create_connection(THERE)
                return ask(kept[what])
            except OSError:
                kept.pop(what).close() if what in kept else None
                if last:
                    raise


def without_waiting(text):
    connection = socket.socket()
    connection.setblocking(False)
    began = connection.connect_ex(THERE)
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    poll.poll()
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    local, peer = connection.getsockname()[1] != 0, connection.getpeername() == THERE
    connection.setblocking(True)
    return f"{errno.errorcode[began]} {error} {local} {peer} {asked(connection, text)}"


def half(text):
    with socket.create_connection(THERE) as connection:
        connection.sendall(b"half " + text.encode() + b"\n")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        return answer.decode().strip()


def big(count):
    with socket.create_connection(THERE) as connection:
        connection.sendall(b"big %d\n" % count)
        writer = threading.Thread(target=connection.sendall, args=(b"x" * count,))
        writer.start()
        got = 0
        while got < count:
            got += len(connection.recv(65536))
        writer.join()
        return str(got)


def by_datagram(text):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(THERE)
        one.settimeout(1)
        for _ in range(20):
            one.send(text.encode())
            try:
                return one.recv(2048).decode()
            except TimeoutError:
                continue
        return "nothing"


def outcome(port, timeout=None):
    try:
        socket.create_connection((HOST, port), timeout).close()
        return "connected"
    except TimeoutError:
        return "timed out"
    except OSError as error:
        return errno.errorcode[error.errno]


def redis(words):
    def ask(connection):
        connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        answer = line_of(connection)
        if answer[0] != "$" or answer == "$-1":
            return answer
        _, _, rest = answer.partition("\r\n")
        return rest or line_of(connection)
    return by_kept("redis", ask)


def addresses(host):
    try:
        return " ".join(sorted({info[4][0] for info in socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)}))
    except socket.gaierror as error:
        return f"error {error.errno}"


def old_addresses(host):
    try:
        return " ".join(socket.gethostbyname_ex(host)[2])
    except (socket.gaierror, socket.herror) as error:
        return f"error {error.errno}"


WAYS = {"keep": lambda text: by_kept("line", lambda connection: asked(connection, text)), "try": without_waiting, "half": half,
        "big": lambda text: big(int(text)), "udp": by_datagram, "port": lambda text: outcome(int(text)),
        "within": lambda text: outcome(int(text.split()[1]), int(text.split()[0]) / 1000),
        "redis": lambda text: redis(text.split()), "name": addresses, "old": old_addresses}


def get(text):
    with socket.create_connection(THERE) as connection:
        return asked(connection, text)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            way, _, text = line.decode().strip().partition(" ")
            try:
                answer = WAYS.get(way, get)(text)
            except OSError as error:
                answer = errno.errorcode.get(error.errno, str(error))
            self.wfile.write(answer.encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


Server(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
