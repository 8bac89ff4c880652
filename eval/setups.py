"""The ways of running a server that the evaluation compares. Each is a context manager of one face:

    addresses   where to send load; the same load to each, at once
    sample()    counters so far: CPU seconds per replica, and what craned counts
    pids()      every process of the system under test
"""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

from support.cluster import Cluster  # noqa: E402
from support.native import NativeServer  # noqa: E402
from support.paths import free_port  # noqa: E402
from support.procs import wait_until  # noqa: E402

COPIES = 3


class Natives(contextlib.ExitStack):
    """One or three independent native servers."""

    def __init__(self, server_class, copies):
        super().__init__()
        self.servers = []
        try:
            for _ in range(copies):
                server = server_class(port=free_port())
                self.callback(server.remove)
                self.servers.append(self.enter_context(NativeServer(server.command(), server.port, name="bench")))
        except BaseException:
            self.close()
            raise
        self.addresses = [one.address() for one in self.servers]

    def sample(self):
        return {"cpu": [one.cpu_seconds() for one in self.servers], "counters": {}}

    def pids(self):
        return [pid for one in self.servers for pid in one.pids()]

    def report(self):
        return "\n".join(" ".join(one.command) for one in self.servers)


class Crane(contextlib.ExitStack):
    """A cluster; `options` choose the mode. Load goes to the primary, whose figures `counters` are."""

    def __init__(self, server_class, replicas, options):
        super().__init__()
        server = server_class()
        self.callback(server.remove)
        try:
            self.cluster = self.enter_context(
                Cluster(server.command(), server.port, replicas=replicas, options=options, name="bench"))
            self.primary = self.find_primary(replicas)
        except BaseException:
            self.close()
            raise
        self.addresses = [self.cluster.address(self.primary)]

    def find_primary(self, replicas):
        if replicas == 1:
            return 1
        wait_until(lambda: len(self.cluster.status()) == replicas, 30, "all replicas answer")
        return self.cluster.primary()

    def with_server(self):
        return {number: row for number, row in self.cluster.status().items() if not row.get("witness")}

    def sample(self):
        rows = self.with_server()
        cpu = [sum(row["cpu_seconds"].values()) for row in rows.values()]
        counters = {key: value for key, value in rows[self.primary]["counters"].items()
                    if isinstance(value, (int, float))}
        counters["domain_cpu"] = rows[self.primary]["cpu_seconds"]["domain"]
        counters["craned_cpu"] = rows[self.primary]["cpu_seconds"]["craned"]
        return {"cpu": cpu, "counters": counters}

    def pids(self):
        return self.cluster.replica_pids(self.primary)

    def report(self):
        return self.cluster.report()

    def identical(self):
        """Of those that have a server."""
        return self.cluster.diff()[0]


# Name, what it is, how to start it. The order is the order within each round.
SETUPS = {
    "native": ("the bare server", lambda server, extra: Natives(server, 1)),
    "dmt": ("deterministic threads alone, one replica",
            lambda server, extra: Crane(server, 1, ["--mode", "dmt", *extra])),
    "proxy": ("proxy and log alone, one replica, server unscheduled",
              lambda server, extra: Crane(server, 1, ["--mode", "proxy", *extra])),
    "crane-1of3": ("one replica with two witnesses, durability disk",
                   lambda server, extra: Crane(server, COPIES, ["--witnesses", COPIES - 1, *extra])),
    "crane": ("full Crane, three replicas, durability disk", lambda server, extra: Crane(server, COPIES, extra)),
    "crane-memory": ("full Crane, three replicas, durability memory",
                     lambda server, extra: Crane(server, COPIES, ["--durability", "memory", *extra])),
    "3natives": ("three bare servers, the same load at each at once", lambda server, extra: Natives(server, COPIES)),
}
