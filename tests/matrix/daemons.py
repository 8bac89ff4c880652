"""Daemons of further kinds, and pairs of a server and what stands before it."""

import pathlib
import re

from entry import Entry, client, http, once, talk, write


class Sphinx(Entry):
    name, kind = "sphinxsearch", "search"
    packages, programs = ("sphinxsearch", "mariadb-client"), ("/usr/bin/searchd", "/usr/bin/mariadb")

    def prepare(self):
        write(self.site / "sphinx.conf", f"""\
index words {{
    type = rt
    path = {self.site}/words
    rt_field = body
    rt_attr_uint = number
}}
searchd {{
    listen = {self.port}:mysql41
    pid_file = {self.site}/pid
    log = {self.site}/log
    query_log = {self.site}/queries
    binlog_path =
    workers = threads
}}
""")

    def command(self):
        return ["/usr/bin/searchd", "--nodetach", "--config", self.site / "sphinx.conf"]

    def check(self, address, number):
        statements = "".join(f"REPLACE INTO words (id, body, number) VALUES ({number * 10 + turn}, 'some words of session{number} turn{turn}', {turn});"
                             for turn in range(1, 5))
        return client("/usr/bin/mariadb", "-h", address[0], "-P", address[1], "--protocol=tcp", "--skip-ssl", "-e",
                      f"{statements} SELECT id, number FROM words WHERE MATCH('session{number}') ORDER BY id ASC;")


class Firebird(Entry):
    name, kind = "firebird", "sql"
    packages, programs = ("firebird3.0-server", "firebird3.0-utils"), ("/usr/sbin/firebird", "/usr/bin/isql-fb")

    def sql(self, database, statements):
        return client("/usr/bin/isql-fb", "-q", database, data=statements, environment=self.user)

    def prepare(self):
        text = pathlib.Path("/etc/firebird/3.0/SYSDBA.password").read_text(encoding="ascii")
        self.user = {"ISC_USER": "sysdba", "ISC_PASSWORD": re.search(r'PASSWORD="(.*)"', text)[1]}
        once("isql-fb", "-q", data=f"create database '{self.site}/all.fdb' user sysdba; create table words (id int primary key, body varchar(40));"
             " commit;".encode())

    def command(self):
        return ["/usr/sbin/firebird", "-p", self.port]

    def check(self, address, number):
        rows = "".join(f"insert into words values ({number * 10 + turn}, 'session {number} turn {turn}');\n" for turn in range(4))
        return self.sql(f"{address[0]}/{address[1]}:{self.site}/all.fdb",
                        f"{rows}commit;\nupdate words set body = upper(body) where id = {number * 10 + 1};\ncommit;\n"
                        f"select * from words where id between {number * 10} and {number * 10 + 9} order by id;\n")


class Munin(Entry):
    name, kind = "munin-node", "monitoring"
    packages, programs = ("munin-node",), ("/usr/sbin/munin-node",)

    def prepare(self):
        write(self.site / "munin.conf", f"log_file {self.site}/log\npid_file {self.site}/pid\nbackground 0\nsetsid 0\nuser root\ngroup root\nhost *\n"
              f"port {self.port}\nhost_name crane.test\ncidr_allow 0.0.0.0/0\n")

    def command(self):
        return ["/usr/sbin/munin-node", "--config", self.site / "munin.conf"]

    def check(self, address, number):
        return talk(address, ("", r"\n"), ("cap multigraph\n", r"\n"), ("nodes\n", r"\n\.\n"), (f"fetch none{number}\n", r"\n\.\n"), ("version\n", r"\n"))


class Hub(Entry):
    name, kind = "uhub", "chat"
    packages, programs = ("uhub",), ("/usr/bin/uhub",)
    volatile = r"ISID \w+|\bID\w+|VEuhub\S*"

    def prepare(self):
        write(self.site / "uhub.conf", f"server_port={self.port}\nserver_bind_addr=0.0.0.0\nhub_name=crane\nhub_description=some\n")

    def command(self):
        return ["/usr/bin/uhub", "-c", self.site / "uhub.conf"]

    def check(self, address, number):
        return talk(address, ("HSUP ADBASE ADTIGR\n", r"IINF[^\n]*\n.*ISTA[^\n]*\n"))


