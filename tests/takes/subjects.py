"""The servers that checkpoints are taken of: how each is started, filled, loaded, and looked at in the end."""

import pathlib
import shutil
import subprocess

from clients import Cached, Client, Counted, FewPages, Pages, RedisCounter, Scanned, Tool
from support.databases import MariaDb, Postgres, run
from support.redisclient import Redis as RedisClient
from support.servers import Apache, CivetWeb, Clamd, Memcached, Nginx, Redis, Server, write

CLIENTS = 8
SLICE_S = 8  # of a benchmark


class Subject:
    """`kind`: of the server; `needs`: programs without which there is nothing to try."""

    kind, needs, client = Server, (), Client
    rows = 0  # of each table

    def fill(self, cluster, address):
        pass

    def clients(self, address, stop):
        return [self.client(number, address, stop) for number in range(CLIENTS)]

    def check(self, cluster, address):
        """What the server's own tools find wrong; empty: nothing."""
        return ""


# --- web

PHP_FPM = "/usr/sbin/php-fpm8.2"
PHP_POOL = """\
[global]
error_log = {site}/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = {site}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 3
"""
PHP_PAGE = """\
<?php
$file = fopen('{site}/count/number', 'c+');
flock($file, LOCK_EX);
$number = (int)stream_get_contents($file) + 1;
rewind($file);
fwrite($file, (string)$number);
fclose($file);
echo $number, ' ', hash('sha256', str_repeat((string)$number, 1000));
"""
PHP_APACHE = """\
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_fcgi_module /usr/lib/apache2/modules/mod_proxy_fcgi.so
<FilesMatch "\\.php$">
    SetHandler "proxy:unix:{site}/fpm.sock|fcgi://localhost"
</FilesMatch>
MaxKeepAliveRequests 0
"""


class ApachePhp(Apache):
    name = "apache-php"

    def prepare(self):
        super().prepare()
        write(self.site / "fpm.conf", PHP_POOL.format(site=self.site))
        write(self.site / "www" / "count.php", PHP_PAGE.format(site=self.site))
        (self.site / "count").mkdir()
        (self.site / "count").chmod(0o777)
        write(self.site / "conf" / "mods-enabled" / "zz-php.conf", PHP_APACHE.format(site=self.site))

    def command(self):
        return ["/bin/sh", "-c", f"{PHP_FPM} --fpm-config {self.site}/fpm.conf & exec \"$@\"", "sh", *super().command()]


class PhpPages(Counted):
    path = "/count.php"


class ApachePhpSubject(Subject):
    kind, needs, client = ApachePhp, (PHP_FPM,), PhpPages


class ApacheSubject(Subject):
    kind, client = Apache, FewPages


class NginxSubject(Subject):
    kind, client = Nginx, Pages


class CivetWebSubject(Subject):
    """As many clients as it has threads: others would wait for one of these to leave."""

    kind, client = CivetWeb, FewPages

    def clients(self, address, stop):
        return super().clients(address, stop)[:3]


# --- stores

class RedisSubject(Subject):
    kind, client = Redis, RedisCounter
    megabytes = 100

    def fill(self, cluster, address):
        with RedisClient(address) as redis:
            for number in range(self.megabytes):
                redis("SET", f"filled:{number}", "x" * (1 << 20))

    def check(self, cluster, address):
        with RedisClient(address) as redis:
            missing = [n for n in range(self.megabytes) if redis("STRLEN", f"filled:{n}") != 1 << 20]
        return f"values {missing} are not what they were" if missing else ""


class MemcachedSubject(Subject):
    kind, client = Memcached, Cached


# --- databases

class MariaDbSubject(Subject):
    kind, needs = MariaDb, ("sysbench",)
    tables = 4

    def sysbench(self, address, *words):
        return ["sysbench", "oltp_read_write", "--db-driver=mysql", f"--mysql-host={address[0]}", f"--mysql-port={address[1]}",
                "--mysql-user=tester", "--mysql-db=test", f"--tables={self.tables}", f"--table-size={self.rows}", *words]

    def fill(self, cluster, address):
        subprocess.run(self.sysbench(address, "prepare"), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def clients(self, address, stop):
        # Two of its transactions may end in a deadlock, which it makes again: no error.
        return [Tool(self.sysbench(address, f"--threads={CLIENTS}", f"--time={SLICE_S}", "run"),
                     r"FATAL|reconnects: +[1-9]", r"transactions: +(\d+)", stop, r"max: +([\d.]+)")]

    def check(self, cluster, address):
        words = [f"CHECK TABLE sbtest{n} EXTENDED;" for n in range(1, self.tables + 1)]
        done = subprocess.run([str(w) for w in MariaDb.client(address)], input="".join(words), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = done.stdout.splitlines()
        return "" if len(lines) == self.tables and all(line.endswith("OK") for line in lines) else done.stdout


class PostgresSubject(Subject):
    kind = Postgres

    @staticmethod
    def programs():
        return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))

    def pgbench(self, address, *words):
        return [self.programs() / "pgbench", "-h", address[0], "-p", address[1], "-U", "tester", *words, "postgres"]

    def fill(self, cluster, address):
        run(*self.pgbench(address, "-i", "-s", "2", "-q"))

    def clients(self, address, stop):
        return [Tool(self.pgbench(address, "-c", CLIENTS, "-T", SLICE_S, "--no-vacuum"), r"failed transactions: [1-9]|aborted",
                     r"actually processed: (\d+)", stop)]

    def check(self, cluster, address):
        words = [self.programs() / "pg_amcheck", "-h", address[0], "-p", address[1], "-U", "tester", "--install-missing",
                 "--heapallindexed", "postgres"]
        done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout if done.returncode != 0 else ""


# --- runtimes


class ClamdSubject(Subject):
    kind, needs, client = Clamd, ("/usr/sbin/clamd",), Scanned


JAVA = """\
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

public class Counter {
    public static void main(String[] words) throws Exception {
        AtomicLong count = new AtomicLong();
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(words[0])), 64);
        server.createContext("/", exchange -> {
            byte[] text = Long.toString(count.incrementAndGet()).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
"""


class Java(Server):
    name = "java"
    container_port = 8090

    def prepare(self):
        write(self.site / "Counter.java", JAVA)
        run("javac", "-d", self.site, self.site / "Counter.java")
        self.java = shutil.which("java")

    def command(self):
        return [self.java, "-Xmx128m", "-cp", self.site, "Counter", self.port]


class JavaSubject(Subject):
    kind, needs, client = Java, ("java", "javac"), Counted


NODE = """\
const http = require('http');
let count = 0;
const server = http.createServer((request, response) => { response.end(String(++count)); });
server.keepAliveTimeout = 300000;
server.listen(Number(process.argv[2]), '0.0.0.0');
"""


class Node(Server):
    name = "node"
    container_port = 8091

    def prepare(self):
        write(self.site / "counter.js", NODE)
        self.node = shutil.which("node")

    def command(self):
        return [self.node, self.site / "counter.js", self.port]


class NodeSubject(Subject):
    kind, needs, client = Node, ("node",), Counted


SUBJECTS = {
    "apache": ApacheSubject,
    "apache-php": ApachePhpSubject,
    "nginx": NginxSubject,
    "civetweb": CivetWebSubject,
    "redis": RedisSubject,
    "memcached": MemcachedSubject,
    "mariadb": MariaDbSubject,
    "postgres": PostgresSubject,
    "clamd": ClamdSubject,
    "java": JavaSubject,
    "node": NodeSubject,
}
