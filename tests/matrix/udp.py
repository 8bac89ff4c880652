"""Servers that speak by datagrams alone."""

import os
import re
import socket
import struct

from entry import TIMEOUT_S, Entry, client, once, write


def ask(address, words, more=None):
    """One datagram and its answer, asked for again each second: what is on the way when a replica is killed may be lost.

    `more(answer)` gives what is to be sent to where the answer came from, until it gives None.
    """
    heard = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(1)
        for _ in range(TIMEOUT_S):
            asked.sendto(words, address)
            try:
                answer, address = asked.recvfrom(65536)
            except TimeoutError:
                continue
            heard.append(answer)
            words = more(answer) if more else None
            if words is None:
                return heard, asked.getsockname(), address
    raise TimeoutError(f"no answer to {words[:40]!r} from {address}")


class Udp(Entry):
    protocol = "udp"


class Tftp(Udp):
    """Each transfer has a port of the server's own, from which the blocks come."""

    name, kind = "tftpd", "tftp"
    packages, programs = ("tftpd-hpa",), ("/usr/sbin/in.tftpd",)

    def prepare(self):
        for number in range(4):
            write(self.site / "files" / f"f{number}", f"{number} line\n" * 300)
        once("chmod", "-R", "a+rX", self.site)

    def command(self):
        return ["/usr/sbin/in.tftpd", "-L", "-4", "-a", f"0.0.0.0:{self.port}", "-s", self.site / "files", "-u", "root"]

    def check(self, address, number):
        text, blocks = b"", 0

        def acknowledge(block):
            nonlocal text, blocks
            operation, place = struct.unpack("!HH", block[:4])
            assert operation == 3, block
            if place == blocks + 1:  # one that was late comes twice
                text, blocks = text + block[4:], place
            return struct.pack("!HH", 4, place) if len(block) == 516 else None

        ask(address, b"\x00\x01f%d\x00octet\x00" % (number % 4), acknowledge)
        return text.decode()


class Atftpd(Tftp):
    """Threads that answer from a port each."""

    name = "atftpd"
    packages, programs = ("atftpd", "curl"), ("/usr/sbin/atftpd",)

    def command(self):
        return ["/usr/sbin/atftpd", "--daemon", "--no-fork", "--user", "root.root", "--bind-address", "0.0.0.0", "--port", self.port, self.site / "files"]

    def check(self, address, number):
        return client("curl", "-sS", "-m", TIMEOUT_S, f"tftp://{address[0]}:{address[1]}/f{number % 4}")


class Snmp(Udp):
    name, kind = "snmpd", "snmp"
    packages, programs = ("snmpd", "snmp"), ("/usr/sbin/snmpd",)

    def prepare(self):
        write(self.site / "snmpd.conf", f"agentaddress udp:0.0.0.0:{self.port}\nrocommunity public\nsyslocation here\nsyscontact me@crane.test\nsysname crane\n"
              "extend hello /bin/echo hello\n")

    def command(self):
        self.environment = {"SNMP_PERSISTENT_DIR": str(self.site)}
        return ["/usr/sbin/snmpd", "-f", "-C", "-c", self.site / "snmpd.conf", "-Lo", "-p", self.site / "pid"]

    def check(self, address, number):
        where = ["-v2c", "-c", "public", "-On", "-r", "20", "-t", "1", f"{address[0]}:{address[1]}"]
        names = [f".1.3.6.1.2.1.1.{4 + (number + turn) % 3}.0" for turn in range(3)]
        return client("snmpget", *where, *names) + client("snmpwalk", *where, ".1.3.6.1.4.1.8072.1.3.2.3.1.1")


