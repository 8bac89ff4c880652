"""What hands connections on: to a Redis behind it, or to a program for each of them."""

import re
import socket
import struct

from entry import TIMEOUT_S, Entry, client, http, once, talk, write
from stores import Sql

BEHIND = 7031


class Relay(Entry):
    """To a Redis of its own."""

    kind = "relay"

    def relay(self):
        raise NotImplementedError

    def command(self):
        return ["/bin/sh", "-c", f"/usr/bin/redis-server --port {BEHIND} --save '' --daemonize no --dir {self.site} > /dev/null & "
                f"until /usr/bin/redis-cli -p {BEHIND} ping > /dev/null 2>&1; do sleep 0.1; done; exec {self.relay()}"]

    def check(self, address, number):
        return talk(address, *[(f"{words}\r\n", r"\r\n") for words in (f"SET k{number} {number}", f"APPEND k{number} {'x' * 900}", f"STRLEN k{number}", f"GETRANGE k{number} 0 5")])


class Rinetd(Relay):
    name = "rinetd"
    packages, programs = ("rinetd", "redis-server"), ("/usr/sbin/rinetd",)

    def prepare(self):
        write(self.site / "rinetd.conf", f"0.0.0.0 {self.port} 127.0.0.1 {BEHIND}\n")

    def relay(self):
        return f"/usr/sbin/rinetd -f -c {self.site}/rinetd.conf"


class Redir(Relay):
    name = "redir"
    packages, programs = ("redir", "redis-server"), ("/usr/bin/redir",)

    def relay(self):
        return f"/usr/bin/redir -n :{self.port} 127.0.0.1:{BEHIND}"


class SimpleProxy(Relay):
    name = "simpleproxy"
    packages, programs = ("simpleproxy", "redis-server"), ("/usr/bin/simpleproxy",)

    def relay(self):
        return f"/usr/bin/simpleproxy -L 0.0.0.0:{self.port} -R 127.0.0.1:{BEHIND}"


class Stone(Relay):
    name = "stone"
    packages, programs = ("stone", "redis-server"), ("/usr/bin/stone",)

    def relay(self):
        return f"/usr/bin/stone 127.0.0.1:{BEHIND} {self.port}"


class Dante(Relay):
    """SOCKS 5; its mother, and children for each stage of a session, which pass connections on."""

    name, kind = "dante", "proxy"
    packages, programs = ("dante-server", "redis-server", "curl"), ("/usr/sbin/danted",)

    def prepare(self):
        write(self.site / "danted.conf", f"logoutput: stderr\ninternal: 0.0.0.0 port = {self.port}\nexternal: lo\nsocksmethod: none\nclientmethod: none\nuser.privileged: root\n"
              "user.unprivileged: nobody\nclient pass { from: 0/0 to: 0/0 }\nsocks pass { from: 0/0 to: 0/0 }\n")

    def relay(self):
        return f"/usr/sbin/danted -f {self.site}/danted.conf -p {self.site}/pid"

    def check(self, address, number):
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(b"\x05\x01\x00")
            heard = connection.recv(2).hex()
            connection.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack("!H", BEHIND))
            heard += connection.recv(10)[:4].hex()
            for turn in range(4):
                connection.sendall(f"SET k{number} {turn}\r\n".encode())
                heard += connection.recv(100).decode()
            return heard


class Websockify(Relay):
    """A process for each session."""

    name, kind = "websockify", "proxy"
    packages, programs = ("websockify", "redis-server", "curl"), ("/usr/bin/websockify",)

    def prepare(self):
        write(self.site / "index.html", "<p>some page</p>\n")

    def relay(self):
        return f"/usr/bin/websockify --web {self.site} 0.0.0.0:{self.port} 127.0.0.1:{BEHIND}"

    def check(self, address, number):
        heard = http(address, "/index.html") + talk(address, (
            "GET /websockify HTTP/1.1\r\nHost: some\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: Y3JhbmUgY3JhbmUgY3JhbmU=\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: binary\r\n\r\n", r"\r\n\r\n"), *[(self.frame(f"SET k{number} {turn}\r\n".encode()), r"OK\r\n") for turn in range(3)])
        return re.sub(r"Date:.*", "", heard)

    @staticmethod
    def frame(words):
        """With a mask of zeroes."""
        return b"\x82" + bytes([0x80 + len(words)]) + bytes(4) + words


