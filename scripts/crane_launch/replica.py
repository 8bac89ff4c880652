"""One replica: its configuration file, its craned, its control socket."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tomllib

from . import LaunchError, processes

REPLY_TIMEOUT_S = 2
MAX_REPLY_BYTES = 1 << 20
ENDED_STATES = ("exited", "refused")
ASKED_TO_STOP = "exited with status 0"
DISOWNED = "refuses its database: it is an old or a second copy"  # kExitDisowned of craned
DAMAGED = "refuses its database: it is damaged"  # kExitDamaged
REFUSALS = {3: DISOWNED, 4: DAMAGED}  # by craned's exit status: no further start mends it


def toml_text(value):
    # TOML's basic strings take JSON's escapes; a lone surrogate (a byte that is not UTF-8) has none.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LaunchError(f"not UTF-8, which the configuration cannot hold: {value!r}") from error
    return text


def toml_list(values):
    return "[" + ", ".join(toml_text(value) for value in values) + "]"


def confinement_toml(settings):
    """The [confinement] table, only as far as something is asked for."""
    lines = [f"{key} = {toml_text(settings[key])}" for key in ("user", "group") if settings[key]]
    for name, key in (("capability", "capabilities"), ("system-call", "system_calls"), ("device", "devices"),
                      ("hide", "hide"), ("show", "show")):
        if settings[name]:
            lines.append(f"{key} = {toml_list(settings[name])}")
    if settings["new-privileges"]:
        lines.append("new_privileges = true")
    if settings["disk-quota-bytes"]:
        lines.append(f"disk_quota_bytes = {settings['disk-quota-bytes']}")
        if settings["disk-format"] != "ext4":
            lines.append(f"disk_format = {toml_text(settings['disk-format'])}")
    return ["", "[confinement]", *lines] if lines else []


def egress_toml(settings):
    if settings["egress"] == "refuse":
        return []
    return ["", "[egress]", f"policy = {toml_text(settings['egress'])}",
            *([f"allow = {toml_list(settings['egress-allow'])}"] if settings["egress-allow"] else [])]


def craned_toml(settings, layout, run, number, state_dir, rejoin):
    """The text of STATE/rN/craned.toml."""
    lines = [
        "# Written by crane-run at every start; changes here are lost.",
        f"cluster_id = {toml_text(run['cluster_id'])}",
        f"replica_id = {number}",
        f"state_dir = {toml_text(str(state_dir))}",
        f"log_level = {toml_text(settings['log-level'])}",
        f"mode = {toml_text(settings['mode'])}",
        f"witness = {str(number > settings['replicas'] - settings['witnesses']).lower()}",
        f"isolation = {toml_text(settings['isolation'])}",
        f"server = {toml_list(settings['command'])}",
        f"cwd = {toml_text(settings['cwd'])}",
        f"environment = {toml_list(run['environment'])}",
        f"restart = {toml_text(settings['restart'])}",
        f"stop_s = {settings['stop-s']}",
        f"shim = {toml_text(str(layout.shim))}",
        f"init = {toml_text(str(layout.init))}",
        "", "[port_map]", *(f'"{listen}" = {client}' for listen, client in settings["port-map"].items()),
        "", "[schedule]", f"policy = {toml_text(settings['schedule'])}", f"quantum = {settings['quantum']}",
        f"placement = {toml_text(settings['placement'])}",
        f"watchdog_s = {settings['watchdog-s']}", f"endless_s = {settings['endless-s']}",
        *([f"disturb_seed = {settings['disturb'] + number}"] if settings["disturb"] else []),
        f"backstop = {str(settings['backstop'] == 'on').lower()}",
        "", "[bubble]", f"enabled = {str(not settings['no-time-bubble']).lower()}",
        f"w_timeout_us = {settings['w-timeout-us']}", f"n_clock = {settings['n-clock']}",
        "", "[consensus]", f"heartbeat_ms = {settings['heartbeat-ms']}",
        f"election_timeout_ms = {settings['election-timeout-ms']}",
        f"durability = {toml_text(settings['durability'])}",
        # Ignored where there is a database; without one, a replica that was a member must not vote as if it were new.
        f"rejoin = {str(rejoin).lower()}",
        "", "[output_log]", f"content = {toml_text(settings['output-log'])}",
        "", "[memory]", f"input_mib = {settings['input-mib']}", f"output_mib = {settings['output-mib']}",
        "", "[checkpoint]", f"log_mib = {settings['checkpoint-log-mib']}", f"every_s = {settings['checkpoint-every-s']}",
        f"repair = {str(not settings['no-repair']).lower()}",
        # Who begins from a backup takes the host as it is.
        f"accept_changes = {str(settings['accept-changes'] or bool(settings['restore'])).lower()}",
        "", "[image]", f"store = {toml_text(settings['image-store'])}",
        *([f"base = {toml_text(settings['image'])}"] if settings["image"] else []),
        "", "[disk]", f"reserve_bytes = {settings['disk-reserve-mib'] << 20}",
        *([] if not settings["metrics-port"] else
          ["", "[metrics]", f"listen = {toml_text(metrics_address(settings, number))}"]),
        "", "[machine]", f"cpus = {settings['cpus']}", f"memory_bytes = {settings['memory-bytes']}",
        f"hostname = {toml_text(settings['hostname'])}",
        *([f"addresses = {toml_list(settings['own-address'])}"] if settings["own-address"] else []),
        *confinement_toml(settings),
        *egress_toml(settings),
    ]
    for row in run["replicas"]:
        lines += ["", "[[replica]]", f"id = {row['id']}", f"peer = {toml_text(row['peer'])}",
                  f"client_address = {toml_text(row['client_address'])}"]
    return "\n".join(lines) + "\n"


def metrics_address(settings, number):
    return f"127.0.0.{number}:{settings['metrics-port']}"


def check_metrics_port(settings):
    for number in range(1, settings["replicas"] + 1 if settings["metrics-port"] else 1):
        address = metrics_address(settings, number)
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((f"127.0.0.{number}", settings["metrics-port"]))
                probe.listen()
        except OSError as error:
            raise LaunchError(f"{address}, where metrics are to be served, cannot be had: {error.strerror}; free it or choose "
                              "another with --metrics-port") from error


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def check_client_address(address, ports):
    """Refuses an address that is not this machine's, and ports that are taken."""
    for port in [0, *ports]:
        try:
            with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                probe.listen()
        except OSError as error:
            if port == 0:
                raise LaunchError(f"--client-address {address}: {error.strerror} on this machine") from error
            raise LaunchError(f"{address}:{port}, where clients are to be served, cannot be had: "
                              f"{error.strerror}; free it or choose another with --port-map") from error


