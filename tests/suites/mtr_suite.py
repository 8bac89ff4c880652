"""MariaDB's own tests (suites of Debian's mariadb-test), a test at a time by mtr, against a server that it did not start."""

import os
import pathlib
import re
import shutil
import subprocess

from compare import PASSED
from support import procs
from support.databases import MariaDb
from support.paths import free_port, work_dir
from support.servers import write

SOURCE = pathlib.Path("/usr/share/mysql/mysql-test")
TEST_S = 150
ANSWER_S = 20
# As mtr starts a server (include/default_mysqld.cnf), and what it looks for there.
SETTINGS = """\
server-id=1
log-bin=master-bin
binlog-direct-non-transactional-updates
log-bin-trust-function-creators=1
default-storage-engine=myisam
character-set-server=latin1
collation-server=latin1_swedish_ci
use-stat-tables=preferably
histogram-type=json_hb
key-buffer-size=1M
sort-buffer-size=256K
max-heap-table-size=1M
innodb-stats-persistent=off
local-infile
secure-file-priv=
"""
NOT_AS_MTR = ("skip-name-resolve", "skip-log-bin", "user=", "init-file=")
# A test with one of these files wants a server that was started for it alone, and one with such words stops or starts it.
OPTIONS_OF_ITS_OWN = (".opt", "-master.opt", ".cnf", ".combinations", "-master.sh")
WORDS_OF_ITS_OWN = re.compile(r"shutdown|restart_mysqld|start_mysqld|kill_mysqld|have_debug|big_test", re.IGNORECASE)
# One that fails after such words leaves a server that knows nobody.
SYSTEM_TABLES = re.compile(r"(truncate|drop table|rename table|alter table|drop view|create or replace table)(\s+table|\s+ignore|\s+if exists)*\s+mysql\.\w"
                           r"|delete from mysql\.(user|global_priv)\s*;", re.IGNORECASE)
# Whatever is no system's own, so that what a test that failed has left is nobody else's.
OF_OTHERS = "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN " \
            "('mysql', 'information_schema', 'performance_schema', 'sys')"
ACCOUNTS = "SELECT IF(is_role = 'Y', CONCAT('ROLE ', QUOTE(user)), CONCAT('USER ', QUOTE(user), '@', QUOTE(host))) FROM mysql.user"


def tests_of(suite):
    folder = SOURCE / suite if suite == "main" else SOURCE / "suite" / suite
    return sorted([*folder.glob("*.test"), *folder.glob("t/*.test")])


def runs_here(test):
    if any(test.with_name(test.stem + end).exists() for end in OPTIONS_OF_ITS_OWN):
        return False
    text = test.read_text(encoding="utf-8", errors="replace")
    return not WORDS_OF_ITS_OWN.search(text) and not SYSTEM_TABLES.search(text)


def verdict(text, folders=()):
    """What mtr said of one test: PASSED, None if it left it out, or why it failed, without the folders' names and times."""
    said = re.search(r"^[\w/]+\.\S+ .*\[ (pass|fail|skipped|disabled) \]", text, re.MULTILINE)
    if not said:
        return text[-500:]
    if said[1] != "fail":
        return PASSED if said[1] == "pass" else None
    end = text.find("\n - ", said.end())
    text = text[said.end():end if end > 0 else len(text)]
    for folder in folders:
        text = text.replace(str(folder), "DIR")
    return "\n".join(row for row in text.splitlines() if not row.startswith(("--- ", "+++ ")) and "Test ended at" not in row).strip()


class MariaDbSuite:
    name = "mariadb"

    def __init__(self, suites=()):
        self.suites = suites or ["main"]
        if not (SOURCE / "mariadb-test-run.pl").exists():
            raise FileNotFoundError(f"{SOURCE}/mariadb-test-run.pl is missing: apt install mariadb-test")
        for suite in self.suites:
            if not tests_of(suite):
                raise FileNotFoundError(f"{SOURCE} has no suite {suite}")

    def server(self, native):
        server = MtrServer(free_port() if native else None)
        server.native = native
        server.tests = work_dir("mtr")
        server.tests.chmod(0o777)
        (server.tests / "tmp").mkdir()
        return server

    def run(self, server, address, words, hang, said):
        results, settings, accounts = {}, server.settings(address), server.accounts(address)
        with Relay(server.tests / "tmp" / "mysqld.sock", address):
            for name, test in ((f"{suite}.{test.stem}", test) for suite in self.suites for test in tests_of(suite)):
                if words and not any(word in name for word in words) or not runs_here(test):
                    continue
                server.put_back(address, settings, accounts)
                result = server.one(name, address, hang)
                if result is not None:
                    results[name] = result
                if result or len(results) % 50 == 0:
                    said(f"{len(results)} tests, after {name}{'; it failed' if result else ''}")
                if not (server.answers(address) or hang(None) or server.answers(address)):
                    said("the server answers nobody")
                    if server.native:  # what comes after it would never be missed
                        raise RuntimeError(f"the server answers nobody after {name}, and that natively")
                    return results
        return results