class Pgpool(Sql):
    """Between its clients and a PostgreSQL of its own, with processes that wait in accept() beside each other."""

    name, kind = "pgpool2", "sql proxy"
    packages, programs = ("pgpool2", "postgresql", "postgresql-client"), ("/usr/sbin/pgpool",)

    def prepare(self):
        super().prepare()
        (self.site / "pool").mkdir()
        write(self.site / "pgpool.conf", f"listen_addresses = '*'\nport = {self.port}\npcp_listen_addresses = ''\nsocket_dir = '{self.site}/pool'\npcp_socket_dir = '{self.site}/pool'\n"
              f"backend_hostname0 = '{self.site}'\nbackend_port0 = 6000\nbackend_clustering_mode = 'raw'\nnum_init_children = 44\nmax_pool = 1\nenable_pool_hba = off\n"
              f"pid_file_name = '{self.site}/pool/pid'\nlogdir = '{self.site}/pool'\nsr_check_period = 0\nhealth_check_period = 0\n")
        once("chmod", "-R", "777", self.site / "pool")

    def command(self):
        database = [str(word) for word in self.as_owner("postgres", "-D", self.site / "data", "-p", 6000, "-c", f"unix_socket_directories={self.site}", "-c",
                                                       "listen_addresses=")]
        return ["/bin/sh", "-c", f"{' '.join(database)} & until /usr/bin/pg_isready -q -h {self.site} -p 6000; do sleep 0.1; done; "
                f"exec /usr/sbin/runuser -u postgres -- /usr/sbin/pgpool -n -f {self.site}/pgpool.conf -a {self.site}/none -F {self.site}/none"]


# --- a program for each connection

class Gophernicus(Entry):
    """Begun by tcpsvd."""

    name, kind = "gophernicus", "gopher"
    crowd = 10  # each request begins some fifteen programs
    packages, programs = ("gophernicus", "ipsvd", "curl"), ("/usr/sbin/gophernicus", "/usr/bin/tcpsvd")

    def prepare(self):
        (self.site / "files").mkdir()
        for number in range(4):
            write(self.site / "files" / f"f{number}.txt", f"{number} some line\n" * 200)
        once("chmod", "-R", "a+rX", self.site)

    def command(self):
        return ["/usr/bin/tcpsvd", "-c", "60", "-u", "nobody", "-l", "crane.test", "0.0.0.0", self.port, "/usr/sbin/gophernicus", "-h", "crane.test", "-r", self.site / "files", "-nf", "-nu", "-nv", "-nx", "-nm"]

    def check(self, address, number):
        return "".join(client("curl", "-sS", "-m", TIMEOUT_S, f"gopher://{address[0]}:{address[1]}/0/{name}") for name in (f"f{number % 4}.txt", f"none{number}"))


class MicroHttpd(Entry):
    """Begun by tcpserver."""

    name, kind = "micro-httpd", "web"
    packages, programs = ("micro-httpd", "ucspi-tcp", "curl"), ("/usr/sbin/micro-httpd", "/usr/bin/tcpserver")

    def prepare(self):
        (self.site / "files").mkdir()
        for number in range(4):
            write(self.site / "files" / f"f{number}.html", f"<p>{number} some line\n" * 200)

    def command(self):
        return ["/usr/bin/tcpserver", "-H", "-R", "-c", "60", "0", self.port, "/usr/sbin/micro-httpd", self.site / "files"]

    def check(self, address, number):
        return http(address, f"/f{number % 4}.html") + http(address, f"/none{number}")


class Tang(Entry):
    """Keys of a host's disks by HTTP; begun by tcpserver."""

    name, kind = "tang", "keys"
    packages, programs = ("tang", "ucspi-tcp", "curl"), ("/usr/libexec/tangd", "/usr/bin/tcpserver")

    def prepare(self):
        (self.site / "keys").mkdir()
        once("/usr/libexec/tangd-keygen", self.site / "keys")
        once("chmod", "-R", "a+rX", self.site)

    def command(self):
        return ["/usr/bin/tcpserver", "-H", "-R", "-c", "60", "0", self.port, "/usr/libexec/tangd", self.site / "keys"]

    def check(self, address, number):
        known = http(address, "/adv", "-o", "/dev/null", "-w", "%{http_code} %{content_type}")
        return known + http(address, f"/adv/none{number}", "-o", "/dev/null", "-w", "%{http_code}")


class Cvs(Entry):
    """Its pserver, begun by tcpserver."""

    name, kind = "cvs", "version control"
    packages, programs = ("cvs", "ucspi-tcp"), ("/usr/bin/cvs", "/usr/bin/tcpserver")
    volatile = r"^(date:|Mod-time|M RCS file|/f\d).*"

    def prepare(self):
        once("cvs", "-d", self.site / "repository", "init")
        write(self.site / "repository" / "CVSROOT" / "passwd", "anyone::nobody\n")
        write(self.site / "work" / "file", "some text\n" * 50)
        once("sh", "-c", f"cd {self.site}/work && cvs -d {self.site}/repository import -m some project vendor start")
        once("chmod", "-R", "777", self.site / "repository")

    def command(self):
        return ["/usr/bin/tcpserver", "-H", "-R", "-c", "60", "0", self.port, "/usr/bin/cvs", "-f", f"--allow-root={self.site}/repository", "pserver"]

    def check(self, address, number):
        root = f":pserver:anyone:@{address[0]}:{address[1]}{self.site}/repository"
        environment = {"CVS_PASSFILE": "/dev/null", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        return client("cvs", "-d", root, "checkout", "-p", "project/file", environment=environment, error=False)
