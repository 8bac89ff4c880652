"""PostgreSQL's regression tests (src/test/regress), a line of the schedule at a time by pg_regress."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from compare import PASSED
from support import procs
from support.databases import Postgres, run
from support.paths import free_port, work_dir

DATABASE = "regression"
LINE_S = 600  # select_parallel, whose every query starts workers, takes minutes
ANSWER_S = 20
# As pg_regress makes it where it may.
DATABASE_SETUP = f"""\
CREATE DATABASE {DATABASE} TEMPLATE = template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
ALTER DATABASE {DATABASE} SET lc_messages TO 'C';
ALTER DATABASE {DATABASE} SET lc_monetary TO 'C';
ALTER DATABASE {DATABASE} SET lc_numeric TO 'C';
ALTER DATABASE {DATABASE} SET lc_time TO 'C';
ALTER DATABASE {DATABASE} SET bytea_output TO 'hex';
ALTER DATABASE {DATABASE} SET timezone_abbreviations TO 'Default';
"""
# Modules of contrib/spi that the tests load from the folder of regress.so.
MODULES = ("autoinc.so", "refint.so")


def schedule_lines(text):
    """The tests of each line that is run."""
    return [line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("test:")]


def verdicts(text):
    """What pg_regress said of each test: its name, and whether it passed."""
    found = re.findall(r"^(?:test|\s+)\s*(\S+)\s+\.\.\. (ok|FAILED|failed)", text, re.MULTILINE)
    return {name: said == "ok" for name, said in found}


def differences(text):
    """regression.diffs by test, without the paths and times of its headers."""
    parts = re.split(r"^diff .*/results/(\S+?)\.out$", text, flags=re.MULTILINE)
    return {name: "\n".join(line for line in body.splitlines() if not line.startswith(("--- /", "+++ /"))).strip()
            for name, body in zip(parts[1::2], parts[2::2])}


class PgSuite:
    name = "postgres"
    server_class = Postgres

    def __init__(self, source, serial):
        self.source = pathlib.Path(source) / "src" / "test" / "regress"
        if not (self.source / "parallel_schedule").exists():
            raise FileNotFoundError(f"{source} has no sources of PostgreSQL: src/test/regress/parallel_schedule is missing")
        self.serial = serial
        self.name = "postgres-serial" if serial else "postgres-parallel"

    def server(self, native):
        """With its own copy of the tests, since it reads and writes there as its own user."""
        server = PgServer(free_port() if native else None)
        server.bring_tests(self.source)
        return server

    def run(self, server, address, words, hang, said):
        """The tests' results; `hang(name)` says what the server waits for, `said` is told how far it is."""
        results = {}
        lines = schedule_lines((self.source / "parallel_schedule").read_text())
        lines = [[name] for line in lines for name in line] if self.serial else lines
        server.ask(address, "postgres", DATABASE_SETUP)
        for tests in lines:
            if words and not any(word in name for word in words for name in tests) and tests != ["test_setup"]:
                continue
            results |= one_line(server, address, tests, hang)
            failed = [name for name in tests if results[name]]
            said(f"{len(results)} tests, after {' '.join(tests)[:60]}{'; failed: ' if failed else ''}{' '.join(failed)}")
            if not (server.answers(address) or hang(None) or server.answers(address)):
                said("the server answers nobody")
                break
        return results


class PgServer(Postgres):
    settings = ("max_prepared_transactions=2", "fsync=off")

    def bring_tests(self, source):
        self.tests = work_dir("pg-regress")
        shutil.copytree(source, self.tests, dirs_exist_ok=True)
        (self.tests / "results").mkdir()
        headers = run_for(str(self.config()), "--includedir-server")
        run("gcc", "-O1", "-w", "-shared", "-fPIC", f"-I{headers}", f"-I{self.tests}", self.tests / "regress.c", "-o",
            self.tests / "regress.so")
        for module in MODULES:
            shutil.copy(pathlib.Path(run_for(str(self.config()), "--pkglibdir")) / module, self.tests)
        run("chown", "-R", "postgres", self.tests)

    def config(self):
        return self.programs / "pg_config"

    def pg_regress(self):
        return pathlib.Path(run_for(str(self.config()), "--pgxs")).parents[1] / "test" / "regress" / "pg_regress"

    def remove(self):
        shutil.rmtree(self.tests, ignore_errors=True)
        super().remove()

    @staticmethod
    def ask(address, database, text, timeout_s=60):
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", address[0], "-p", str(address[1]), "-U", "tester",
                   database]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"psql: {done.stderr}"
        return done.stdout

    def answers(self, address):
        """Whether it does, rid of the sessions that a test may have left."""
        try:
            self.ask(address, "postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{DATABASE}';", ANSWER_S)
            return True
        except (AssertionError, subprocess.TimeoutExpired):
            return False


def run_for(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def one_line(server, address, tests, hang):
    """By a pg_regress of its own. A psql that does not end is killed, which fails its test alone."""
    schedule = server.tests / "line"
    schedule.write_text(f"test: {' '.join(tests)}\n")
    command = [server.pg_regress(), "--use-existing", f"--host={address[0]}", f"--port={address[1]}", "--user=tester",
               f"--dbname={DATABASE}", f"--bindir={server.programs}", f"--inputdir={server.tests}", f"--outputdir={server.tests}",
               f"--dlpath={server.tests}", f"--schedule={schedule}"]
    diffs = server.tests / "regression.diffs"
    diffs.unlink(missing_ok=True)
    hung = {}
    with open(server.tests / "line.out", "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + LINE_S
        while process.poll() is None:
            if time.monotonic() > end:
                for pid, name in clients(process.pid):
                    hung.setdefault(name, f"hangs: {hang(name)}")
                    os.kill(pid, signal.SIGKILL)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                pass
    said = procs.read(server.tests / "line.out")
    passed, differ = verdicts(said), differences(procs.read(diffs))
    return {name: text_of(server, hung.get(name), passed.get(name), differ.get(name, said[-500:])) for name in tests}


def text_of(server, hung, passed, differs):
    return hung or (PASSED if passed else differs.replace(str(server.tests), "DIR"))


def clients(pid):
    """The psqls below pg_regress, each with the test whose results it writes."""
    for below in procs.descendants(pid):
        try:
            output = pathlib.Path(os.readlink(f"/proc/{below}/fd/1"))
        except OSError:
            continue
        if output.parent.name == "results":
            yield below, output.stem
