"""Servers that fewer hosts have."""

import os
import pickle
import re
import signal
import socket
import struct

from entry import PYTHON, TIMEOUT_S, Entry, client, http, once, talk, write
from files import Ftp
from mail import Irc
from names import ZONE, Dns
from udp import Udp, ask


class Yaws(Entry):
    name, kind = "yaws", "erlang"
    packages, programs = ("yaws", "curl"), ("/usr/bin/yaws",)

    def prepare(self):
        write(self.site / "files" / "index.html", "<p>some page</p>\n" * 100)
        write(self.site / "files" / "now.yaws", "<html><erl>\nout(A) ->\n {ok, Q} = queryvar(A, \"n\"),\n {html, [\"you asked for \", Q]}.\n</erl></html>\n")
        (self.site / "log").mkdir()
        write(self.site / "yaws.conf", f"logdir = {self.site}/log\nebin_dir = {self.site}\ninclude_dir = {self.site}\nid = some\n<server crane.test>\n port = {self.port}\n"
              f" listen = 0.0.0.0\n docroot = {self.site}/files\n</server>\n")
        self.environment = {"HOME": str(self.site), "CRANE_PAUSE": "real"}

    def command(self):
        return ["/usr/bin/yaws", "-i", "--conf", self.site / "yaws.conf", "--erlarg", "-noinput", "--erlarg", "+S 1:1"]

    def check(self, address, number):
        return http(address, "/index.html") + http(address, f"/now.yaws?n={number}") + http(address, f"/none{number}", "-o", "/dev/null", "-w", "%{http_code}")


class LibWebSockets(Entry):
    name, kind = "libwebsockets", "web"
    packages, programs = ("libwebsockets-test-server", "curl"), ("/usr/bin/libwebsockets-test-server",)

    def command(self):
        return ["/usr/bin/libwebsockets-test-server", "-p", self.port]

    def check(self, address, number):
        return http(address, "/libwebsockets.org-logo.svg") + http(address, f"/none{number}", "-o", "/dev/null", "-w", "%{http_code}")


class Asgi(Entry):
    """One application, of two servers."""

    kind = "python"

    def prepare(self):
        write(self.site / "app.py", "async def app(scope, receive, send):\n    if scope['type'] != 'http':\n        return\n"
              "    body = b''\n    while True:\n        part = await receive()\n        body += part.get('body', b'')\n        if not part.get('more_body'):\n            break\n"
              "    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/plain')]})\n"
              "    await send({'type': 'http.response.body', 'body': scope['path'].encode() + b' %d\\n' % len(body)})\n")
        self.environment = {"PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"}

    def check(self, address, number):
        return http(address, f"/some/{number}") + http(address, "/much", "--data-binary", "x" * (1000 + number * 37))


class Daphne(Asgi):
    name = "daphne"
    packages, programs = ("daphne", "curl"), ("/usr/bin/daphne",)

    def command(self):
        return ["/usr/bin/daphne", "-b", "0.0.0.0", "-p", self.port, "app:app"]


class Hypercorn(Asgi):
    name = "hypercorn"
    packages, programs = ("python3-hypercorn", "curl"), ("/usr/bin/hypercorn",)

    def command(self):
        return ["/usr/bin/hypercorn", "-b", f"0.0.0.0:{self.port}", "-w", "2", "app:app"]


class CherryPy(Entry):
    name, kind = "cherrypy", "python"
    packages, programs = ("python3-cherrypy3", "curl"), ("/usr/lib/python3/dist-packages/cherrypy/__init__.py",)

    def prepare(self):
        write(self.site / "app.py", "import cherrypy\n\n\nclass App:\n    @cherrypy.expose\n    def index(self, n='0'):\n        cherrypy.session['n'] = n\n        return 'you asked for ' + n\n\n\n"
              f"cherrypy.config.update({{'server.socket_host': '0.0.0.0', 'server.socket_port': {self.port}, 'tools.sessions.on': True, 'engine.autoreload.on': False}})\n"
              "cherrypy.quickstart(App())\n")

    def command(self):
        return [PYTHON, self.site / "app.py"]

    def check(self, address, number):
        return http(address, f"/?n={number}") + http(address, f"/none{number}", "-o", "/dev/null", "-w", "%{http_code}")