def free_peer_ports(count, promised=()):
    """Ports on 127.0.0.1 below the ephemeral range, where no outgoing connection can take one while its craned
    is being restarted. None of those that are promised to others, and free still; nor of those from 15,000 on:
    others look for free ones as well, the tests among them, and two would find the same."""
    low_end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    held, ports = [], []
    try:
        for attempt in range(100 * count):
            probe = socket.socket()
            held.append(probe)
            usable = attempt < 50 * count and low_end > 12_000
            try:
                probe.bind(("127.0.0.1", random.randrange(10_000, min(low_end, 15_000)) if usable else 0))
            except OSError:
                continue
            if probe.getsockname()[1] in promised:
                continue
            ports.append(probe.getsockname()[1])
            if len(ports) == count:
                return ports
        raise LaunchError("no free ports on 127.0.0.1 for the replicas to talk to each other")
    finally:
        for probe in held:
            probe.close()


def ask(state_dir, command, timeout_s=REPLY_TIMEOUT_S):
    """The reply of a craned's control socket as a dictionary; None when it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout_s)
            return ask_on(client, state_dir, command)
    except (OSError, ValueError):
        return None


def ask_on(client, state_dir, command):
    # By a descriptor: the path of a socket may have 107 bytes only.
    folder = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        client.connect(f"/proc/self/fd/{folder}/control.sock")
    finally:
        os.close(folder)
    client.sendall(json.dumps({"cmd": command}).encode() + b"\n")
    reply = b""
    while b"\n" not in reply and len(reply) < MAX_REPLY_BYTES:
        piece = client.recv(65536)
        if not piece:
            break
        reply += piece
    answer = json.loads(reply)
    return answer if isinstance(answer, dict) else None


def is_gone(path):
    """Deleted; what only cannot be looked at now (a disk that fails, a table that is full) is not."""
    try:
        os.stat(path)
        return False
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def trouble_with(path):
    """Why no craned can begin with this configuration, in words; "" where it is text of the kind, whatever it says."""
    try:
        with open(path, "rb") as file:
            tomllib.load(file)
        return ""
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} was deleted"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return f"{path} is no TOML any more ({error})"
    except OSError:  # craned says more
        return ""


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(path, lines, limit=20_000):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


class Replica:
    """A craned that this process started, or an earlier crane-run that was killed."""

    def __init__(self, row, state_dir, layout):
        self.row = row  # of run.json: id, peer, client_address, container, pid, start
        self.number = row["id"]
        self.state_dir = pathlib.Path(state_dir)
        self.layout = layout
        self.process = None
        self.adopted = False
        self.pidfd = -1
        self.folder_gone = False
        self.served = False  # since it was started

    def adopt(self):
        """Watches the craned that is on record, if it lives."""
        try:
            self.pidfd = os.pidfd_open(self.row["pid"]) if self.row["pid"] else -1
        except OSError:
            return False
        if not processes.is_alive(self.row["pid"], self.row["start"]):  # by now the number may be another's
            self.reap()
            return False
        self.adopted = True
        return True

    def start(self):
        self.adopted = False
        try:
            # What a dead craned left would look like the new one's.
            (self.state_dir / "control.sock").unlink(missing_ok=True)
            log = os.open(self.state_dir / "craned.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LaunchError(f"{error.filename}: {error.strerror}") from error
        try:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                [str(self.layout.craned), "--config", str(self.state_dir / "craned.toml")], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, cwd="/")
            try:
                self.pidfd = os.pidfd_open(self.process.pid)
            except OSError:  # out of descriptors: nobody would see its end
                self.process.kill()
                raise
        except OSError as error:
            raise LaunchError(f"{self.layout.craned} cannot be started: {error.strerror}") from error
        finally:
            os.close(log)
        self.row["pid"], self.row["start"] = self.process.pid, processes.start_time(self.process.pid)

    def ended(self):
        """How the craned ended, as text; None while it runs."""
        if self.adopted:  # its status is its parent's to know: what it last said tells
            if processes.is_alive(self.row["pid"], self.row["start"]):
                return None
            return ASKED_TO_STOP if any(line.endswith(": stopped") for line in self.log_tail(1)) else "has ended"
        code = self.process.poll() if self.process else None
        if code is None:
            return None
        if code in REFUSALS:
            return REFUSALS[code]
        return f"was killed by {signal_name(-code)}" if code < 0 else f"exited with status {code}"

    def reap(self):
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1

    def status(self):
        return ask(self.state_dir, "status")

    def log_tail(self, lines=8):
        return tail(self.state_dir / "craned.log", lines)

    def stderr_tail(self, lines=15):
        return tail(self.state_dir / "stderr", lines)
