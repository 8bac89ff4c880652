"""Three hosts on this machine (network namespaces), each with a craned that speaks TLS to the others."""

import json
import os
import shutil
import subprocess
import unittest

from . import procs
from .case import CraneTest
from .hosts import Hosts
from .paths import BUILD, CRANE, SHIM, Settings, work_dir

CLUSTER = f"5f1c02ab{os.getpid():08x}"  # whoever runs the same tests beside these has another
CRANED = BUILD / "bin/craned"


def can_make_hosts():
    try:
        with Hosts(1):
            return True
    except (OSError, subprocess.SubprocessError):
        return False


class ThreeHosts(CraneTest):
    """Redis on three hosts, each with a craned of its own, as an operator sets them up; a fourth has none."""

    timeout_s = 240
    port, client_port = 6379, 6390

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        if os.geteuid() != 0 or not can_make_hosts():
            raise unittest.SkipTest("network namespaces cannot be made here")
        self.dir = work_dir("tls")
        if not Settings.keep:
            self.addCleanup(shutil.rmtree, self.dir)
        self.hosts = self.enterContext(Hosts(4))
        self.craneds = {}
        self.addCleanup(self.end_all)
        self.tool(CRANE, "ca", "init", "--dir", self.dir / "ca", "--cluster", CLUSTER)

    def end_all(self):
        for craned in self.craneds.values():
            craned.terminate()
        for craned in self.craneds.values():
            try:
                craned.wait(20)
            except subprocess.TimeoutExpired:
                craned.kill()
                craned.wait()

    def issue(self, number, *options):
        self.tool(CRANE, "ca", "issue", "--dir", self.dir / "ca", "--replica", number, "--out", self.tls(number), *options)

    def tls(self, number):
        return self.dir / f"tls-{number}"

    def state(self, number):
        return self.dir / f"r{number}"

    def start(self, number, more=""):
        tls = self.tls(number)
        text = (f'cluster_id = "{CLUSTER}"\nreplica_id = {number}\nstate_dir = "{self.state(number)}"\n'
                f'isolation = "none"\ncwd = "{self.dir}"\nshim = "{SHIM}"\ninit = "{BUILD}/bin/crane-init"\n'
                f'server = ["/usr/bin/redis-server", "--port", "{self.port}", "--save", "", "--bind", "0.0.0.0", '
                f'"--protected-mode", "no", "--tcp-keepalive", "0"]\n'
                f'[port_map]\n"{self.port}" = {self.client_port}\n'
                f'[tls]\nca = "{tls}/ca.crt"\ncertificate = "{tls}/replica.crt"\nkey = "{tls}/replica.key"\n{more}')
        for one in (1, 2, 3):
            address = self.hosts.address(one)
            text += f'[[replica]]\nid = {one}\npeer = "{address}:7400"\nclient_address = "{address}"\n'
        (self.dir / f"craned-{number}.toml").write_text(text)
        self.craneds[number] = subprocess.Popen(
            self.hosts.on(number, CRANED, "--config", self.dir / f"craned-{number}.toml"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def log(self, number):
        path = self.state(number) / "craned.log"
        return path.read_text() if path.exists() else ""

    def rows(self):
        out = {}
        for number in self.craneds:
            done = subprocess.run([CRANE, "status", "--json", "--state-dir", self.state(number)], capture_output=True,
                                  text=True, timeout=20, check=False)
            row = (json.loads(done.stdout or "{}").get("replicas") or [{}])[0]
            if row.get("alive"):  # what else is wrong with the cluster makes it exit with 1, too
                out[number] = row
        return out

    def await_primary(self):
        def ready():
            return [n for n, row in self.rows().items() if row.get("role") == "primary" and row.get("server") == "listening"]
        return procs.wait_until(ready, 60, "a primary serves")[0]

    def redis(self, number, *words):
        """Asked from the host that has no replica."""
        return self.tool(*self.hosts.on(4, "redis-cli", "-h", self.hosts.address(number), "-p", self.client_port, *words),
                         timeout_s=30).strip()

    def await_line(self, number, words):
        try:
            procs.wait_until(lambda: words in self.log(number), 30, words)
        except BaseException:
            print(self.log(number))
            raise