class Yadifa(Dns):
    name = "yadifa"
    packages, programs = ("yadifa", "bind9-dnsutils"), ("/usr/sbin/yadifad",)

    def configure(self):
        write(self.site / "zone", ZONE.replace("IN SOA ns hostmaster", "IN SOA ns.crane.test. hostmaster.crane.test."))
        for name in ("keys", "xfr", "log"):
            (self.site / name).mkdir()
        write(self.site / "yadifad.conf", f"<main>\n daemon off\n chroot off\n uid 0\n gid 0\n datapath \"{self.site}\"\n keyspath \"{self.site}/keys\"\n xfrpath \"{self.site}/xfr\"\n"
              f" logpath \"{self.site}/log\"\n pidfile \"{self.site}/pid\"\n listen 0.0.0.0\n port {self.port}\n server-port {self.port}\n thread-count-by-address 1\n</main>\n"
              "<channels>\n all log.txt 0644\n</channels>\n<loggers>\n * err all\n</loggers>\n"
              f"<zone>\n type primary\n domain crane.test\n file \"{self.site}/zone\"\n allow-transfer any\n</zone>\n")

    def command(self):
        return ["/usr/sbin/yadifad", "-c", self.site / "yadifad.conf", "--nodaemon"]


class Recursor(Dns):
    name, transfer = "pdns-recursor", False
    volatile = r"\t3[56]\d\d\t"  # what it keeps of itself grows older
    packages, programs = ("pdns-recursor", "bind9-dnsutils"), ("/usr/sbin/pdns_recursor",)

    def configure(self):
        write(self.site / "recursor.conf", f"local-address=0.0.0.0\nlocal-port={self.port}\nauth-zones=crane.test={self.site}/zone\nsocket-dir={self.site}\nthreads=2\n"
              "daemon=no\nsecurity-poll-suffix=\ndisable-syslog=yes\nallow-from=0.0.0.0/0\nwrite-pid=no\n")

    def command(self):
        return ["/usr/sbin/pdns_recursor", f"--config-dir={self.site}"]


class Rbldnsd(Udp):
    name, kind = "rbldnsd", "dns"
    packages, programs = ("rbldnsd", "bind9-dnsutils"), ("/usr/sbin/rbldnsd",)

    def prepare(self):
        write(self.site / "listed", ":127.0.99.2:listed here\n" + "".join(f"10.0.{number}.0/28\n" for number in range(200)))
        once("chmod", "-R", "a+rX", self.site)

    def command(self):
        return ["/usr/sbin/rbldnsd", "-n", "-b", f"0.0.0.0/{self.port}", "-u", "nobody", "-w", self.site, "bl.crane.test:ip4set:listed"]

    def check(self, address, number):
        words = ["dig", "-b", f"127.78.{number // 250}.{number % 250 + 1}", "+notcp", "+tries=1", "+time=20", "+noall", "+answer", "+comments", f"@{address[0]}", "-p", address[1]]
        return re.sub(r"id: \d+", "", client(*words, f"3.{number % 200}.0.10.bl.crane.test", "A") + client(*words, f"99.{number % 200}.0.10.bl.crane.test", "TXT"))


class Carbon(Entry):
    """Graphite's: values by one port, asked for by another, in files that it makes."""

    name, kind = "carbon", "time series"
    packages, programs = ("graphite-carbon",), ("/usr/bin/carbon-cache",)
    query = 7033

    def prepare(self):
        for name in ("whisper", "log", "pid"):
            (self.site / name).mkdir()
        write(self.site / "storage-schemas.conf", "[all]\npattern = .*\nretentions = 60s:1d\n")
        write(self.site / "carbon.conf", f"[cache]\nLOCAL_DATA_DIR = {self.site}/whisper\nLOG_DIR = {self.site}/log\nPID_DIR = {self.site}/pid\nSTORAGE_DIR = {self.site}\nCONF_DIR = {self.site}\n"
              f"LINE_RECEIVER_INTERFACE = 0.0.0.0\nLINE_RECEIVER_PORT = {self.port}\nENABLE_UDP_LISTENER = False\nPICKLE_RECEIVER_PORT = 0\nCACHE_QUERY_INTERFACE = 0.0.0.0\n"
              f"CACHE_QUERY_PORT = {self.query}\nMAX_UPDATES_PER_SECOND = 1\nUSER =\n")

    def command(self):
        return ["/usr/bin/carbon-cache", f"--config={self.site}/carbon.conf", "--debug", "--nodaemon", "start"]

    def check(self, address, number):
        with socket.create_connection(address, TIMEOUT_S) as lines:
            lines.sendall("".join(f"some.m{number}.v{turn} {turn} 100000{turn}\n" for turn in range(20)).encode())
            lines.shutdown(socket.SHUT_WR)
            assert lines.recv(10) == b""
        with socket.create_connection((address[0], self.query), TIMEOUT_S) as asked:
            words = pickle.dumps({"type": "get-metadata", "metric": "some.none", "key": "none"}, protocol=2)
            asked.sendall(struct.pack("!I", len(words)) + words)
            size = struct.unpack("!I", asked.recv(4, socket.MSG_WAITALL))[0]
            return str(pickle.loads(asked.recv(size, socket.MSG_WAITALL)))


