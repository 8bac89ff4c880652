"""MariaDB and PostgreSQL as Debian ships them, each with a database `test` and a user `tester` without password."""

import pathlib
import shutil
import subprocess

from .servers import Server, write

MARIADB_CONF = """\
[mariadbd]
user=root
datadir={site}/data
socket={site}/socket
pid-file={site}/pid
port={port}
bind-address=0.0.0.0
init-file={site}/init.sql
skip-name-resolve
skip-log-bin
innodb-buffer-pool-size=32M
innodb-log-file-size=8M
"""

MARIADB_INIT = """\
CREATE DATABASE IF NOT EXISTS test;
CREATE USER IF NOT EXISTS tester@'%' IDENTIFIED BY '';
GRANT ALL ON test.* TO tester@'%';
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, f"{words[0]} exited with {done.returncode}\n{done.stdout.decode(errors='replace')}"


class MariaDb(Server):
    name = "mariadb"
    container_port = 3306
    def prepare(self):
        temporary = self.site / "tmp"  # of its own: whoever starts in the same one removes what others have there
        temporary.mkdir()
        run("env", f"TMPDIR={temporary}", "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={self.site}/data",
            "--skip-test-db", "--auth-root-authentication-method=normal")
        write(self.site / "init.sql", MARIADB_INIT)
        write(self.site / "my.cnf", MARIADB_CONF.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/mariadbd", f"--defaults-file={self.site}/my.cnf"]

    @staticmethod
    def client(address):
        return ["mariadb", "--no-defaults", "-h", address[0], "-P", address[1], "-u", "tester", "-N", "-B", "test"]


class Postgres(Server):
    name = "postgres"
    container_port = 5432
    settings = ()

    def prepare(self):
        self.programs = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        shutil.chown(self.site, "postgres")
        self.run("initdb", "-D", self.site / "data", "-A", "trust", "-U", "tester", "-N", "--locale=C.UTF-8")
        with open(self.site / "data" / "pg_hba.conf", "a", encoding="utf-8") as rules:
            rules.write("host all all 0.0.0.0/0 trust\n")

    def as_owner(self, program, *words):
        return ["/usr/sbin/runuser", "-u", "postgres", "--", self.programs / program, *words]

    def run(self, *words):
        run(*self.as_owner(*words))

    def command(self):
        settings = [f"unix_socket_directories={self.site}", "listen_addresses=0.0.0.0", *self.settings]
        words = [word for setting in settings for word in ("-c", setting)]
        return self.as_owner("postgres", "-D", self.site / "data", "-p", self.port, *words)

    @staticmethod
    def client(address):
        return ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", address[0], "-p", address[1], "-U",
                "tester", "postgres"]
