"""A Crane cluster on this machine, as an operator would run it: crane-run --detach, crane status, crane stop.

Only the command line and the documented state directory are used. Everything waits with a limit.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import tomllib

from . import procs
from .paths import CRANE, CRANE_RUN, CRANE_TOOL, Settings, free_port, work_dir

START_TIMEOUT_S = 90
COMMAND_TIMEOUT_S = 60


class ClusterError(AssertionError):
    """The cluster did not do what it must; the text holds all that helps to find out why."""


class Cluster:
    """Context manager: started on entry, stopped and checked for leftovers on exit."""

    def __init__(self, command, port, *, replicas=3, options=(), environment=None, name="cluster", protocol="tcp"):
        self.command = [str(part) for part in command]
        self.server_port = port
        self.client_port = free_port()
        self.protocol = protocol
        self.replicas = replicas
        self.options = [str(option) for option in options]
        self.environment = dict(environment or {})
        self.prefix = []  # what crane-run is started by
        self.dir = work_dir(name)
        self.state = self.dir / "state"
        self.cwd = self.dir
        self.leftovers = []
        self.cluster_id = ""
        self._stopped = False

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if error is not None and hasattr(error, "add_note"):
            error.add_note(self.report())
        self._end()
        if error is None and self.leftovers:
            raise ClusterError("left behind after crane stop:\n  " + "\n  ".join(self.leftovers))

    def start(self):
        arguments = [*self.prefix, CRANE_RUN, "--detach", "--state-dir", self.state]
        if "proxy" not in self.options:  # that mode has one, without being asked for it
            arguments += ["--replicas", self.replicas]
        arguments += ["--port-map", f"{self.server_port}:{self.client_port}"]
        arguments += self.options + ["--"] + self.command
        started = self._run([str(a) for a in arguments], START_TIMEOUT_S, env=os.environ | self.environment)
        if started.returncode != 0:
            raise ClusterError(f"crane-run exited with {started.returncode}\n{started.stdout}{self.report()}")
        self.cluster_id = self.config(1)["cluster_id"]
        self.wait_listening()
        return started.stdout

    def wait_listening(self, timeout_s=START_TIMEOUT_S):
        """Until every living replica's proxy accepts clients."""

        def ready():
            return all(procs.listening(*self.address(n), self.protocol) for n in self.living())

        procs.wait_until(ready, timeout_s, f"all replicas listen for {' '.join(self.command)}")

    def stop(self):
        """A polite stop, which must work."""
        if self._stopped:
            return
        self._stopped = True
        stopped = self.crane("stop")
        if stopped.returncode != 0:
            raise ClusterError(f"crane stop exited with {stopped.returncode}\n{stopped.stdout}{self.report()}")

    def start_again(self, *options):
        """After stop(), with further options for this start alone. What crane-run said."""
        self._stopped, kept = False, self.options
        self.options = kept + [str(option) for option in options]
        try:
            return self.start()
        finally:
            self.options = kept

    def _end(self):
        try:
            self.stop()
        except (ClusterError, subprocess.TimeoutExpired) as error:
            self.leftovers.append(f"crane stop failed: {str(error)[:300]}")
        self.leftovers += self._find_leftovers()
        for pid in self._own_pids():
            _kill(pid)
        if self.cluster_id:
            for path in pathlib.Path("/dev/shm").glob(f"crane-{self.cluster_id}*"):
                shutil.rmtree(path, ignore_errors=True)  # reported above; the next test shall not meet it
        if not Settings.keep:
            remove_tree(self.dir)

    # --- what an operator types -----------------------------------------------------------------

    def _run(self, arguments, timeout_s, env=None):
        # Output goes to a file: a daemon that inherits a pipe would keep the reader waiting.
        output = self.dir / "command.out"
        with open(output, "wb") as sink:
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                                  timeout=timeout_s, env=env, cwd=self.cwd, check=False)
        done.stdout = procs.read(output)
        return done

    def crane(self, verb, *arguments, timeout_s=COMMAND_TIMEOUT_S):
        program = CRANE if verb in ("status", "stop") else CRANE_TOOL
        command = [str(program), verb, "--state-dir", str(self.state), *map(str, arguments)]
        return self._run(command, timeout_s)

    def status(self):
        """One dictionary per replica that answers, by replica id."""
        asked = self.crane("status", "--json")
        answer = parse_json(asked.stdout)
        rows = answer.get("replicas", answer) if isinstance(answer, dict) else answer
        rows = rows.values() if isinstance(rows, dict) else rows
        return {row_id(row): row for row in rows if row_id(row) and alive(row)}

    def primary(self, timeout_s=10):
        """The id of the replica that leads."""

        def find():
            leaders = [n for n, row in self.status().items() if role(row) in ("primary", "leader")]
            return leaders[-1] if leaders else None

        return procs.wait_until(find, timeout_s, "some replica is primary", poll_s=0.1)

    def diff(self, timeout_s=30):
        """(identical, text) as crane diff says, over all that was decided before the call.

        The servers' timers keep adding log entries, so logs rarely end alike at one moment: the living replicas'
        logs are compared until the range that is equal reaches what was decided. A dead replica's log may end early.
        """
        decided = max((row["decided"] for row in self.status().values()), default=0)
        living = self.living()
        logs = [self.state / f"r{n}" / "output.log" for n in living] if len(living) > 1 else []
        deadline = time.monotonic() + timeout_s
        while True:
            compared = self.crane("diff", "--json", "--allow-lag", *logs, timeout_s=COMMAND_TIMEOUT_S * 2)
            result = parse_json(compared.stdout)
            if "verdict" not in result:
                return False, f"crane diff exited with {compared.returncode}\n{compared.stdout}"
            # One that has just started has put nothing out yet, and nothing of it was compared.
            wrong = compared.returncode != 0 and result["verdict"] != "nothing to compare"
            if wrong or result["schedule_difference"]:
                return False, self.crane("diff", *logs, timeout_s=COMMAND_TIMEOUT_S * 2).stdout
            if result["identical"] or result["last_index"] >= decided:
                break
            if time.monotonic() > deadline:
                return False, f"equal only to entry {result['last_index']} of {decided} decided\n{compared.stdout}"
            time.sleep(0.1)
        if len(living) < self.replicas:
            dead_too = self.crane("diff", "--allow-lag", timeout_s=COMMAND_TIMEOUT_S * 2)
            return dead_too.returncode == 0, compared.stdout + dead_too.stdout
        return True, compared.stdout

    def assert_identical(self):
        identical, text = self.diff()
        if not identical:
            raise ClusterError(f"crane diff: the replicas differ\n{text[:4000]}")
        return text

    # --- what a fault injector needs --------------------------------------------------------------

    def config(self, replica):
        with open(self.state / f"r{replica}" / "craned.toml", "rb") as file:
            return tomllib.load(file)

    def address(self, replica=1):
        """Where clients reach the server through this replica."""
        config = self.config(replica)
        for row in config.get("replica", [{"id": replica}]):
            if row["id"] == replica:
                ports = config.get("port_map", {}) | row.get("port_map", {})
                port = ports.get(str(self.server_port), self.server_port)
                return row.get("client_address", "127.0.0.1"), port
        raise ClusterError(f"no [[replica]] with id {replica} in r{replica}/craned.toml")

    def craned_pid(self, replica):
        wanted = f"{self.state}/r{replica}/craned.toml"
        for pid in procs.all_pids():
            words = procs.command_line(pid).split()
            if words and words[0].endswith("craned") and wanted in words and not procs.is_zombie(pid):
                return pid
        return None

    def is_witness(self, replica):
        return self.config(replica).get("witness", False)

    def living(self):
        """Those that have a server."""
        return [n for n in range(1, self.replicas + 1) if self.craned_pid(n) and not self.is_witness(n)]

    def replica_pids(self, replica):
        """craned and every process of its domain."""
        container = f"crane-{self.cluster_id}"[:14]
        mine = set()
        daemon = self.craned_pid(replica)
        if daemon:
            mine |= {daemon, *procs.descendants(daemon)}
        for pid in procs.all_pids():
            for line in procs.read(f"/proc/{pid}/cgroup").splitlines():
                if container in line and line.rstrip("/").rsplit("-", 1)[-1].split("/")[0] == str(replica):
                    mine.add(pid)
        return sorted(pid for pid in mine if not procs.is_zombie(pid))

    def server_pid(self, replica):
        """The server's main process: pid 2 of its namespace, else the child of crane-init."""
        pids = [p for p in self.replica_pids(replica) if p != self.craned_pid(replica)]
        inside = [p for p in pids if procs.namespace_pid(p) == 2]
        below = [p for p in pids if "crane-init" in procs.command_line(procs.parent(p))]
        found = inside or below
        if not found:
            raise ClusterError(f"replica {replica} has no server process\n{self.report()}")
        return found[0]

    def supervisor_pids(self):
        """crane-run."""
        return [pid for pid in self._own_pids() if "crane-run" in procs.command_line(pid)]

    def kill_craned(self, replica):
        procs.kill(self.craned_pid(replica))

    def kill_server(self, replica):
        procs.kill(self.server_pid(replica))

    def cpu_seconds(self, replica):
        return procs.cpu_seconds(self.replica_pids(replica))

    # --- after it -------------------------------------------------------------------------------

    def report(self):
        """All that helps to see why a test failed."""
        parts = [f"\n--- cluster {' '.join(self.command)}  (state {self.state})"]
        try:
            parts.append(self.crane("status", timeout_s=15).stdout)
        except (subprocess.TimeoutExpired, OSError) as error:
            parts.append(f"crane status: {error}")
        for n in range(1, self.replicas + 1):
            for file in ("craned.log", "stderr", "stdout"):
                text = procs.tail(self.state / f"r{n}" / file)
                if text:
                    parts.append(f"--- r{n}/{file}\n{text}")
        return "\n".join(parts)

    def _own_pids(self):
        marks = [str(self.state)]
        if self.cluster_id:
            marks.append(f"crane-{self.cluster_id}")
        mine = []
        for pid in procs.all_pids():
            if pid == os.getpid() or procs.is_zombie(pid):
                continue
            text = procs.command_line(pid) + procs.read(f"/proc/{pid}/cgroup")
            if any(mark in text for mark in marks):
                mine.append(pid)
        return mine

    def _find_leftovers(self):
        def look():
            found = [f"process {pid}: {procs.command_line(pid)[:150]}" for pid in self._own_pids()]
            marks = [str(self.state)] + ([f"crane-{self.cluster_id}"] if self.cluster_id else [])
            for line in procs.read("/proc/self/mountinfo").splitlines():
                if any(mark in line for mark in marks):
                    found.append(f"mount {line.split()[4]}")
            if self.cluster_id:
                for base in ("/sys/fs/cgroup", "/var/lib/lxc"):
                    # os.walk goes on when another container's folder vanishes under it; glob does not.
                    for folder, below, _ in os.walk(base):
                        found += [f"container {folder}/{name}" for name in below
                                  if f"crane-{self.cluster_id}" in name]
                for path in pathlib.Path("/dev/shm").glob(f"crane-{self.cluster_id}*"):
                    found.append(f"shared memory {path}")
            return found

        deadline = time.monotonic() + 5  # the kernel takes down a pid namespace in its own time
        while (found := look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


def remove_tree(path):
    """A daemon that is just ending may still write a last file into a folder while it is being removed."""
    for _ in range(20):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.1)


def parse_json(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise ClusterError(f"no JSON ({error}):\n{text[:2000]}") from error


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def row_id(row):
    return row.get("replica_id", row.get("replica", row.get("id")))


def role(row):
    return str(row.get("role", "")).lower()


def alive(row):
    return row.get("alive", True) and role(row) not in ("", "down", "unreachable", "dead")
