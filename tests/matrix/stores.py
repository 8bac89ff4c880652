"""Queues, caches, key-value stores and databases."""

import pathlib

from entry import Entry, client, once, talk, write
from support.databases import MariaDb, Postgres


class Mosquitto(Entry):
    name, kind = "mosquitto", "mqtt"
    packages, programs = ("mosquitto", "mosquitto-clients"), ("/usr/sbin/mosquitto",)

    def prepare(self):
        write(self.site / "mosquitto.conf", f"listener {self.port} 0.0.0.0\nallow_anonymous true\npersistence true\npersistence_location {self.site}/\nuser root\n")

    def command(self):
        return ["/usr/sbin/mosquitto", "-c", self.site / "mosquitto.conf"]

    def check(self, address, number):
        where = ["-h", address[0], "-p", address[1], "-q", "2", "-t", f"topic/{number}"]
        text = ""
        for turn in range(3):
            client("mosquitto_pub", *where, "-r", "-m", f"message {number} {turn}")
            text += client("mosquitto_sub", *where, "-C", "1", "-W", "20")
        return text


class Beanstalkd(Entry):
    name, kind = "beanstalkd", "queue"
    packages, programs = ("beanstalkd",), ("/usr/bin/beanstalkd",)
    volatile = r"^(INSERTED|RESERVED) \d+"

    def prepare(self):
        (self.site / "log").mkdir()

    def command(self):
        return ["/usr/bin/beanstalkd", "-l", "0.0.0.0", "-p", self.port, "-b", self.site / "log"]

    def check(self, address, number):
        return talk(address, (f"use t{number}\r\n", r"USING.*\n"), (f"watch t{number}\r\n", r"WATCHING.*\n"), ("put 1 0 60 5\r\nhello\r\n", r"INSERTED.*\n"),
                    ("put 1 1 60 5\r\nafter\r\n", r"INSERTED.*\n"), ("reserve-with-timeout 5\r\n", r"RESERVED.*\nhello\r\n"),
                    ("reserve-with-timeout 5\r\n", r"RESERVED.*\nafter\r\n"), (f"stats-tube t{number}\r\n", r"current-jobs-reserved: 2\n.*\n"))


class Gearmand(Entry):
    name, kind = "gearmand", "queue"
    packages, programs = ("gearman-job-server", "gearman-tools"), ("/usr/sbin/gearmand",)

    def command(self):
        return ["/usr/sbin/gearmand", "-L", "0.0.0.0", "-p", self.port, "-l", "stderr", "-t", "2"]

    def check(self, address, number):
        where = f"-h {address[0]} -p {address[1]} -f work{number}"
        return client("sh", "-c", f"gearman {where} -w -c 1 -- wc -c & worker=$!; gearman {where} -s 'hello {number}'; wait $worker")


class Redis(Entry):
    name, kind, program = "redis-persistent", "key-value", "/usr/bin/redis-server"
    packages, programs = ("redis-server", "redis-tools"), ("/usr/bin/redis-server",)
    words = ("--appendonly", "yes", "--save", "1 1", "--aof-use-rdb-preamble", "yes")

    def command(self):
        return [self.program, "--port", self.port, "--protected-mode", "no", "--daemonize", "no", "--dir", self.site, *self.words]

    def check(self, address, number):
        commands = [f"SET a{number} 1", f"INCRBY a{number} {number}", f"RPUSH l{number} x y z", f"EVAL \"return redis.call('LRANGE', KEYS[1], 0, -1)\" 1 l{number}",
                    f"XADD s{number} 1-1 f v", f"XRANGE s{number} - +", f"ZADD z{number} 1 a 2 b", f"ZRANGE z{number} 0 -1 WITHSCORES", f"SET t{number} x PX 1",
                    f"BLPOP none{number} 0.05", f"GET t{number}", f"OBJECT ENCODING a{number}"]
        text = client("redis-cli", "-h", address[0], "-p", address[1], data="\n".join(commands) + "\n")
        return text + (client("redis-cli", "-h", address[0], "-p", address[1], "DEBUG", "DIGEST-VALUE", f"l{number}") if number % 5 == 0 else "")


class RedisIoThreads(Redis):
    name = "redis-io-threads"
    words = ("--save", "", "--io-threads", "3", "--io-threads-do-reads", "yes")