class Radius(Udp):
    name, kind = "freeradius", "radius"
    packages, programs = ("freeradius", "freeradius-utils"), ("/usr/sbin/freeradius",)

    def prepare(self):
        write(self.site / "radiusd.conf", f"""\
prefix = /usr
logdir = {self.site}
raddbdir = /etc/freeradius/3.0
modconfdir = {self.site}
libdir = /usr/lib/freeradius
certdir = {self.site}
log {{ destination = stdout }}
security {{ max_attributes = 200
 reject_delay = 0 }}
thread pool {{ start_servers = 3
 max_servers = 8
 min_spare_servers = 2
 max_spare_servers = 5 }}
client all {{ ipaddr = 0.0.0.0/0
 secret = secret }}
modules {{
 pap {{
 }}
 files {{
  filename = {self.site}/users
 }}
}}
server default {{
 listen {{ type = auth
 ipaddr = 0.0.0.0
 port = {self.port} }}
 authorize {{
  files
  pap
 }}
 authenticate {{
  Auth-Type PAP {{
   pap
  }}
 }}
}}
""")
        write(self.site / "users", "".join(f'user{number} Cleartext-Password := "word{number}"\n  Reply-Message := "hello {number}"\n' for number in range(8)))

    def command(self):
        return ["/usr/sbin/freeradius", "-f", "-l", "stdout", "-d", self.site]

    def check(self, address, number):
        text = client("radclient", "-r", "20", "-t", "1", "-x", f"{address[0]}:{address[1]}", "auth", "secret",
                      data=f'User-Name = "user{number % 8}", User-Password = "word{number % 8}"\n')
        text += client("radclient", "-r", "20", "-t", "1", "-x", f"{address[0]}:{address[1]}", "auth", "secret",
                       data=f'User-Name = "user{number % 8}", User-Password = "wrong"\n', ok=(1,))
        return "\n".join(re.findall(r"(?:Reply-Message.*|Access-(?:Accept|Reject))", text))


class Turn(Udp):
    """STUN: what address a client comes from."""

    name, kind = "coturn", "stun"
    packages, programs = ("coturn",), ("/usr/bin/turnserver",)

    def command(self):
        return ["/usr/bin/turnserver", "-n", "-L", "0.0.0.0", "-p", self.port, "--no-tls", "--no-dtls", "--no-cli", "--log-file", "stdout", "--pidfile",
                self.site / "pid", "--no-tcp-relay", "-m", "2", "--db", self.site / "db"]

    def check(self, address, number):
        token = b"crane%07d" % number
        (answer,), own, _ = ask(address, struct.pack("!HHI", 1, 0, 0x2112A442) + token)
        kind, _, cookie = struct.unpack("!HHI", answer[:8])
        assert (kind, cookie, answer[8:20]) == (0x0101, 0x2112A442, token), answer
        place = answer.index(b"\x00\x20\x00\x08")  # XOR-MAPPED-ADDRESS
        port = struct.unpack("!H", answer[place + 6:place + 8])[0] ^ 0x2112
        return f"my own port: {port == own[1]}"


class Mumble(Entry):
    """Its ping by a datagram; sessions need a client of their own."""

    name, kind = "mumble-server", "voice"
    packages, programs = ("mumble-server",), ("/usr/sbin/murmurd",)
    together = 2

    def prepare(self):
        write(self.site / "murmur.ini", f"database={self.site}/db\nport={self.port}\nusers=20\nlogfile=\npidfile=\nbonjour=false\n")
        os.chmod(self.site, 0o777)

    def command(self):
        self.environment = {"QT_QPA_PLATFORM": "offscreen", "HOME": str(self.site)}
        return ["/usr/sbin/murmurd", "-fg", "-v", "-ini", self.site / "murmur.ini"]

    def check(self, address, number):
        (answer,), _, _ = ask(address, struct.pack("!IQ", 0, number))
        return f"{answer.hex()}"


class Sip(Udp):
    name, kind = "kamailio", "sip"
    packages, programs = ("kamailio",), ("/usr/sbin/kamailio",)

    def prepare(self):
        modules = "/usr/lib/x86_64-linux-gnu/kamailio/modules/"
        write(self.site / "kamailio.cfg", f"""\
#!KAMAILIO
debug=1
log_stderror=yes
fork=yes
children=3
listen=udp:0.0.0.0:{self.port}
mpath="{modules}"
loadmodule "sl.so"
loadmodule "pv.so"
loadmodule "siputils.so"
loadmodule "textops.so"
request_route {{
  sl_send_reply("200", "Fine $rU");
}}
""")
        os.chmod(self.site, 0o777)

    def command(self):
        return ["/usr/sbin/kamailio", "-DD", "-E", "-f", self.site / "kamailio.cfg", "-P", self.site / "pid", "-Y", self.site, "-m", "32", "-M", "4"]

    def check(self, address, number):
        words = (f"OPTIONS sip:user{number}@crane.test SIP/2.0\r\nVia: SIP/2.0/UDP client.crane.test;branch=z9hG4bK{number};rport\r\nMax-Forwards: 70\r\n"
                 f"From: <sip:a@crane.test>;tag={number}\r\nTo: <sip:user{number}@crane.test>\r\nCall-ID: {number}@crane.test\r\nCSeq: 1 OPTIONS\r\n"
                 "Content-Length: 0\r\n\r\n")
        (answer,), _, _ = ask(address, words.encode())
        return re.sub(r"rport=\d+|received=[\d.]+|tag=[0-9a-f.-]+", "~", answer.decode())
