"""How each server of the tests and of the evaluation is started: the command, its port, its files.

The servers are Debian's own binaries. Apache has the shipped configuration, copied; what the tests add stands in
one file of its own. Files are made with fixed times, so that two copies of a site give the same headers.
"""

import os
import pathlib
import random
import shutil

from .paths import PROGRAMS, PYTHON, work_dir

SITE_TIME = 1_700_000_000  # modification time of every file that is served
COMPUTE_UNITS = 5  # of about a millisecond

LUA_PAGE = """\
-- Computes for some milliseconds, then answers with a digest of what it computed and of the request.
function handle(r)
    r.content_type = "text/plain"
    local query = tonumber(r.args) or %d
    local state, sum = 12345, 0
    for i = 1, query * 36000 do
        state = (state * 1103515245 + 12345) %% 2147483648
        sum = (sum + state) %% 1000000007
    end
    r:puts(string.format("%%s %%d %%d\\n", r.uri, query, sum))
    return apache2.OK
end
"""

APACHE_EXTRA = """\
# Added to Debian's shipped configuration: what the tests need to have mod_lua and mod_dav.
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
DAVLockDB {site}/lock/DAVLock
ServerName crane.test
AddHandler lua-script .lua
<Directory {site}/www>
    Require all granted
    Options Indexes FollowSymLinks
</Directory>
<Directory {site}/www/dav>
    Dav On
</Directory>
ScriptAlias /unused/ {site}/unused/
"""


class Server:
    """A command line and the files that it needs; `port` is the port the server itself listens on."""

    name = "server"
    container_port = 0  # the port that it has under Crane, in a network of its own

    def __init__(self, port=None):
        self.port = port or self.container_port
        self.environment = {}
        self.site = work_dir(self.name)
        self.prepare()

    def prepare(self):
        pass

    def command(self):
        raise NotImplementedError

    def remove(self):
        shutil.rmtree(self.site, ignore_errors=True)


def write(path, data, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)
    os.utime(path, (SITE_TIME, SITE_TIME))


def make_pages(www, big=True):
    """10 KB, 1 MB and (unless told not to) 64 MB of bytes that do not compress, the same every time."""
    source = random.Random(7)
    write(www / "10k.bin", source.randbytes(10 * 1024))
    write(www / "1m.bin", source.randbytes(1024 * 1024))
    if big:
        block = source.randbytes(1024 * 1024)
        write(www / "64m.bin", block * 64)
    write(www / "index.html", "<html><body>crane test page</body></html>\n")


class Apache(Server):
    """Debian's Apache, mpm_event, shipped configuration, with mod_lua and mod_dav."""

    name = "apache"
    container_port = 80

    def prepare(self):
        shutil.copytree("/etc/apache2", self.site / "conf", symlinks=False)
        make_pages(self.site / "www")
        write(self.site / "www" / "compute.lua", LUA_PAGE % COMPUTE_UNITS)
        for folder, mode in (("www/dav", 0o777), ("lock", 0o777), ("run", 0o755), ("log", 0o755)):
            (self.site / folder).mkdir(parents=True)
            (self.site / folder).chmod(mode)
        os.utime(self.site / "www/dav", (SITE_TIME, SITE_TIME))
        conf = self.site / "conf"
        write(conf / "mods-enabled" / "zz-crane-test.conf", APACHE_EXTRA.format(site=self.site))
        self._edit(conf / "ports.conf", "Listen 80", f"Listen {self.port}")
        for path in (conf / "sites-enabled").glob("*.conf"):
            self._edit(path, "*:80>", f"*:{self.port}>")
            self._edit(path, "/var/www/html", f"{self.site}/www")

    @staticmethod
    def _edit(path, old, new):
        path.write_text(path.read_text().replace(old, new))

    def command(self):
        defines = {"APACHE_RUN_USER": "www-data", "APACHE_RUN_GROUP": "www-data",
                   "APACHE_RUN_DIR": self.site / "run", "APACHE_LOCK_DIR": self.site / "lock",
                   "APACHE_LOG_DIR": self.site / "log", "APACHE_PID_FILE": self.site / "run" / "apache2.pid"}
        words = ["/usr/sbin/apache2", "-DFOREGROUND", "-d", self.site / "conf"]
        for key, value in defines.items():
            words += ["-C", f"Define {key} {value}"]
        return words + ["-f", self.site / "conf" / "apache2.conf"]


class Redis(Server):
    name = "redis"
    container_port = 6379

    def command(self):
        return ["/usr/bin/redis-server", "--port", self.port, "--save", "", "--appendonly", "no", "--daemonize",
                "no", "--protected-mode", "no", "--enable-debug-command", "yes", "--dir", self.site]