class Memcached(Entry):
    name, kind = "memcached-sasl", "key-value"
    packages, programs = ("memcached", "sasl2-bin"), ("/usr/bin/memcached",)

    def prepare(self):
        write(self.site / "sasl" / "memcached.conf", f"mech_list: plain\nlog_level: 5\nsasldb_path: {self.site}/sasldb\n")
        once("sh", "-c", f"echo secret | saslpasswd2 -p -a memcached -c -f {self.site}/sasldb -u crane tester && chmod 644 {self.site}/sasldb")
        self.environment = {"SASL_CONF_PATH": f"{self.site}/sasl"}

    def command(self):
        return ["/usr/bin/memcached", "-u", "nobody", "-l", "0.0.0.0", "-p", self.port, "-U", "0", "-t", "2", "-S"]

    def check(self, address, number):
        def packet(code, key=b"", value=b"", extra=b""):
            return bytes([0x80, code]) + len(key).to_bytes(2, "big") + bytes([len(extra), 0, 0, 0]) + \
                (len(extra) + len(key) + len(value)).to_bytes(4, "big") + bytes(12) + extra + key + value

        key = b"key%d" % number
        heard = talk(address, (packet(0x20), "PLAIN"), (packet(0x21, b"PLAIN", b"\0tester@crane\0secret"), r"^\x81\x21.{22}"),
                         (packet(1, key, b"v" * 100, bytes(8)), r"^\x81\x01.{4}\x00\x00"), (packet(0, key), "v" * 100))
        return heard[-100:]  # before that stands a number that all sessions count


class MySql(Entry):
    name, kind = "mariadb", "sql"
    packages, programs = ("mariadb-server",), ("/usr/sbin/mariadbd",)
    prepare, command = MariaDb.prepare, MariaDb.command
    client = staticmethod(MariaDb.client)

    def check(self, address, number):
        table = f"t{number}"
        return client(*self.client(address), data=f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT, KEY (v(10)));"
                      + "".join(f"INSERT INTO {table} VALUES ({n}, REPEAT('x', {n}));" for n in range(20))
                      + f"SELECT SUM(LENGTH(v)), COUNT(*) FROM {table}; BEGIN; DELETE FROM {table} WHERE id > 9; ROLLBACK; SELECT COUNT(*) FROM {table};")


class Sql(MySql):
    name = "postgresql"
    packages, programs = ("postgresql",), ("/usr/bin/psql",)
    prepare, command, run, as_owner, settings = Postgres.prepare, Postgres.command, Postgres.run, Postgres.as_owner, Postgres.settings
    client = staticmethod(Postgres.client)

    def check(self, address, number):
        return client(*self.client(address), data=f"CREATE TABLE t{number} AS SELECT n AS id, md5(n::text) AS v FROM generate_series(1, 500) n;"
                      f"CREATE INDEX ON t{number} (v); SELECT count(*), min(v), max(v) FROM t{number}; VACUUM ANALYZE t{number};"
                      f"SELECT count(*) FROM t{number} WHERE v LIKE 'a%';")


class PgBouncer(Sql):
    """Between its clients and a PostgreSQL of its own."""

    name, kind = "pgbouncer", "sql proxy"
    packages, programs = ("pgbouncer", "postgresql"), ("/usr/sbin/pgbouncer",)

    def prepare(self):
        Postgres.prepare(self)
        write(self.site / "bouncer.ini", f"[databases]\n* = host={self.site} port=6000 user=tester\n[pgbouncer]\nlisten_addr = 0.0.0.0\nlisten_port = {self.port}\n"
              "auth_type = any\npool_mode = transaction\nunix_socket_dir =\nmax_client_conn = 50\ndefault_pool_size = 3\nserver_check_delay = 0\nlogfile =\n")

    def command(self):
        database = [str(word) for word in self.as_owner("postgres", "-D", self.site / "data", "-p", 6000, "-c", f"unix_socket_directories={self.site}", "-c",
                                                       "listen_addresses=")]
        return ["/bin/sh", "-c", f"{' '.join(database)} & until [ -S {self.site}/.s.PGSQL.6000 ]; do sleep 0.1; done; sleep 2; "
                f"exec /usr/sbin/runuser -u postgres -- /usr/sbin/pgbouncer {self.site}/bouncer.ini"]