class Relay:
    """Tests that connect to localhost take a Unix socket in /tmp, which is a container's own there."""

    def __init__(self, path, address):
        self.path = path
        self.words = ["socat", f"UNIX-LISTEN:{path},fork,mode=777", f"TCP:{address[0]}:{address[1]}"]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        procs.wait_until(self.path.exists, ANSWER_S, f"socat listens at {self.path}")

    def __exit__(self, *_):
        procs.end_group(self.process)


class MtrServer(MariaDb):
    def prepare(self):
        super().prepare()
        config = self.site / "my.cnf"
        rows = [row for row in config.read_text().splitlines() if not row.startswith(NOT_AS_MTR)]
        write(config, "\n".join(rows) + f"\nuser=root\n{SETTINGS}")

    def remove(self):
        shutil.rmtree(self.tests, ignore_errors=True)
        super().remove()

    @staticmethod
    def ask(address, text):
        words = ["mariadb", "--no-defaults", "-h", address[0], "-P", str(address[1]), "-u", "root", "-N", "-B", "-f"]
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=ANSWER_S, check=False)

    def answers(self, address):
        try:
            return self.ask(address, "SELECT 1").stdout == "1\n"
        except subprocess.TimeoutExpired:
            return False

    def settings(self, address):
        return dict(row.split("\t") for row in self.ask(address, "SHOW GLOBAL VARIABLES").stdout.splitlines() if row.count("\t") == 1)

    def accounts(self, address):
        found = set(self.ask(address, ACCOUNTS).stdout.splitlines())
        if not found:
            raise RuntimeError("the server does not tell its accounts")
        return found

    def put_back(self, address, settings, accounts):
        """What a test that failed has left, which others would fail by."""
        try:
            for name in self.ask(address, OF_OTHERS).stdout.split():
                self.ask(address, f"DROP DATABASE `{name}`")
            self.ask(address, "CREATE DATABASE test; CREATE DATABASE mtr")
            for account in sorted(self.accounts(address) - accounts):
                self.ask(address, f"DROP {account}")
            # mtr's own client takes the semicolon behind a delimiter as the end of the command that sets it.
            self.ask(address, f"USE mtr;\n{(SOURCE / 'include' / 'mtr_warnings.sql').read_text().replace('delimiter ||;', 'delimiter ||')}")
            for name, now in self.settings(address).items():
                if name in settings and now != settings[name]:
                    self.ask(address, f"SET GLOBAL {name} = {literal(settings[name])}")
        except (subprocess.TimeoutExpired, RuntimeError):
            pass  # the test will fail by it

    def one(self, name, address, hang):
        var, output = self.tests / "var", self.tests / "mtr.out"
        shutil.rmtree(var, ignore_errors=True)
        # Its own /tmp, with the relay in it.
        words = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /tmp && exec "$@"', self.tests / "tmp", "perl", "./mariadb-test-run.pl",
                 "--extern", f"host={address[0]}", "--extern", f"port={address[1]}", "--extern", "user=root", f"--vardir={var}",
                 f"--tmpdir={self.tests}/mtr", name]
        with open(output, "wb") as sink:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=SOURCE,
                                       env=os.environ | {"MASTER_MYSOCK": "/tmp/mysqld.sock", "MASTER_MYPORT": str(address[1])},
                                       start_new_session=True)
            try:
                process.wait(TEST_S)
                late = None
            except subprocess.TimeoutExpired:
                late = f"hangs: {hang(name)}"
            procs.end_group(process)
        return late or verdict(procs.read(output), (self.tests, self.site))


def literal(text):
    return text if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else "'" + text.replace("'", "''") + "'"