class Nbd(Entry):
    """A disk: a process for each client."""

    name, kind = "nbd-server", "block device"
    packages, programs = ("nbd-server", "qemu-utils"), ("/usr/bin/nbd-server", "/usr/bin/qemu-io")

    def prepare(self):
        (self.site / "disk").write_bytes(b"\0" * (16 << 20))
        write(self.site / "config", f"[generic]\n port = {self.port}\n listenaddr = 0.0.0.0\n allowlist = true\n[disk]\n exportname = {self.site}/disk\n")

    def command(self):
        # In the foreground it would serve one client.
        return ["/bin/sh", "-c", " ".join(self.replicated_command()) + "; exec sleep 1000"]

    def replicated_command(self):
        return ["/usr/bin/nbd-server", "-C", f"{self.site}/config", "-p", f"{self.site}/pid"]

    def remove(self):
        """Natively it is in a session of its own."""
        if (self.site / "pid").exists():
            os.kill(int((self.site / "pid").read_text()), signal.SIGKILL)
        super().remove()

    def check(self, address, number):
        place = number % 250 * 65536
        words = [f"write -P {number % 255} {place} 20480", f"read -P {number % 255} {place} 20480", f"read -P 0 {place + 32768} 4096"]
        text = client("qemu-io", "-f", "raw", *(word for one in words for word in ("-c", one)), f"nbd://{address[0]}:{address[1]}/disk")
        return "\n".join(line for line in text.splitlines() if "sec" not in line)


class Tgt(Entry):
    """A target of iSCSI, told what to serve by a client of its own over a unix socket."""

    name, kind = "tgt", "block device"
    packages, programs = ("tgt", "libiscsi-bin"), ("/usr/sbin/tgtd", "/usr/bin/iscsi-ls")

    def prepare(self):
        self.environment = {"TGT_IPC_SOCKET": str(self.site / "socket")}
        (self.site / "disk").write_bytes(b"some words\n" * 100000 + b"\0" * 48576)

    def command(self):
        told = "/usr/sbin/tgtadm --lld iscsi --mode"
        return ["/bin/sh", "-c", f"(until {told} target --op new --tid 1 -T iqn.2020-01.test.crane:disk 2> /dev/null; do sleep 0.1; done; "
                f"{told} logicalunit --op new --tid 1 --lun 1 -b {self.site}/disk; {told} target --op bind --tid 1 -I ALL) & "
                f"exec /usr/sbin/tgtd -f -t 2 --iscsi portal=0.0.0.0:{self.port}"]

    def check(self, address, number):
        where = f"iscsi://{address[0]}:{address[1]}"
        disk = f"{where}/iqn.2020-01.test.crane:disk/1"
        return client("iscsi-ls", where + "/") + client("iscsi-inq", disk) + client("iscsi-readcapacity16", disk)


class Nrpe(Entry):
    """A process for each question, which begins another one."""

    name, kind = "nrpe", "monitoring"
    packages, programs = ("nagios-nrpe-server", "nagios-nrpe-plugin"), ("/usr/sbin/nrpe", "/usr/lib/nagios/plugins/check_nrpe")

    def prepare(self):
        write(self.site / "nrpe.cfg", f"server_port={self.port}\nserver_address=0.0.0.0\nnrpe_user=nobody\nnrpe_group=nogroup\nallowed_hosts=127.0.0.0/8\npid_file={self.site}/pid\n"
              + "".join(f"command[say{number}]=/bin/echo some words {number}\ncommand[count{number}]=/usr/bin/seq 1 {number}\n" for number in range(1, 20)))
        os.chmod(self.site, 0o777)

    def command(self):
        return ["/usr/sbin/nrpe", "-c", self.site / "nrpe.cfg", "-f"]

    def check(self, address, number):
        words = ["/usr/lib/nagios/plugins/check_nrpe", "-H", address[0], "-p", address[1], "-t", TIMEOUT_S, "-c"]
        return client(*words, f"say{number % 19 + 1}") + client(*words, f"count{number % 19 + 1}")