class Zookeeper(Entry):
    name, kind = "zookeeper", "java"
    packages, programs = ("zookeeper",), ("/usr/share/zookeeper/bin/zkServer.sh",)
    volatile = r"Latency.*|Received.*|Sent.*|Connections.*|Zxid.*|Outstanding.*|Proposal.*"

    def prepare(self):
        (self.site / "data").mkdir()
        write(self.site / "zoo.cfg", f"tickTime=2000\ndataDir={self.site}/data\nclientPort={self.port}\nadmin.enableServer=false\n4lw.commands.whitelist=*\n")

    def command(self):
        jars = ":".join(str(path) for path in sorted(pathlib.Path("/usr/share/java").glob("*.jar")))
        return ["/usr/bin/java", "-Xmx128m", "-cp", f"/etc/zookeeper/conf:{jars}", "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.site / "zoo.cfg"]

    def check(self, address, number):
        return talk(address, ("ruok", "imok")) + talk(address, ("srvr", "Node count.*\n"))


class Etcd(Entry):
    name, kind, refused = "etcd", "go", "Go"
    packages, programs = ("etcd-server",), ("/usr/bin/etcd",)

    def command(self):
        return ["/usr/bin/etcd", "--data-dir", self.site / "data", "--listen-client-urls", f"http://0.0.0.0:{self.port}", "--advertise-client-urls",
                f"http://127.0.0.1:{self.port}", "--listen-peer-urls", "http://127.0.0.1:0"]

    def check(self, address, number):
        return client("curl", "-sS", f"http://{address[0]}:{address[1]}/health")


class Spamd(Entry):
    name, kind = "spamd", "mail filter"
    packages, programs = ("spamd", "spamassassin", "spamc"), ("/usr/sbin/spamd",)
    volatile = r"\d+\.\d+/\d+\.\d+"
    together = 2

    def prepare(self):
        write(self.site / "rules" / "v320.pre", "loadplugin Mail::SpamAssassin::Plugin::Check\n")
        write(self.site / "rules" / "own.cf", "required_score 5\nbody CRANE_WORD /unlikelyword/\nscore CRANE_WORD 10\nuse_bayes 0\nskip_rbl_checks 1\ndns_available no\nuse_razor2 0\nuse_pyzor 0\n")

    def command(self):
        return ["/usr/sbin/spamd", "-L", "-i", "0.0.0.0", "-A", "127.0.0.0/8,0.0.0.0/0", "-p", self.port, "-m", "2", "--min-children=1", "-x", "-C", self.site / "rules",
                f"--siteconfigpath={self.site}/rules", "-r", self.site / "pid", "-s", "stderr"]

    def check(self, address, number):
        text = f"Subject: {number}\n\n{'unlikelyword' if number % 2 else 'nothing'}\n"
        return client("spamc", "-d", address[0], "-p", address[1], "-c", data=text, ok=(0, 1))


class Clamd(Entry):
    name, kind = "clamd", "scanner"
    packages, programs = ("clamav-daemon", "clamdscan"), ("/usr/sbin/clamd",)

    def prepare(self):
        write(self.site / "db" / "test.ndb", "Test.Sig.A:0:*:6465616462656566636166656261626521\n")
        write(self.site / "clamd.conf", f"Foreground yes\nDatabaseDirectory {self.site}/db\nTCPSocket {self.port}\nTCPAddr 0.0.0.0\nUser root\nMaxThreads 4\n")

    def command(self):
        return ["/usr/sbin/clamd", "-c", self.site / "clamd.conf"]

    def check(self, address, number):
        data = (b"deadbeefcafebabe!" if number % 2 else b"nothing") * 500
        return talk(address, (b"zINSTREAM\0" + len(data).to_bytes(4, "big") + data + bytes(4), r"\x00"))


SESSIONS = """\
<?php
$n = (int)$_GET['n'];
session_id("s$n");
session_save_path('@DATA@');
session_start();
$_SESSION['c'] = ($_SESSION['c'] ?? 0) + 1;
$d = new SQLite3('@DATA@/base.db');
$d->busyTimeout(5000);
$d->exec('create table if not exists t (n int)');
$d->exec("insert into t values ($n)");
echo $_SESSION['c'], ' ', $d->querySingle("select count(*) from t where n = $n"), "\\n";
"""


class PhpFpm(Entry):
    """nginx and php-fpm, started together."""

    name, kind = "nginx-php-fpm", "php"
    packages, programs = ("php8.2-fpm", "php8.2-sqlite3", "nginx"), ("/usr/sbin/php-fpm8.2",)

    def prepare(self):
        write(self.site / "www" / "app.php", SESSIONS.replace("@DATA@", f"{self.site}/data"))
        (self.site / "data").mkdir()
        (self.site / "data").chmod(0o777)
        write(self.site / "fpm.conf", f"[global]\nerror_log = {self.site}/fpm.log\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\nlisten = {self.site}/fpm.sock\n"
              "listen.mode = 0666\npm = dynamic\npm.max_children = 4\npm.start_servers = 2\npm.min_spare_servers = 1\npm.max_spare_servers = 2\n")
        write(self.site / "nginx.conf", f"daemon off; user www-data; pid {self.site}/pid; events {{ }} http {{ access_log off; error_log {self.site}/error.log; "
              f"client_body_temp_path {self.site}/b; proxy_temp_path {self.site}/p; fastcgi_temp_path {self.site}/f; uwsgi_temp_path {self.site}/u; scgi_temp_path {self.site}/s; "
              f"server {{ listen {self.port}; location / {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME {self.site}/www/app.php; "
              f"fastcgi_pass unix:{self.site}/fpm.sock; }} }} }}\n")

    def command(self):
        return ["/bin/sh", "-c", f"/usr/sbin/php-fpm8.2 --fpm-config {self.site}/fpm.conf & until [ -S {self.site}/fpm.sock ]; do sleep 0.1; done; "
                f"exec /usr/sbin/nginx -e {self.site}/error.log -c {self.site}/nginx.conf"]

    def check(self, address, number):
        return "".join(client("curl", "-sS", f"http://{address[0]}:{address[1]}/?n={number}") for _ in range(2))
