"""Servers that were tried by chance, each for something that it does and that others had not done."""

import json
import os
import pathlib
import tempfile

from entry import Entry, client, http, once, talk, write


class OpenTracker(Entry):
    """Opens a list of peers that nobody named: a path that is null."""

    name, kind = "opentracker", "bittorrent"
    packages, programs = ("opentracker", "curl"), ("/usr/bin/opentracker",)

    def command(self):
        return ["/usr/bin/opentracker", "-p", self.port, "-P", self.port, "-d", "/"]

    def check(self, address, number):
        asked = f"/announce?info_hash={number:020d}&peer_id={number:020d}&port=1&left=1&uploaded=0&downloaded=0&compact=1"
        return http(address, asked) + http(address, "/none", "-o", "/dev/null", "-w", "%{http_code}")


class Netdata(Entry):
    """Some thirty threads that measure the machine, and children that do."""

    name, kind = "netdata", "monitoring"
    packages, programs = ("netdata-core", "curl"), ("/usr/sbin/netdata",)
    together, crowd = 2, 8

    def prepare(self):
        (self.site / "cache").mkdir()
        (self.site / "lib").mkdir()
        write(self.site / "netdata.conf", f"[global]\n run as user = root\n hostname = some\n[directories]\n cache = {self.site}/cache\n lib = {self.site}/lib\n"
              f" log = {self.site}\n home = {self.site}\n[db]\n mode = ram\n[plugins]\n apps = no\n go.d = no\n python.d = no\n charts.d = no\n"
              "[ml]\n enabled = no\n[web]\n bind to = 0.0.0.0\n")

    def command(self):
        return ["/usr/sbin/netdata", "-D", "-p", self.port, "-c", self.site / "netdata.conf"]

    def check(self, address, number):
        text = http(address, "/api/v1/info", "--fail", "--retry", "20", "--retry-delay", "1", "--retry-all-errors")  # it begins slowly
        known = json.loads(text[text.index("{"):])
        return json.dumps([known["version"], known["mirrored_hosts"]]) + http(address, f"/none{number}", "-o", "/dev/null", "-w", "%{http_code}")


class Dnsdist(Entry):
    name, kind = "dnsdist", "dns balancer"
    packages, programs = ("dnsdist", "bind9-dnsutils"), ("/usr/bin/dnsdist",)

    def prepare(self):
        write(self.site / "dnsdist.conf", f'setLocal("0.0.0.0:{self.port}")\nnewServer("127.0.0.1:9")\n'
              'addAction(QTypeRule(DNSQType.A), SpoofAction("192.0.2.7"))\naddAction(AllRule(), RCodeAction(DNSRCode.REFUSED))\n')

    def command(self):
        return ["/usr/bin/dnsdist", "--supervised", "--disable-syslog", "-C", self.site / "dnsdist.conf"]

    def check(self, address, number):
        asked = [("+tcp", "A", f"host{number}.test"), ("+tcp", "A", f"other{number}.test"), ("+tcp", "TXT", "some.test")]
        return "".join(client("dig", f"@{address[0]}", "-p", address[1], "+time=10", "+tries=1", "+noall", "+answer", "+comments", how, name, kind)
                       .replace("\t", " ") for how, kind, name in asked)

    volatile = r"id: \d+"


class Kresd(Entry):
    name, kind = "kresd", "dns resolver"
    packages, programs = ("knot-resolver", "bind9-dnsutils"), ("/usr/sbin/kresd",)

    def prepare(self):
        write(self.site / "kresd.conf", f"net.listen('0.0.0.0', {self.port})\ncache.size = 10*MB\nmodules = {{ 'hints' }}\n"
              + "".join(f"hints['host{number}.test'] = '192.0.2.{number}'\n" for number in range(200)))

    def command(self):
        return ["/usr/sbin/kresd", "-n", "-c", self.site / "kresd.conf", self.site]

    def check(self, address, number):
        return client("dig", f"@{address[0]}", "-p", address[1], "+time=10", "+tries=1", "+short", "+tcp", f"host{number % 200}.test", "A")


class AptCacher(Entry):
    name, kind = "apt-cacher-ng", "package cache"
    packages, programs = ("apt-cacher-ng", "curl"), ("/usr/sbin/apt-cacher-ng",)

    def prepare(self):
        for name in ("cache", "log"):
            (self.site / name).mkdir()

    def command(self):
        return ["/usr/sbin/apt-cacher-ng", "ForeGround=1", f"CacheDir={self.site}/cache", f"LogDir={self.site}/log", f"Port={self.port}", "-c", "/etc/apt-cacher-ng"]

    def check(self, address, number):
        return "".join(http(address, path, "-o", "/dev/null", "-w", "%{http_code} %{content_type} ") for path in ("/acng-report.html", f"/acng-doc/none{number}"))