class Zabbix(Entry):
    """Processes that wait in accept() beside each other, and one that measures."""

    name, kind = "zabbix-agent", "monitoring"
    packages, programs = ("zabbix-agent",), ("/usr/sbin/zabbix_agentd",)

    def prepare(self):
        write(self.site / "conf", f"ListenPort={self.port}\nListenIP=0.0.0.0\nServer=0.0.0.0/0\nLogType=console\nPidFile={self.site}/pid\nStartAgents=4\nHostname=some\n"
              "AllowRoot=1\nUnsafeUserParameters=1\nUserParameter=said[*],echo words $1\n")

    def command(self):
        return ["/usr/sbin/zabbix_agentd", "-f", "-c", self.site / "conf"]

    def check(self, address, number):
        def asked(key):
            words = key.encode()
            heard = b""
            with socket.create_connection(address, TIMEOUT_S) as connection:
                connection.sendall(b"ZBXD\x01" + struct.pack("<Q", len(words)) + words)
                while data := connection.recv(4096):
                    heard += data
            return heard[13:].decode(errors="replace") + "\n"

        return "".join(asked(key) for key in ("agent.ping", "agent.hostname", f"said[{number}]", "vfs.file.exists[/etc/passwd]", f"none{number}"))


class Sentinel(Entry):
    """Watches a Redis of its own."""

    name, kind = "redis-sentinel", "key-value"
    packages, programs = ("redis-sentinel", "redis-tools"), ("/usr/bin/redis-sentinel",)

    def prepare(self):
        write(self.site / "sentinel.conf", f"port {self.port}\nbind 0.0.0.0\nprotected-mode no\ndir {self.site}\nsentinel monitor some 127.0.0.1 7034 1\nsentinel down-after-milliseconds some 5000\n")

    def command(self):
        return ["/bin/sh", "-c", f"/usr/bin/redis-server --port 7034 --save '' --daemonize no > /dev/null & until /usr/bin/redis-cli -p 7034 ping > /dev/null 2>&1; do sleep 0.1; done; "
                f"exec /usr/bin/redis-sentinel {self.site}/sentinel.conf"]

    def check(self, address, number):
        return client("redis-cli", "-h", address[0], "-p", address[1], data=f"PING\nSENTINEL get-master-addr-by-name some\nSENTINEL get-master-addr-by-name none{number}\nSENTINEL CKQUORUM some\n")


class Ser2Net(Entry):
    """What connections share comes back to whoever is there: so one at a time."""

    name, kind = "ser2net", "terminals"
    together = 1
    packages, programs = ("ser2net",), ("/usr/sbin/ser2net",)

    def prepare(self):
        write(self.site / "ser2net.yaml", f"connection: &echo\n  accepter: tcp,0.0.0.0,{self.port}\n  connector: echo\n  options:\n    max-connections: 60\n")

    def command(self):
        return ["/usr/sbin/ser2net", "-n", "-c", self.site / "ser2net.yaml"]

    def check(self, address, number):
        return talk(address, *[(f"line {number} {turn}\n", rf"line {number} {turn}\n") for turn in range(6)])


class Ident(Entry):
    name, kind = "oidentd", "ident"
    packages, programs = ("oidentd",), ("/usr/sbin/oidentd",)

    def prepare(self):
        write(self.site / "conf", "default {\n default {\n  deny spoof\n }\n}\n")

    def command(self):
        return ["/usr/sbin/oidentd", "-i", "-S", "-q", "-p", self.port, "-u", "nobody", "-g", "nogroup", "-C", self.site / "conf", "-e"]

    def check(self, address, number):
        return talk(address, (f"{number + 1} , {number + 2}\r\n", r"\n"))


class Nats(Entry):
    name, kind, refused = "nats", "go", "Go"
    packages, programs = ("nats-server",), ("/usr/sbin/nats-server",)

    def command(self):
        return ["/usr/sbin/nats-server", "-p", self.port]


