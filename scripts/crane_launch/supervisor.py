"""Starts the craneds of one machine, says when the server is ready, keeps them running, stops them."""

import os
import select
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from . import LaunchError, processes
from .environment import server_environment
from .layout import Layout
from .replica import (ENDED_STATES, Replica, ask, check_client_address, craned_toml, free_peer_ports)
from .state import State

STOP_WAIT_S = 5
STATUS_EVERY_S = 2
MIN_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5
HEALTHY_AFTER_S = 20
ASKED_TO_STOP = "exited with status 0"
MAX_RESTARTS = 10  # in a row, none of which stayed up


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP came."""


class Signals:
    """Turns the signals that ask for an end into something that can be waited for."""

    def __init__(self):
        self.received = 0
        self.read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number, _frame):
        del number
        self.received += 1

    def wait(self, seconds, descriptors=()):
        """Until a descriptor is readable, the time is over, or (as Interrupted) a signal came."""
        if self.received:
            raise Interrupted
        poller = select.poll()
        for descriptor in (self.read_end, *descriptors):
            poller.register(descriptor, select.POLLIN)
        poller.poll(max(0, seconds) * 1000)
        try:
            os.read(self.read_end, 64)
        except BlockingIOError:
            pass
        if self.received:
            raise Interrupted


class Supervisor:
    """One run of a cluster: construct, run(). `say` takes lines for the operator."""

    def __init__(self, settings, say):
        self.settings = settings
        self.say = say
        self.state = State(settings["state-dir"])
        self.layout = Layout()
        self.replicas = []
        self.signals = None
        # Longer than an election, so that a backup leads by then: a primary that came back at once could be
        # elected again while its server still replays the log.
        self.first_backoff_s = max(MIN_BACKOFF_S, 2 * settings["election-timeout-ms"] / 1000)
        self.backoff = {}  # replica number -> (seconds, restarts in a row, when it may start again or 0)

    def run(self, on_ready=lambda: None):
        """Until the cluster has ended. The exit status for crane-run."""
        self.layout.check()
        if self.settings["isolation"] == "lxc":
            check_container_host()
        self.state.lock()
        self.signals = Signals()
        try:
            self._prepare()
            for replica in self.replicas:
                replica.start()
            self.state.save()
            code = self._wait_ready()
            if code is not None:
                return code
            on_ready()
            return self._watch()
        except Interrupted:
            self.say("stopping ...")
            return 0
        finally:
            self._stop()

    # --- before anything runs ----------------------------------------------------------------------

    def _prepare(self):
        settings, state = self.settings, self.state
        try:
            state.load()
        except LaunchError:
            if not settings["fresh"]:
                raise
        found = state.clean()
        if found:
            self.say(f"ended {len(found)} process(es) that an earlier run left")
        if settings["fresh"]:
            state.discard_log()
        identity = settings.identity()
        state.check_same(identity)
        for address in settings["client-address"]:
            check_client_address(address, settings["port-map"].values())
        goes_on = state.has_log()
        environment = state.run.get("environment") if goes_on else None
        cluster_id = state.cluster_id() if goes_on else State(state.path).cluster_id()
        ports = free_peer_ports(settings["replicas"])
        state.run = {"version": 1, "cluster_id": cluster_id, "identity": identity,
                     "environment": environment or server_environment(settings["command"], settings["env"]),
                     "supervisor": {"pid": os.getpid(), "start": processes.start_time(os.getpid())},
                     "port_map": {str(listen): client for listen, client in settings["port-map"].items()},
                     "replicas": [{"id": n, "peer": f"127.0.0.1:{ports[n - 1]}",
                                   "client_address": settings["client-address"][n - 1],
                                   "container": f"crane-{cluster_id[:8]}-{n}", "pid": 0, "start": 0}
                                  for n in range(1, settings["replicas"] + 1)]}
        state.save()
        for row in state.run["replicas"]:
            folder = state.replica_dir(row["id"])
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
            text = craned_toml(settings, self.layout, state.run, row["id"], folder)
            (folder / "craned.toml").write_text(text)
            if not goes_on:
                for name in ("stdout", "stderr", "craned.log"):
                    (folder / name).unlink(missing_ok=True)
            self.replicas.append(Replica(row, folder, self.layout))
        self.say(f"{'going on with' if goes_on else 'starting'} {' '.join(settings['command'])} on "
                 f"{settings['replicas']} replica(s), state in {state.path}")

    # --- the start ---------------------------------------------------------------------------------

    def _all_status(self):
        """By replica number; None for one that does not answer. Asked at the same time."""
        with ThreadPoolExecutor(max_workers=len(self.replicas)) as pool:
            return dict(zip((r.number for r in self.replicas), pool.map(Replica.status, self.replicas)))

    def _wait_ready(self):
        """None when the server is ready, else the exit status."""
        deadline = time.monotonic() + self.settings["timeout-s"]
        pause = 0.02
        while True:
            dead = {r.number: r for r in self.replicas if r.ended()}
            rows = {n: row or {} for n, row in self._all_status().items()}
            server = {n: row.get("server", "starting") for n, row in rows.items()}
            open_ = [n for n in server if n not in dead and server[n] not in (*ENDED_STATES, "listening")]
            late = time.monotonic() > deadline
            if not open_ and not late and self._lacks_primary(rows, server):
                open_ = ["primary"]
            # Where the primary's server listens, a replica that cannot follow is a fault to survive.
            if not open_ or late:
                return self._judge_start(rows, server, dead, late)
            self.signals.wait(pause)
            pause = min(pause * 1.5, 0.25)

    def _lacks_primary(self, rows, server):
        """Servers listen before an election has ended; clients are served after it."""
        listening = [n for n, what in server.items() if what == "listening"]
        return (self.settings["mode"] == "full" and len(listening) > len(self.replicas) // 2
                and all(rows[n].get("role") != "primary" for n in listening))

    def _judge_start(self, rows, server, dead, late):
        good = [n for n in server if n not in dead and server[n] == "listening"]
        if not good and late:
            good = [n for n in server if n not in dead and server[n] == "running"]
            if good:
                self.say("the server runs, but listens on no TCP port yet")
        if len(good) <= len(self.replicas) // 2:
            self._explain_failure(rows, server, dead, late)
            return 1
        for replica in self.replicas:
            self._print_replica(replica, rows[replica.number], server[replica.number], dead)
        self.say("ready")
        return None

    def _print_replica(self, replica, row, server, dead):
        if replica.number in dead:
            self.say(f"  replica {replica.number}: its craned {replica.ended()}")
            return
        clients = [item.get("client", "?") for item in row.get("listen", [])] or [replica.row["client_address"]]
        self.say(f"  replica {replica.number}: {', '.join(clients)}  {row.get('role', '?')}  server {server}"
                 f"  {replica.state_dir}")

    def _explain_failure(self, rows, server, dead, late):
        self.say(f"the server {self.settings['command'][0]} did not start")
        for replica in self.replicas:
            row = rows[replica.number]
            if replica.number in dead:
                self.say(f"  replica {replica.number}: its craned {replica.ended()}; the end of {replica.state_dir}"
                         "/craned.log:")
                self._say_lines(replica.log_tail())
            elif server[replica.number] in ENDED_STATES or late:
                what = row.get("message") or server[replica.number]
                time_text = f" after {self.settings['timeout-s']:g} s (--timeout-s)" if late else ""
                self.say(f"  replica {replica.number}: {server[replica.number]}{time_text}: {what}")
        # All replicas run the same: one replica's stderr tells.
        for replica in self.replicas:
            lines = replica.stderr_tail()
            if lines:
                self.say(f"  the server's stderr ({replica.state_dir}/stderr) ends:")
                self._say_lines(lines)
                break

    def _say_lines(self, lines):
        for line in lines:
            self.say(f"    {line}")

    # --- while it runs -------------------------------------------------------------------------------

    def _watch(self):
        next_status = time.monotonic() + STATUS_EVERY_S
        while True:
            running = [r.pidfd for r in self.replicas if r.pidfd >= 0]
            due = [at for _, _, at in self.backoff.values() if at]
            self.signals.wait(min([next_status, *due]) - time.monotonic(), running)
            for replica in self.replicas:
                self._watch_one(replica)
            if all(r.pidfd < 0 and not self.backoff.get(r.number, (0, 0, 0))[2] for r in self.replicas):
                self.say("no replica is left; stopping")
                return 0 if all(r.ended() == ASKED_TO_STOP for r in self.replicas) else 1
            if time.monotonic() >= next_status:
                next_status = time.monotonic() + STATUS_EVERY_S
                code = self._server_ended()
                if code is not None:
                    return code

    def _watch_one(self, replica):
        seconds, restarts, at = self.backoff.get(replica.number, (self.first_backoff_s, 0, 0))
        if replica.pidfd >= 0 and replica.ended():
            how = replica.ended()
            replica.reap()
            lived_s = time.monotonic() - replica.row.get("since", 0)
            if lived_s > HEALTHY_AFTER_S:
                seconds, restarts = self.first_backoff_s, 0
            if how == ASKED_TO_STOP:
                self.say(f"replica {replica.number}: its craned was asked to stop")
                self.backoff.pop(replica.number, None)
                return
            if self.settings["no-restart"] or restarts >= MAX_RESTARTS:
                why = "--no-restart" if self.settings["no-restart"] else f"it died {restarts} times in a row"
                self.say(f"replica {replica.number}: its craned {how}; not restarted ({why}); see "
                         f"{replica.state_dir}/craned.log")
                self.backoff[replica.number] = (seconds, restarts, 0)
                return
            self.say(f"replica {replica.number}: its craned {how}; restarting it in {seconds:.1f} s")
            self.backoff[replica.number] = (seconds, restarts, time.monotonic() + seconds)
        elif at and time.monotonic() >= at:
            replica.start()
            replica.row["since"] = time.monotonic()
            self.backoff[replica.number] = (max(seconds, min(seconds * 2, MAX_BACKOFF_S)), restarts + 1, 0)
            self.state.save()

    def _server_ended(self):
        """The exit status when the server has ended on every replica that answers; else None."""
        rows = [row for row in self._all_status().values() if row]
        if len(rows) <= len(self.replicas) // 2 or any(row.get("server") != "exited" for row in rows):
            return None
        text = rows[0].get("message") or "exited"
        self.say(f"the server has ended on all replicas: {text}")
        return 0 if "status 0" in text else 1

    # --- the end -------------------------------------------------------------------------------------

    def _stop(self):
        """Asks, waits, kills; leaves nothing behind."""
        identities = [(r.row["pid"], r.row["start"]) for r in self.replicas if r.row.get("pid")]
        stop_processes(self.replicas_dirs(), identities)
        for replica in self.replicas:
            replica.ended()
            replica.reap()
        try:
            self.state.clean()
        except LaunchError as error:
            self.say(str(error))
        for row in self.state.run.get("replicas", []):
            row["pid"], row["start"] = 0, 0
        if self.replicas:
            self.state.run["supervisor"] = {}
            self.state.save()

    def replicas_dirs(self):
        return [r.state_dir for r in self.replicas]


def stop_processes(state_dirs, identities):
    """{"cmd":"stop"} to every craned, a bounded wait, then SIGKILL by pid and start time."""
    if state_dirs:
        with ThreadPoolExecutor(max_workers=len(state_dirs)) as pool:
            list(pool.map(lambda folder: ask(folder, "stop"), state_dirs))
    for identity in processes.wait_gone(identities, STOP_WAIT_S):
        processes.send_signal(*identity, signal.SIGKILL)
    processes.wait_gone(identities, STOP_WAIT_S)


def check_container_host():
    if os.geteuid() != 0:
        raise LaunchError("containers need root: run crane-run as root, or with --isolation none")
    if not shutil.which("lxc-start"):
        raise LaunchError("lxc-start is not installed: run scripts/install_deps.sh (or apt-get install lxc), or use "
                          "--isolation none")


def stop_cluster(path, say):
    """What `crane stop` does: ends the crane-run of the state directory, or what a dead one left. Exit status."""
    state = State(path)
    state.load()
    supervisor = state.run.get("supervisor") or {}
    identity = (supervisor.get("pid"), supervisor.get("start"))
    if state.is_locked() and processes.is_alive(*identity):
        processes.send_signal(*identity, signal.SIGTERM)
        if not processes.wait_gone([identity], 4 * STOP_WAIT_S):
            say("stopped")
            return 0
        say("crane-run does not end; killing it")
        processes.send_signal(*identity, signal.SIGKILL)
        processes.wait_gone([identity], STOP_WAIT_S)
    if not state.run:
        say(f"nothing was ever started in {path}")
        return 0
    state.lock()
    recorded = state.recorded_processes()
    stop_processes([state.replica_dir(row["id"]) for row in state.run.get("replicas", [])] if recorded else [], recorded)
    found = state.clean()
    say("stopped what an earlier run left" if recorded or found else "nothing runs here")
    return 0
