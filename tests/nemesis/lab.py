"""Three real craneds with a server, started from configuration files as on three hosts.

Everything runs in namespaces of its own (enter()): network, mounts, processes, /dev/shm. They end with the process that
made them, however that ends, and with them every replica, address, mount and loop device; only a directory below
/var/tmp can be left, and the next run removes it.
"""

import fcntl
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e")]

from crane_launch.replica import ask  # noqa: E402
from support import procs  # noqa: E402
from support.paths import BUILD  # noqa: E402
from support.procs import tail, wait_until  # noqa: E402

INSIDE = "CRANE_NEMESIS_INSIDE"
WORK_PARENT = pathlib.Path(os.environ.get("CRANE_E2E_DIR", "/var/tmp"))
PREFIX = "crane-nemesis-"
PEER_PORT, CLIENT_PORT, SERVER_PORT = 7400, 8400, 9400
CANNOT = 77  # the exit status that says: not possible here


class LabError(Exception):
    """The cluster did not do what it must."""


def enter():
    """Goes on in own namespaces: runs this program again inside them. Returns once there."""
    if os.environ.get(INSIDE):
        # The first process of a pid namespace has no default actions.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
        return
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run([*own, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if tried.returncode != 0:
        print(f"skipped: no namespaces of its own can be had here ({tried.stderr.strip()}); run it as root")
        sys.exit(CANNOT)
    sys.stdout.flush()
    os.execvpe(own[0], [*own, sys.executable, "-B", *sys.argv], os.environ | {INSIDE: "1"})


def work_dir():
    """A new directory, locked for as long as this process lives. Those that nobody holds are removed."""
    for old in WORK_PARENT.glob(PREFIX + "*"):
        try:
            lock = os.open(old / "lock", os.O_RDONLY)
        except OSError:
            continue  # just being made, or no directory of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    path = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=WORK_PARENT))
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT)  # inheritable only by what this process forks
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path


class Member:
    """One replica: its directory, its craned."""

    def __init__(self, number, state_dir, address, prefix=()):
        self.number, self.dir, self.address, self.prefix = number, state_dir, address, list(prefix)
        self.clock_file = state_dir.parent / f"clock-{number}"  # the replica's own disk may be full
        self.process = None
        self.starts = 0

    def start(self):
        if self.running():
            return
        with open(self.dir.parent / f"craned-{self.number}.out", "ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, str(BUILD / "bin" / "craned"), "--config", str(self.dir / "craned.toml")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
                env=os.environ | {"LD_PRELOAD": str(BUILD / "lib" / "host-clock.so"),
                                  "HOST_CLOCK_FILE": str(self.clock_file)})
        self.starts += 1

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        """To craned. False: it does not run."""
        if not self.running():
            return False
        self.process.send_signal(number)
        return True

    def kill(self):
        did = self.signal(signal.SIGKILL)
        if did:
            self.process.wait()
        return did

    def set_clock(self, offset_ms):
        """Its host's real-time clock is off by so much from now on."""
        new = self.clock_file.with_suffix(".new")
        new.write_text(str(offset_ms))
        new.rename(self.clock_file)

    def status(self, timeout_s=2):
        return (ask(self.dir, "status", timeout_s) or {}) if self.running() else {}

    @property
    def log(self):
        return self.dir / "craned.log"


class Lab:
    """Context manager. `wrap` gives the command prefix of a replica, `state_dir` prepares where it writes."""

    def __init__(self, command, *, isolation="none", addresses=None, wrap=lambda number: (), extra=""):
        self.command, self.isolation, self.extra = [str(word) for word in command], isolation, extra
        self.path = work_dir()
        self.authority = None  # of the replicas' certificates
        self.cluster_id = secrets.token_hex(8)
        addresses = addresses or [f"127.0.0.{number}" for number in (1, 2, 3)]
        self.members = [Member(number, self.path / f"r{number}", address, wrap(number))
                        for number, address in enumerate(addresses, 1)]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for member in self.members:
            member.signal(signal.SIGCONT)
            member.signal(signal.SIGTERM)
        for member in self.members:
            if member.process:
                try:
                    member.process.wait(10)
                except subprocess.TimeoutExpired:
                    member.kill()
        if error is None and not os.environ.get("CRANE_NEMESIS_KEEP"):
            for _ in range(50):  # what still ends may write a last file
                shutil.rmtree(self.path, ignore_errors=True)
                if not self.path.exists():
                    break
                time.sleep(0.1)

    def make_certificates(self):
        """As craned wants them where peers are not on loopback."""
        if all(member.address.startswith("127.") for member in self.members):
            return
        self.authority = self.path / "ca"
        self.crane("ca", "init", "--dir", self.authority, "--cluster", self.cluster_id)
        for member in self.members:
            self.crane("ca", "issue", "--dir", self.authority, "--replica", member.number)

    @staticmethod
    def crane(*words):
        done = subprocess.run([str(BUILD / "bin" / "crane"), *map(str, words)], stdin=subprocess.DEVNULL, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"crane {' '.join(map(str, words))}: {done.stdout}")

    def start(self):
        self.make_certificates()
        for member in self.members:
            member.dir.mkdir(exist_ok=True)
            self.write_config(member, rejoin=False)
        for member in self.members:
            member.start()
        self.wait_level(60)
        # From now on, a replica without a database has lost one.
        for member in self.members:
            self.write_config(member, rejoin=True)

    def write_config(self, member, rejoin):
        words = json.dumps
        lines = [f'cluster_id = "{self.cluster_id}"', f"replica_id = {member.number}",
                 f'state_dir = "{member.dir}"', f'isolation = "{self.isolation}"',
                 f"server = {words(self.command)}", 'environment = ["PATH=/usr/bin:/bin", "LANG=C"]',
                 f'shim = "{BUILD}/lib/libcrane.so"', f'init = "{BUILD}/bin/crane-init"', self.extra,
                 "[port_map]", f'"{SERVER_PORT}" = {CLIENT_PORT}',
                 "[consensus]", f"rejoin = {str(rejoin).lower()}"]
        if self.authority:
            own = self.authority / f"replica-{member.number}"
            lines += ["[tls]", f'ca = "{own}/ca.crt"', f'certificate = "{own}/replica.crt"',
                      f'key = "{own}/replica.key"']
        for one in self.members:
            lines += ["[[replica]]", f"id = {one.number}", f'peer = "{one.address}:{PEER_PORT}"',
                      f'client_address = "{one.address}"']
        (member.dir / "craned.toml").write_text("\n".join(lines) + "\n")

    # --- looking ---------------------------------------------------------------------------------------

    def statuses(self, timeout_s=2):
        return {member.number: row for member in self.members if (row := member.status(timeout_s))}

    def primary(self):
        """The number of the replica that leads in the latest view, or None."""
        rows = [row for row in self.statuses(0.3).values() if row["role"] == "primary"]
        return max(rows, key=lambda row: row["view"])["replica"] if rows else None

    def level(self):
        """All replicas run, serve, and have carried out all that is decided."""
        rows = self.statuses().values()
        return (len(rows) == len(self.members) and len({row["decided"] for row in rows}) == 1
                and all(row["lag"] == 0 and row["server"] == "listening" for row in rows)
                and any(row["role"] == "primary" and row["ready"] for row in rows))

    def wait_level(self, timeout_s):
        try:
            wait_until(self.level, timeout_s, "all replicas run and are level", poll_s=0.02)
        except TimeoutError as error:
            raise LabError(f"{error}\n{self.report()}") from error

    def differences(self):
        """What `crane diff` says of the output logs; empty when they are byte for byte the same."""
        logs = [str(member.dir / "output.log") for member in self.members]
        compared = subprocess.run([str(BUILD / "bin" / "crane"), "diff", "--json", *logs], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        text = compared.stdout.decode(errors="replace")
        try:
            same = compared.returncode == 0 and json.loads(text)["identical"]
        except (ValueError, KeyError):
            same = False
        return "" if same else text

    def report(self):
        parts = [f"state in {self.path}"]
        for member in self.members:
            row = member.status()
            shown = ("role", "view", "leader", "decided", "admitted", "lag", "server", "message")
            parts.append(f"replica {member.number}: " + (json.dumps({key: row.get(key) for key in shown}) if row else
                                                        "no answer" if member.running() else "not running"))
            parts.append(tail(member.log, 12))
        return "\n".join(parts)
