"""What each server of the matrix is: how it is started, and what its usual client does with it."""

import os
import re
import shutil
import socket
import subprocess

from support.paths import PYTHON, WORK_PARENT, free_port
from support.servers import Server, write

TIMEOUT_S = 30  # of each step of a client
__all__ = ["PYTHON", "TIMEOUT_S", "Entry", "client", "http", "once", "talk", "write"]


class Entry(Server):
    """A server with its client.

    `check(address, number)` is one session; its answer depends on `number` alone, so that the same number gives the same
    answer natively and under Crane, in whatever order sessions come. What does not (dates, ids) is named in `volatile`.
    The server has the same port and the same folder both times.
    """

    kind = "?"
    protocol = "tcp"  # by which it is seen to be ready
    packages = ()
    programs = ()  # without these files there is nothing to try
    volatile = None
    options = ()  # of crane-run
    refused = ""  # what must be said of a server that cannot be run at all
    together = 3  # clients at once under disturbance; 1: they get in each other's way
    crowd = 40  # and without one
    needs = ""  # what an operator has to set for it, for the reader

    def __init__(self, port):  # pylint: disable=super-init-not-called
        self.port = port
        self.environment = {}
        self.site = WORK_PARENT / f"crane-matrix-{self.name}-{os.getpid()}"  # others may try the same beside this
        self.remove()
        self.site.mkdir(mode=0o755)
        self.prepare()

    @classmethod
    def fresh_port(cls):
        return free_port()

    def check(self, address, number):
        raise NotImplementedError

    def replicated_command(self):
        """Under Crane: natively, a server that puts itself into the background would be lost."""
        return self.command()

    def answer(self, address, number):
        text = self.check(address, number)
        for host in {address[0], "127.0.0.1"}:
            text = text.replace(host, "HOST")
        text = text.replace(str(address[1]), "PORT").replace(str(self.port), "PORT")
        return re.sub(self.volatile, "~", text, flags=re.MULTILINE) if self.volatile else text

    def remove(self):
        shutil.rmtree(self.site, ignore_errors=True)


def client(*words, data="", ok=(0,), cwd="/", environment=None, error=True):
    """Runs a client program; what it said, or a failure that shows it."""
    words = [str(word) for word in words]
    done = subprocess.run(words, input=data.encode(), stdout=subprocess.PIPE, cwd=cwd, env=environment, timeout=TIMEOUT_S,
                          stderr=subprocess.STDOUT if error else subprocess.DEVNULL, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode in ok, f"{' '.join(words)} exited with {done.returncode}: {text[-1000:]}"
    return text


def once(*words, data=None):
    """A command that prepares something."""
    done = subprocess.run([str(word) for word in words], input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
                          timeout=120, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}"
    return done.stdout


def talk(address, *steps, tls=None):
    """A conversation: each step is (what to send, what to wait for, a regular expression); all that was heard."""
    heard = ""
    with socket.create_connection(address, TIMEOUT_S) as connection:
        if tls:
            connection = tls.wrap_socket(connection, server_hostname="crane.test")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for words, until in steps:
            if words:
                connection.sendall(words if isinstance(words, bytes) else words.encode())
            part = ""
            while not re.search(until, part, re.MULTILINE | re.DOTALL):
                data = connection.recv(65536)
                assert data, f"the server closed after {heard[-300:]!r} {part!r}; it was to say {until!r}"
                part += data.decode("latin-1")
            heard += part
    return heard


def http(address, path, *options, scheme="http"):
    """curl, with the headers that stay the same."""
    text = client("curl", "-sS", "-i", "-m", TIMEOUT_S, *options, f"{scheme}://{address[0]}:{address[1]}{path}")
    return "\n".join(line for line in text.replace("\r", "").splitlines()
                     if not re.match(r"(?i)(date|last-modified|etag|expires|age|x-varnish|set-cookie):", line))
