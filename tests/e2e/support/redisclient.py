"""A minimal Redis client that reconnects only when told to."""

import socket


class RedisError(Exception):
    pass


class Redis:
    def __init__(self, address, timeout_s=120):
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self.socket.close()

    def send(self, *words):
        self.socket.sendall(encode(words))

    def reply(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._exactly(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        raise ConnectionError(f"not a Redis reply: {line!r}")

    def _exactly(self, count):
        data = self._file.read(count)
        if len(data) != count:
            raise ConnectionError("the server closed the connection")
        return data

    def __call__(self, *words):
        self.send(*words)
        answer = self.reply()
        if isinstance(answer, RedisError):
            raise answer
        return answer


def encode(words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(out)