class Webdis(Entry):
    name, kind = "webdis", "proxy"
    packages, programs = ("webdis", "redis-server", "redis-tools"), ("/usr/bin/webdis", "/usr/bin/redis-server")

    def prepare(self):
        write(self.site / "webdis.json", '{"redis_host": "127.0.0.1", "redis_port": 7001, "http_host": "0.0.0.0", "http_port": %d, "threads": 3, "pool_size": 4,'
              ' "daemonize": false, "websockets": false, "database": 0, "verbosity": 0, "logfile": "%s/log"}' % (self.port, self.site))

    def command(self):
        return ["/bin/sh", "-c", f"/usr/bin/redis-server --port 7001 --save '' --daemonize no --dir {self.site} > /dev/null & until /usr/bin/redis-cli -p 7001 ping > /dev/null; do :; done; exec /usr/bin/webdis {self.site}/webdis.json"]

    def check(self, address, number):
        return "\n".join(http(address, path) for path in (f"/SET/key{number}/value{number}", f"/GET/key{number}", f"/RPUSH/list{number}x/1/2", "/PING"))


class Nutcracker(Entry):
    name, kind = "nutcracker", "proxy"
    packages, programs = ("nutcracker", "memcached"), ("/usr/sbin/nutcracker", "/usr/bin/memcached")

    def prepare(self):
        write(self.site / "nutcracker.yml", f"all:\n  listen: 0.0.0.0:{self.port}\n  hash: fnv1a_64\n  distribution: ketama\n  servers:\n"
              "   - 127.0.0.1:7001:1\n   - 127.0.0.1:7002:1\n")

    def command(self):
        caches = "".join(f"/usr/bin/memcached -u nobody -l 127.0.0.1 -p {port} -t 2 & " for port in (7001, 7002))
        return ["/bin/sh", "-c", f"{caches}exec /usr/sbin/nutcracker -c {self.site}/nutcracker.yml -s 7009 -p {self.site}/pid"]

    def check(self, address, number):
        return talk(address, *((f"set key{number}{turn} 0 0 3\r\nabc\r\nget key{number}{turn}\r\n", r"END\r\n") for turn in range(4)))


class Sslh(Entry):
    name, kind = "sslh", "proxy"
    packages, programs = ("sslh", "redis-server"), ("/usr/sbin/sslh", "/usr/bin/redis-server")

    def command(self):
        return ["/bin/sh", "-c", f"/usr/bin/redis-server --port 7001 --save '' --dir {self.site} > /dev/null & "
                f"exec /usr/sbin/sslh --foreground -p 0.0.0.0:{self.port} --anyprot 127.0.0.1:7001 -P {self.site}/pid"]

    def check(self, address, number):
        return talk(address, *((f"SET key{number} {turn}\r\nGET key{number}\r\n", rf"{turn}\r\n$") for turn in range(5)))


class Tarantool(Entry):
    name, kind = "tarantool", "key-value"
    packages, programs = ("tarantool",), ("/usr/bin/tarantool",)

    def prepare(self):
        write(self.site / "app.lua", f"""\
box.cfg{{work_dir = '{self.site}', log_level = 4}}
box.schema.space.create('words', {{if_not_exists = true}})
box.space.words:create_index('primary', {{type = 'hash', parts = {{1, 'string'}}, if_not_exists = true}})
local socket = require('socket')
socket.tcp_server('0.0.0.0', {self.port}, function(peer)
    while true do
        local line = peer:read('\\n')
        if line == '' or line == nil then return end
        line = line:sub(1, -2)
        local row = box.space.words:get(line)
        local count = (row and row[2] or 0) + 1
        box.space.words:replace({{line, count}})
        peer:write(line .. ' ' .. count .. '\\n')
    end
end)
""")

    def command(self):
        return ["/usr/bin/tarantool", self.site / "app.lua"]

    def check(self, address, number):
        return talk(address, *((f"key {number} {turn % 2}\n", r"\n") for turn in range(6)))
