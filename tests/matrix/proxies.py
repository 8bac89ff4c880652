"""Proxies, with their backend inside the domain."""

from entry import PYTHON, Entry, http, once, write

BACKEND = """\
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        text = f"{self.path} answered\\n".encode() * 100
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "max-age=3600")
        self.end_headers()
        self.wfile.write(text)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Answer)
if os.fork():
    os.execv(sys.argv[1], sys.argv[1:])
server.serve_forever()
"""


class Proxy(Entry):
    """The backend, when it listens, forks itself and becomes the proxy."""

    kind, text, file = "proxy", "", "proxy.conf"
    backend = 9000

    @classmethod
    def fresh_port(cls):
        cls.backend = Entry.fresh_port()
        return Entry.fresh_port()

    def prepare(self):
        write(self.site / "backend.py", BACKEND.replace("9000", str(self.backend)))
        write(self.site / self.file, self.text.format(site=self.site, port=self.port, backend=self.backend), 0o600)
        self.more()

    def more(self):
        pass

    def proxy(self):
        raise NotImplementedError

    def command(self):
        return [PYTHON, self.site / "backend.py", *self.proxy()]

    def check(self, address, number):
        return "\n".join(http(address, f"/page{number}/{turn // 2}") for turn in range(4))


class Haproxy(Proxy):
    name = "haproxy"
    packages, programs = ("haproxy",), ("/usr/sbin/haproxy",)
    text = """\
global
    nbthread 2
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend f
    bind :{port}
    compression algo gzip
    stick-table type string size 1k store http_req_rate(10s)
    default_backend b
backend b
    option httpchk
    server one 127.0.0.1:{backend} check inter 1s
    server two 127.0.0.1:{backend}
"""

    def proxy(self):
        return ["/usr/sbin/haproxy", "-db", "-f", self.site / "proxy.conf"]


class Tinyproxy(Proxy):
    name = "tinyproxy"
    packages, programs = ("tinyproxy",), ("/usr/bin/tinyproxy",)
    text = "Port {port}\nUser nobody\nGroup nogroup\nTimeout 60\nMaxClients 20\nAllow 127.0.0.0/8\nAllow 0.0.0.0/0\nViaProxyName \"crane\"\n"

    def proxy(self):
        return ["/usr/bin/tinyproxy", "-d", "-c", self.site / "proxy.conf"]

    def check(self, address, number):
        return http(("127.0.0.1", self.backend), f"/page{number}", "-x", f"http://{address[0]}:{address[1]}")


class Privoxy(Tinyproxy):
    name = "privoxy"
    packages, programs = ("privoxy",), ("/usr/sbin/privoxy",)
    text = "listen-address 0.0.0.0:{port}\nconfdir /etc/privoxy\nlogdir {site}\ntoggle 0\n"

    def proxy(self):
        return ["/usr/sbin/privoxy", "--no-daemon", self.site / "proxy.conf"]


class Squid(Tinyproxy):
    name = "squid"
    packages, programs = ("squid",), ("/usr/sbin/squid",)
    volatile = r"^(X-Cache|Via|X-Cache-Lookup|Cache-Status).*"
    text = """\
http_port {port}
http_access allow all
cache_mem 8 MB
cache_dir ufs {site}/cache 10 4 4
access_log stdio:{site}/cache/access.log
cache_log {site}/cache/cache.log
pid_filename {site}/cache/pid
coredump_dir {site}/cache
visible_hostname crane
shutdown_lifetime 1 seconds
dns_nameservers 127.0.0.1
logfile_rotate 0
"""

    def more(self):
        (self.site / "cache").mkdir()
        once("chown", "proxy:proxy", self.site / "cache")
        write(self.site / "proxy.conf", (self.site / "proxy.conf").read_text(), 0o644)

    def command(self):
        squid = f"/usr/sbin/squid -f {self.site}/proxy.conf"
        return [PYTHON, self.site / "backend.py", "/bin/sh", "-c", f"{squid} -N -z >/dev/null 2>&1; exec {squid} -N"]


class Varnish(Proxy):
    name, kind = "varnish", "cache"
    packages, programs = ("varnish",), ("/usr/sbin/varnishd",)
    volatile = r"^Via:.*"
    text = 'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; .port = "{backend}"; }}\n'
    needs = "gcc, which compiles its configuration at the start"

    def more(self):
        write(self.site / "proxy.conf", (self.site / "proxy.conf").read_text(), 0o644)
        (self.site / "work").mkdir()

    def proxy(self):
        return ["/usr/sbin/varnishd", "-F", "-j", "none", "-a", f":{self.port}", "-f", self.site / "proxy.conf", "-n", self.site / "work",
                "-s", "malloc,16m"]


class Hitch(Proxy):
    name, kind = "hitch", "tls"
    packages, programs = ("hitch",), ("/usr/sbin/hitch",)
    text = 'frontend = "[0.0.0.0]:{port}"\nbackend = "[127.0.0.1]:{backend}"\npem-file = "{site}/pem"\nworkers = 2\nuser = "nobody"\ndaemon = off\n'

    def more(self):
        once("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.site / "key", "-out", self.site / "cert",
             "-subj", "/CN=crane.test", "-days", "3650")
        write(self.site / "pem", (self.site / "key").read_text() + (self.site / "cert").read_text(), 0o644)

    def proxy(self):
        return ["/usr/sbin/hitch", "--config", self.site / "proxy.conf"]

    def check(self, address, number):
        return http(address, f"/page{number}", "-k", scheme="https")


class Stunnel(Hitch):
    name = "stunnel"
    packages, programs = ("stunnel4",), ("/usr/bin/stunnel4",)
    text = "foreground = yes\npid =\n[s]\naccept = 0.0.0.0:{port}\nconnect = 127.0.0.1:{backend}\ncert = {site}/pem\n"

    def proxy(self):
        return ["/usr/bin/stunnel4", self.site / "proxy.conf"]


class Socat(Proxy):
    """Forks for each connection."""

    name = "socat"
    packages, programs = ("socat",), ("/usr/bin/socat",)

    def proxy(self):
        return ["/usr/bin/socat", f"TCP-LISTEN:{self.port},fork,reuseaddr", f"TCP:127.0.0.1:{self.backend}"]


class TrafficServer(Proxy):
    name, kind = "trafficserver", "cache"
    packages, programs = ("trafficserver",), ("/usr/bin/traffic_server",)
    volatile = r"^(Server|Via):.*"

    def more(self):
        once("sh", "-c", f"cp -r /etc/trafficserver {self.site}/etc && mkdir -p {self.site}/log {self.site}/cache {self.site}/run && chmod -R a+rwX {self.site}")
        write(self.site / "etc" / "remap.config", f"map / http://127.0.0.1:{self.backend}/\n")
        write(self.site / "etc" / "storage.config", f"{self.site}/cache 16M\n")
        write(self.site / "runroot.yaml", "".join(f"{key}: {value}\n" for key, value in {
            "prefix": "/usr", "exec_prefix": "/usr", "bindir": "/usr/bin", "sbindir": "/usr/sbin", "sysconfdir": f"{self.site}/etc",
            "datadir": f"{self.site}/cache", "libexecdir": "/usr/lib/trafficserver/modules", "localstatedir": f"{self.site}/run",
            "runtimedir": f"{self.site}/run", "logdir": f"{self.site}/log", "cachedir": f"{self.site}/cache"}.items()))

    def proxy(self):
        return ["/usr/bin/traffic_server", f"--run-root={self.site}/runroot.yaml", "-p", self.port]