class Rrdcached(Entry):
    name, kind = "rrdcached", "time series"
    packages, programs = ("rrdcached",), ("/usr/bin/rrdcached",)

    def command(self):
        return ["/usr/bin/rrdcached", "-g", "-l", f"0.0.0.0:{self.port}", "-p", self.site / "pid", "-b", self.site, "-R", "-F"]

    def check(self, address, number):
        made = f"CREATE some{number}.rrd -s 10 DS:a:GAUGE:20:U:U RRA:AVERAGE:0.5:1:10\n"
        return talk(address, (made, r"\n"), (f"FIRST some{number}.rrd 7\n", r"\n"), (f"LAST none{number}.rrd\n", r"\n"), ("PENDING none\n", r"\n"))


class Soup(Entry):
    """SpiderMonkey and libsoup."""

    name, kind = "gjs-libsoup", "web, GNOME"
    packages, programs = ("gjs", "gir1.2-soup-3.0", "curl"), ("/usr/bin/gjs", "/usr/lib/x86_64-linux-gnu/girepository-1.0/Soup-3.0.typelib")

    def prepare(self):
        write(self.site / "server.js", "imports.gi.versions.Soup = '3.0';\nconst {Soup, GLib} = imports.gi;\nconst server = new Soup.Server();\n"
              "server.add_handler('/', (one, message, path) => {\n    message.set_status(200, null);\n"
              "    message.set_response('text/plain', Soup.MemoryUse.COPY, new TextEncoder().encode('you asked for ' + path + '\\n'));\n});\n"
              f"server.listen_all({self.port}, Soup.ServerListenOptions.IPV4_ONLY);\nnew GLib.MainLoop(null, false).run();\n")

    def command(self):
        return ["/usr/bin/gjs", self.site / "server.js"]

    def check(self, address, number):
        return http(address, f"/some/{number}")


class MiniDlna(Entry):
    """Watches its folder, keeps what is there in SQLite, and would tell the neighbours of it."""

    name, kind = "minidlna", "media"
    packages, programs = ("minidlna", "curl"), ("/usr/sbin/minidlnad",)
    volatile = r"uuid:[-0-9a-f]+|<serialNumber>.*?<"

    def prepare(self):
        for name in ("media", "db"):
            (self.site / name).mkdir()
        write(self.site / "conf", f"media_dir={self.site}/media\ndb_dir={self.site}/db\nlog_dir={self.site}\nport={self.port}\nfriendly_name=some\n")

    def command(self):
        return ["/usr/sbin/minidlnad", "-S", "-f", self.site / "conf", "-P", self.site / "pid"]

    def check(self, address, number):
        return http(address, "/rootDesc.xml") + http(address, f"/MediaItems/{number}.mp3", "-o", "/dev/null", "-w", "%{http_code}")


class Krb5Kdc(Entry):
    """Tickets over TCP."""

    name, kind = "krb5kdc", "kerberos"
    packages = ("krb5-kdc", "krb5-admin-server", "krb5-user")
    programs = ("/usr/sbin/krb5kdc", "/usr/sbin/kadmin.local", "/usr/bin/kinit")
    principals = 8

    def client_conf(self, address):
        return (f"[libdefaults]\n default_realm = CRANE.TEST\n udp_preference_limit = 1\n dns_canonicalize_hostname = false\n dns_lookup_kdc = false\n dns_lookup_realm = false\n[realms]\n CRANE.TEST = {{\n"
                f"  kdc = {address[0]}:{address[1]}\n }}\n")

    def prepare(self):
        write(self.site / "kdc.conf", f"[realms]\n CRANE.TEST = {{\n  database_name = {self.site}/principal\n  key_stash_file = {self.site}/stash\n"
              f"  kdc_listen = {self.port}\n  kdc_tcp_listen = {self.port}\n }}\n[logging]\n kdc = FILE:{self.site}/log\n")
        write(self.site / "krb5.conf", self.client_conf(("127.0.0.1", self.port)))
        self.environment = {"KRB5_KDC_PROFILE": f"{self.site}/kdc.conf", "KRB5_CONFIG": f"{self.site}/krb5.conf"}
        words = [f"{name}={value}" for name, value in self.environment.items()]
        once("env", *words, "kdb5_util", "create", "-s", "-P", "master", "-r", "CRANE.TEST")
        for number in range(self.principals):
            once("env", *words, "kadmin.local", "-q", f"addprinc -pw password{number} user{number}")

    def command(self):
        return ["/usr/sbin/krb5kdc", "-n", "-r", "CRANE.TEST"]

    def check(self, address, number):
        user, service = number % self.principals, (number + 1) % self.principals
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder) / "krb5.conf", self.client_conf(address))
            environment = {"KRB5_CONFIG": f"{folder}/krb5.conf", "KRB5CCNAME": f"{folder}/tickets", "PATH": os.environ["PATH"]}
            client("kinit", f"user{user}", data=f"password{user}\n", environment=environment)
            client("kvno", f"user{service}", environment=environment)
            return client("klist", environment=environment).replace(folder, "")

    volatile = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