class Bip(Entry):
    name, kind = "bip", "irc bouncer"
    packages, programs = ("bip",), ("/usr/bin/bip",)

    def prepare(self):
        write(self.site / "bip.conf", f'ip = "0.0.0.0";\nport = {self.port};\nclient_side_ssl = false;\nlog_level = 1;\nlog_root = "{self.site}";\npid_file = "{self.site}/pid";\nlog_system = false;\n'
              'network {\n name = "some";\n server { host = "127.0.0.1"; port = 9; };\n};\nuser {\n name = "me";\n password = "3880f2b39b3b9cb507b052b695d2680859bfc327";\n'
              ' admin = true;\n connection {\n  name = "some";\n  network = "some";\n  user = "me";\n  nick = "me";\n  realname = "me";\n };\n};\n')

    def command(self):
        return ["/usr/bin/bip", "-n", "-f", self.site / "bip.conf", "-s", self.site]

    def check(self, address, number):
        return talk(address, (f"NICK n{number}\r\nUSER u{number} 0 * :some\r\n", r"\n"))


class Chrony(Udp):
    """Its own clock is what it serves; it does not set any."""

    name, kind = "chrony", "time"
    packages, programs = ("chrony",), ("/usr/sbin/chronyd",)

    def prepare(self):
        write(self.site / "conf", f"port {self.port}\nlocal stratum 7\nallow all\ncmdport 0\nbindaddress 0.0.0.0\nuser root\npidfile {self.site}/pid\nbindcmdaddress /\n")

    def command(self):
        return ["/usr/sbin/chronyd", "-d", "-x", "-f", self.site / "conf"]

    def check(self, address, number):
        (answer,), _, _ = ask(address, b"\x23" + b"\0" * 39 + struct.pack("!II", 7, number))
        return f"{answer[:2].hex()} {answer[24:32] == struct.pack('!II', 7, number)}"


class ProFtpd(Ftp):
    """A process for each session, which keeps a table of all sessions that they share."""

    name = "proftpd"
    packages, programs = ("proftpd-core",), ("/usr/sbin/proftpd",)

    def prepare(self):
        self.pages()
        once("chmod", "-R", "a+rX", self.site)
        write(self.site / "proftpd.conf", f"ServerName some\nServerType standalone\nPort {self.port}\nUseIPv6 off\nUser nobody\nGroup nogroup\nPidFile {self.site}/pid\nScoreboardFile {self.site}/board\n"
              f"DelayTable none\nDelayEngine off\nSystemLog none\nWtmpLog off\nTransferLog none\nUseReverseDNS off\nUseFtpUsers off\nDefaultAddress 0.0.0.0\n<Anonymous {self.site}/files>\n User nobody\n Group nogroup\n"
              " UserAlias anonymous nobody\n RequireValidShell off\n</Anonymous>\n")

    def command(self):
        return ["/usr/sbin/proftpd", "-n", "-q", "-c", self.site / "proftpd.conf"]


class IrcdHybrid(Irc):
    """Looks up the name of each client, and waits for the answer for long where there is no name server."""

    name = "ircd-hybrid"
    needs = "`egress = \"primary\"`, or each client waits for 12 s, as natively on a host without a network: it asks a name server for the client's name"
    packages, programs = ("ircd-hybrid",), ("/usr/sbin/ircd-hybrid",)

    def prepare(self):
        write(self.site / "ircd.conf", 'serverinfo { name = "irc.crane.test"; sid = "0HY"; description = "some"; network_name = "Test"; hub = no; default_max_clients = 512; };\n'
              f'listen {{ port = {self.port}; host = "0.0.0.0"; }};\nclass {{ name = "users"; ping_time = 5 minutes; number_per_ip_local = 500; number_per_ip_global = 500; max_number = 500; sendq = 1 megabyte; '
              'cidr_bitlen_ipv4 = 24; number_per_cidr = 500; };\nauth { user = "*@*"; class = "users"; flags = exceed_limit, no_tilde; };\n'
              "general { disable_auth = yes; throttle_count = 10000; throttle_time = 1 second; pace_wait_simple = 0 seconds; pace_wait = 0 seconds; no_oper_flood = no; };\n"
              "channel { default_join_flood_count = 0; };\n")
        write(self.site / "motd", "some words\n")
        once("sh", "-c", f"chown -R irc {self.site} && chmod -R a+rX {self.site}")

    def command(self):
        return ["/usr/sbin/runuser", "-u", "irc", "--", "/usr/sbin/ircd-hybrid", "-foreground", "-configfile", self.site / "ircd.conf", "-klinefile", self.site / "kline", "-dlinefile", self.site / "dline",
                "-xlinefile", self.site / "xline", "-resvfile", self.site / "resv", "-logfile", self.site / "log", "-pidfile", self.site / "pid"]
