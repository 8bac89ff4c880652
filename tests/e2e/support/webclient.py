"""A small HTTP/1.1 client over a bare socket: it can do what well-behaved libraries will not."""

import hashlib
import socket
import time

TIMEOUT_S = 60


class Reply:
    def __init__(self, status, headers, body_bytes, digest, body):
        self.status = status
        self.headers = headers  # list of (name, value), in the order sent
        self.body_bytes = body_bytes
        self.digest = digest
        self.body = body  # kept only when small

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def comparable(self, without=("date",)):
        """What must be equal to another server's reply; header order included."""
        kept = tuple((k, v) for k, v in self.headers if k.lower() not in without)
        return self.status, kept, self.body_bytes, self.digest


class Connection:
    """One client connection; `pace_s` and `chunk` make it a slow reader or writer."""

    def __init__(self, address, timeout_s=TIMEOUT_S, receive_buffer=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with RST, as an aborted client does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    # --- sending --------------------------------------------------------------------------------

    def send(self, data, chunk=None, pace_s=0.0):
        for at in range(0, len(data), chunk or max(1, len(data))):
            self.socket.sendall(data[at : at + (chunk or len(data))])
            if pace_s:
                time.sleep(pace_s)

    def request(self, method, path, body=None, headers=(), chunked=False, **pacing):
        self.send_request(method, path, body, headers, chunked, **pacing)
        return self.reply(method)

    def send_request(self, method, path, body=None, headers=(), chunked=False, **pacing):
        self.send(build_request(method, path, body, headers, chunked), **pacing)

    # --- receiving ------------------------------------------------------------------------------

    def _more(self):
        data = self.socket.recv(self.read_chunk)
        if self.read_pace_s:
            time.sleep(self.read_pace_s)
        self._buffer += data
        return bool(data)

    read_chunk = 256 * 1024
    read_pace_s = 0.0

    def _line(self):
        while b"\r\n" not in self._buffer:
            if not self._more():
                raise ConnectionError(f"closed within a line; have {self._buffer[:80]!r}")
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def reply(self, method="GET"):
        while True:
            status = self._line().decode()
            headers = []
            while line := self._line().decode("latin-1"):
                name, _, value = line.partition(":")
                headers.append((name, value.strip()))
            if status.split()[1] != "100":
                break
        names = {name.lower(): value for name, value in headers}
        sink = _Sink()
        if method == "HEAD" or status.split()[1] in ("204", "304"):
            pass
        elif names.get("transfer-encoding", "").lower() == "chunked":
            self._chunks(sink)
        elif "content-length" in names:
            self._exactly(int(names["content-length"]), sink)
        else:
            while self._buffer or self._more():
                sink.add(self._buffer)
                self._buffer = b""
        return Reply(status, headers, sink.count, sink.hash.hexdigest(), bytes(sink.head))

    def _exactly(self, count, sink):
        while count:
            if not self._buffer and not self._more():
                raise ConnectionError(f"closed {count} bytes before the end of the body")
            part = self._buffer[:count]
            self._buffer = self._buffer[len(part) :]
            count -= len(part)
            sink.add(part)

    def _chunks(self, sink):
        while size := int(self._line().split(b";")[0], 16):
            self._exactly(size, sink)
            self._line()
        while self._line():
            pass

    def at_end(self):
        """True if the server has closed its side."""
        return not self._buffer and not self._more()


class _Sink:
    KEPT_BYTES = 64 * 1024

    def __init__(self):
        self.count = 0
        self.hash = hashlib.sha256()
        self.head = bytearray()

    def add(self, data):
        self.count += len(data)
        self.hash.update(data)
        if len(self.head) < self.KEPT_BYTES:
            self.head += data[: self.KEPT_BYTES - len(self.head)]


def build_request(method, path, body=None, headers=(), chunked=False):
    lines = [f"{method} {path} HTTP/1.1", "Host: crane.test:8000", *headers]
    if body is None:
        return "\r\n".join(lines + ["", ""]).encode()
    if not chunked:
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines + ["", ""]).encode() + body
    lines.append("Transfer-Encoding: chunked")
    out = "\r\n".join(lines + ["", ""]).encode()
    at, size = 0, 1
    while at < len(body):  # chunks of growing, odd sizes
        part = body[at : at + size]
        out += f"{len(part):x}\r\n".encode() + part + b"\r\n"
        at += len(part)
        size = min(size * 3 + 1, 40000)
    return out + b"0\r\n\r\n"


def get(address, path, **options):
    with Connection(address, **options) as connection:
        return connection.request("GET", path)


def wait_serving(address, path="/", timeout_s=30):
    """Until a GET is answered; for servers that listen before they can serve."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return get(address, path, timeout_s=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