class RedisIoThreads(Redis):
    """Its threads of input and output wait for each other by looking at memory, without `pause`."""

    def command(self):
        return [*super().command(), "--io-threads", "4", "--io-threads-do-reads", "yes"]


class Memcached(Server):
    name = "memcached"
    container_port = 11211

    def command(self):
        return ["/usr/bin/memcached", "-u", "root", "-l", "0.0.0.0", "-p", self.port, "-U", "0", "-t", "4", "-m", "64"]


CLAMD_CONF = """\
Foreground yes
DatabaseDirectory {site}/db
TCPSocket {port}
TCPAddr 0.0.0.0
MaxThreads 12
IdleTimeout 300
CommandReadTimeout 300
ReadTimeout 300
User root
"""


class Clamd(Server):
    """With a database of one signature of its own: the real one changes by the day."""

    name = "clamd"
    container_port = 3310

    def prepare(self):
        write(self.site / "db" / "test.hdb", "44d88612fea8a8f36de82e1278abb02f:68:Eicar-Test\n")
        write(self.site / "clamd.conf", CLAMD_CONF.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/clamd", "-c", self.site / "clamd.conf"]


NGINX_CONF = """\
daemon off;
user www-data;
pid {site}/nginx.pid;
error_log {site}/error.log;
{processes}
events {{ worker_connections 256; }}
http {{
    access_log {site}/access.log;
    client_body_temp_path {site}/body; proxy_temp_path {site}/proxy; fastcgi_temp_path {site}/fastcgi;
    uwsgi_temp_path {site}/uwsgi; scgi_temp_path {site}/scgi;
    sendfile on;
    server {{
        listen 0.0.0.0:{port};
        root {site}/www;
        location /dav/ {{ dav_methods PUT DELETE; client_max_body_size 100m; }}
    }}
}}
"""


class Nginx(Server):
    name = "nginx"
    container_port = 8080
    processes = "worker_processes 2;"

    def prepare(self):
        make_pages(self.site / "www")
        (self.site / "www" / "dav").mkdir()
        (self.site / "www" / "dav").chmod(0o777)
        text = NGINX_CONF.format(site=self.site, port=self.port, processes=self.processes)
        write(self.site / "nginx.conf", text)

    def command(self):
        return ["/usr/sbin/nginx", "-e", self.site / "error.log", "-c", self.site / "nginx.conf"]


class NginxSingle(Nginx):
    name = "nginx-single"
    processes = "master_process off;"


LIGHTTPD_CONF = """\
server.document-root = "{site}/www"
server.port = {port}
server.modules = ("mod_cgi")
server.errorlog = "{site}/error.log"
index-file.names = ("index.html")
cgi.assign = (".sh" => "/bin/sh")
"""

CGI_PAGE = """\
echo 'Content-Type: text/plain'
echo
echo "$REQUEST_METHOD $QUERY_STRING"
cat
"""


class Lighttpd(Server):
    name = "lighttpd"
    container_port = 8083

    def prepare(self):
        make_pages(self.site / "www")
        write(self.site / "www" / "page.sh", CGI_PAGE)
        write(self.site / "lighttpd.conf", LIGHTTPD_CONF.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/lighttpd", "-D", "-f", self.site / "lighttpd.conf"]


class CivetWeb(Server):
    name = "civetweb"
    container_port = 8081

    def prepare(self):
        make_pages(self.site / "www")

    def command(self):
        return ["/usr/bin/civetweb", "-document_root", self.site / "www", "-listening_ports", f"0.0.0.0:{self.port}",
                "-num_threads", "4", "-enable_keep_alive", "yes", "-keep_alive_timeout_ms", "2000"]


class PythonCounter(Server):
    """tests/programs/counter_server.py: ThreadingHTTPServer with a shared counter under a lock."""

    name = "python-counter"
    container_port = 8082

    def prepare(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "programs" / "counter_server.py"
        shutil.copy(source, self.site / "counter_server.py")

    def command(self):
        return [PYTHON, self.site / "counter_server.py", self.port]


class SlowReader(Server):
    """tests/programs/slow_reader.py: echoes lines, and attends to nobody else while a client holds it."""

    name = "slow-reader"
    container_port = 7001

    def prepare(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "programs" / "slow_reader.py"
        shutil.copy(source, self.site / "slow_reader.py")

    def command(self):
        return [PYTHON, self.site / "slow_reader.py", self.port]


class Program(Server):
    """One of the small C servers in tests/programs; copied, since the build folder may not be visible inside."""

    container_port = 7000

    def __init__(self, program, tools=(), port=None):
        self.name = program
        self.tools = tools
        super().__init__(port)

    def prepare(self):
        for name in (self.name, *self.tools):
            shutil.copy(PROGRAMS / name, self.site / name)
            (self.site / name).chmod(0o755)

    def command(self):
        return [self.site / self.name, self.port]
