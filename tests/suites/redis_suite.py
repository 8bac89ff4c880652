"""Redis's own tests (tests/ of its sources), a unit at a time, against a server that they did not start."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

from compare import PASSED, numbered
from support.paths import free_port, work_dir
from support.redisclient import Redis as Client, RedisError
from support.servers import Redis

TEST_S = 120  # without any progress, which runtest itself watches
UNIT_S = 900
ANSWER_S = 20
# As Redis's own continuous integration runs them against such a server.
TAGS = "-slow"
# It moves the server to a port that another socket of the host has, which natively fails. A replica's server has a
# network of its own, where the port is free: nobody would reach it there, and the rest of the unit would be lost.
LEFT_OUT = "CONFIG SET rollback on apply error"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Tools that the tests call by these paths.
TOOLS = ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb")


def results_of(unit, text):
    """What runtest said of each test of a unit."""
    found, names, inside = [], [], None
    for line in COLOUR.sub("", text).splitlines():
        said = re.match(r"\[(ok|err|exception)\]: (.*)", line)
        if said and said[1] == "ok":
            names.append(re.sub(r" \(\d+ ms\)$", "", said[2]))
            found.append(PASSED)
            inside = None
        elif said:
            names.append(re.sub(r" in tests/.*", "", said[2]))
            found.append(said[2])
            inside = len(found) - 1
        elif line.startswith(("[", "\n", "Cleanup", "                   The End")) or not line.strip():
            inside = None
        elif inside is not None:
            found[inside] += f"\n{line}"
    return dict(zip((f"{unit}: {name}" for name in numbered(names)), found))


def in_progress(text):
    """The test that a time limit ended."""
    found = re.findall(r"=> \(IN PROGRESS\) (.*)", COLOUR.sub("", text))
    return found[0] if found else None


class RedisSuite:
    name = "redis"

    def __init__(self, source):
        self.source = pathlib.Path(source)
        if not (self.source / "tests" / "test_helper.tcl").exists():
            raise FileNotFoundError(f"{source} has no sources of Redis: tests/test_helper.tcl is missing")

    def server(self, native):
        server = RedisServer(free_port() if native else None)
        server.tests = work_dir("redis-tests")
        for name in ("tests", "runtest", "redis.conf"):
            copy = shutil.copytree if (self.source / name).is_dir() else shutil.copy
            copy(self.source / name, server.tests / name)
        (server.tests / "src").mkdir()
        for tool in TOOLS:
            (server.tests / "src" / tool).symlink_to(f"/usr/bin/{tool}")
        return server

    def units(self):
        text = (self.source / "tests" / "test_helper.tcl").read_text()
        return re.search(r"set ::all_tests \{(.*?)\}", text, re.DOTALL)[1].split()

    def run(self, server, address, words, hang, said):
        results, settings = {}, server.settings(address)
        for unit in self.units():
            if words and not any(word in unit for word in words):
                continue
            found = one_unit(server, address, unit, hang)
            results |= found
            if found:
                failed = [name.partition(": ")[2] for name, text in found.items() if text != PASSED]
                said(f"{len(results)} tests, after {unit}{'; failed: ' if failed else ''}{'; '.join(failed)}")
            if not (server.answers(address) or hang(None) or server.answers(address)):
                said(f"the server answers nobody after {unit}")
                break
            server.put_back(address, settings)
        return results


class RedisServer(Redis):
    def command(self):
        return [*super().command(), "--enable-protected-configs", "yes", "--enable-module-command", "yes"]

    def remove(self):
        shutil.rmtree(self.tests, ignore_errors=True)
        super().remove()

    @staticmethod
    def answers(address):
        try:
            with Client(address, ANSWER_S) as client:
                return client("ping") == "PONG"
        except (OSError, RedisError):
            return False

    @staticmethod
    def settings(address):
        with Client(address, ANSWER_S) as client:
            flat = client("config", "get", "*")
            return dict(zip(flat[::2], flat[1::2]))

    def put_back(self, address, settings):
        """What a test that failed has left set, which others would fail by."""
        now = self.settings(address)
        with Client(address, ANSWER_S) as client:
            for name, value in settings.items():
                if now.get(name) != value:
                    client.send("config", "set", name, value)
                    client.reply()


def one_unit(server, address, unit, hang):
    output = server.tests / "unit.out"
    command = ["./runtest", "--host", address[0], "--port", str(address[1]), "--single", unit, "--timeout", str(TEST_S), "--durable",
               "--tags", TAGS, "--skiptest", LEFT_OUT, "--baseport", str(free_port())]
    with open(output, "wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=server.tests,
                                   start_new_session=True)
        try:
            process.wait(UNIT_S)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        if late or in_progress(output.read_text(errors="replace")):
            stuck = hang(unit)
        for name in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, name)
            except ProcessLookupError:
                break
        process.wait()
    text = output.read_text(errors="replace")
    results = results_of(unit, text)
    if name := in_progress(text):
        results[f"{unit}: {name}"] = f"hangs: {stuck}"
    elif late:
        results[f"{unit}: the unit"] = f"does not end in {UNIT_S} s: {stuck}"
    return results
