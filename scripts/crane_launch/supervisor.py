"""Starts the craneds of one machine, says when the server is ready, keeps them running, stops them."""

import os
import re
import resource
import select
import shutil
import signal
import time

from . import LaunchError, image, processes
from .layout import Layout
from .preparation import Preparation
from .replica import ASKED_TO_STOP, DAMAGED, ENDED_STATES, REFUSALS, Replica, craned_toml, is_gone, trouble_with
from .report import StartReport, closed_ports, leaves_at_once, server_state
from .state import State, write_private
from .stop import stop_processes

STATUS_EVERY_S = 2
# Short, since a primary that is back at once is not elected again: while its server replays it leaves that to others.
FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5
HEALTHY_AFTER_S = 20
USEFUL_AFTER_S = 8
QUICK_RESTARTS = 10  # in a row, none of which came to serve: then pauses grow beyond MAX_BACKOFF_S
MAX_PAUSE_S = 300
FEW_DESCRIPTORS = 1256


def ending_signals():
    """Those that ask for an end; not SIGHUP for who said nohup."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP came."""


class Signals:
    """Turns the signals that ask for an end into something that can be waited for."""

    def __init__(self):
        self.received = 0  # the first one's number
        self.read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in ending_signals():
            signal.signal(number, self._note)

    def _note(self, number, _frame):
        self.received = self.received or number

    def check(self):
        if self.received:
            raise Interrupted

    def wait(self, seconds, descriptors=()):
        """Until a descriptor is readable, the time is over, or (as Interrupted) a signal came."""
        self.check()
        poller = select.poll()
        for descriptor in (self.read_end, *descriptors):
            poller.register(descriptor, select.POLLIN)
        poller.poll(max(0, seconds) * 1000)
        try:
            os.read(self.read_end, 64)
        except BlockingIOError:
            pass
        self.check()


class Supervisor:
    """One run of a cluster: construct, run(). `say` takes lines for the operator."""

    def __init__(self, settings, say):
        self.settings = settings
        self.say = say
        self.state = State(settings["state-dir"])
        self.layout = Layout()
        self.replicas = []
        self.signals = None
        self.ready = False
        self.unsaved = False  # run.json is behind; said once
        self.told = {}  # replica -> what its craned.toml is to say, as far as it is ours
        self.closed = {}  # (replica, port) -> why no client is served there
        self.disowned = set()  # numbers of replicas that wait to be rebuilt
        self.next_status = 0.0  # when the replicas are asked again
        self.trouble = ""  # why the last round of watching came to nothing
        self.backoff = {}  # replica number -> (seconds, restarts in a row, when it may start again or 0)

    def run(self, on_ready=lambda: None):
        """Until the cluster has ended. The exit status for crane-run."""
        self.layout.check()
        if self.settings["isolation"] == "lxc":
            check_container_host()
        self.state.check_owner()
        self.state.lock()
        self.signals = Signals()
        self._warn_of_limits()
        try:
            rows = Preparation(self.settings, self.state, self.layout, self.say).prepare(self.signals.check)
            self.replicas = [Replica(row, self.state.replica_dir(row["id"]), self.layout) for row in rows]
            for replica in self.replicas:
                if not replica.adopt():
                    replica.start()
            self.state.save()
            code = self._wait_ready()
            if code is not None:
                return code
            on_ready()
            return self._watch()
        except Interrupted:
            self.say("stopping ...")
            return 0 if self.ready else 128 + self.signals.received
        except OSError as error:
            raise LaunchError(f"{error.filename or self.state.path}: {error.strerror or error}") from error
        finally:
            self._stop()

    # --- the start ---------------------------------------------------------------------------------

    def _warn_of_limits(self):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if 0 <= most < FEW_DESCRIPTORS:
            self.say(f"warning: the hard limit of open files is {most}, which leaves room for {most - min(256, most // 2)} "
                     "clients at a replica: raise it (ulimit -Hn, LimitNOFILE= of a systemd unit)")

    def _all_status(self):
        """By replica number; None for one that does not answer. Asked at the same time."""
        return dict(zip((r.number for r in self.replicas), processes.at_once(Replica.status, self.replicas)))

    def _wait_ready(self):
        """None when the server is ready, else the exit status."""
        deadline = time.monotonic() + self.settings["timeout-s"]
        pause, first = 0.02, {}
        while True:
            dead = {r.number for r in self.replicas if r.ended()}
            rows = {n: row or {} for n, row in self._all_status().items()}
            server = {n: server_state(row) for n, row in rows.items()}
            leaving = [n for n, row in rows.items() if leaves_at_once(row, first.setdefault(n, row.get("generation") or 1))]
            if len(leaving) > self._servers() // 2:
                return self._judge_start(rows, server | dict.fromkeys(leaving, "exited"), False)
            open_ = [n for n in server if n not in dead and server[n] not in (*ENDED_STATES, "listening", "blocked", "witness")]
            late = time.monotonic() > deadline
            if not open_ and not late and self._lacks_primary(rows, server):
                open_ = ["primary"]
            # Where the primary's server listens, a replica that cannot follow is a fault to survive.
            if not open_ or late:
                return self._judge_start(rows, server, late)
            self.signals.wait(pause)
            pause = min(pause * 1.5, 0.25)

    def _servers(self):
        return len(self.replicas) - self.settings["witnesses"]

    def _lacks_primary(self, rows, server):
        """Servers listen before an election has ended; clients are served after it."""
        listening = [n for n, what in server.items() if what in ("listening", "blocked")]
        return (self.settings["mode"] == "full" and len(listening) > self._servers() // 2
                and all(rows[n].get("role") != "primary" for n in listening))

    def _judge_start(self, rows, server, late):
        report = StartReport(self.replicas, rows, server, self.say)
        good = [n for n in server if n not in report.dead and server[n] in ("listening", "blocked")]
        if not good and late:
            good = [n for n in server if n not in report.dead and server[n] == "running"]
        if len(good) <= self._servers() // 2:
            report.say_failure(self.settings["command"][0], self.settings["timeout-s"] if late else None)
            return 1
        if all(server[n] == "blocked" for n in good):
            report.say_nobody_served()
            return 1
        self._became_ready()
        self.closed = {(n, port): why for n, row in rows.items() for port, why in closed_ports(row).items()}
        report.say_ready(self.settings["timeout-s"] if late else None)
        image.say_another(self.settings, rows, self.say)
        return None

    def _became_ready(self):
        self.ready = True
        self.state.logs.discard_aside()
        self.state.run["ready"] = True
        self._save()

    def _save(self):
        """A record that is behind is a nuisance; replicas that end for it would be a disaster."""
        try:
            for row in self.state.run["replicas"] if self.ready else []:
                self._say_it_was_member(row)
            self.state.save()
            if self.unsaved:
                self.say("the state directory can be written again")
            self.unsaved = False
        except OSError as error:
            if not self.unsaved:
                self.say(f"{self.state.path} cannot be written ({error.strerror}): the replicas go on, and it is tried "
                         "again; make room")
            self.unsaved = True

    def _say_it_was_member(self, row):
        """From now on, a replica that is restarted without its database has lost one."""
        folder = self.state.replica_dir(row["id"])
        path = folder / "craned.toml"
        if trouble_with(path):  # it is written anew when its replica is started again
            return
        present = path.read_text(encoding="utf-8")
        text = craned_toml(self.settings, self.layout, self.state.run, row["id"], folder, True)
        changed = self.told.get(row["id"], text) != text
        self.told[row["id"]] = text
        if not changed:  # nor is what an operator has edited in it
            text = re.sub(r"(?m)^rejoin = false$", "rejoin = true", present, count=1)
        if text != present:
            write_private(path, text)

    # --- while it runs -------------------------------------------------------------------------------

    def _watch(self):
        self.next_status = time.monotonic() + STATUS_EVERY_S
        while True:
            running = [r.pidfd for r in self.replicas if r.pidfd >= 0]
            due = [at for _, _, at in self.backoff.values() if at]
            self.signals.wait(min([self.next_status, *due]) - time.monotonic(), running)
            try:
                code = self._look_after()
            except (OSError, RuntimeError) as error:
                # A table of the system that is full, a disk that fails: no reason to end replicas that serve.
                self._say_trouble(str(error))
                self.signals.wait(STATUS_EVERY_S)
                continue
            if code is not None:
                return code
            self.trouble = ""

    def _say_trouble(self, what):
        if what != self.trouble:
            self.say(f"cannot look after the replicas ({what}): they go on, and it is tried again")
        self.trouble = what

    def _look_after(self):
        """One round. The exit status when all has ended; else None."""
        for replica in self.replicas:
            self._watch_one(replica)
        if all(r.pidfd < 0 and not self.backoff.get(r.number, (0, 0, 0))[2] for r in self.replicas):
            self.say("no replica is left; stopping")
            return 0 if all(r.ended() == ASKED_TO_STOP for r in self.replicas) else 1
        if time.monotonic() < self.next_status:
            return None
        self.next_status = time.monotonic() + STATUS_EVERY_S
        rows = {n: row for n, row in self._all_status().items() if row}
        for replica in self.replicas:
            replica.served = replica.served or (replica.pidfd >= 0 and rows.get(replica.number, {}).get("server") == "listening")
        self._watch_ports(rows)
        self._watch_folders(rows)
        self._watch_databases()
        if self.unsaved:
            self._save()
        return self._server_ended(list(rows.values()))

    def _watch_one(self, replica):
        seconds, restarts, at = self.backoff.get(replica.number, (FIRST_BACKOFF_S, 0, 0))
        if replica.pidfd >= 0 and replica.ended():
            how = replica.ended()
            replica.reap()
            lived_s = time.monotonic() - replica.row.get("since", 0)
            if lived_s > (USEFUL_AFTER_S if replica.served else HEALTHY_AFTER_S):
                seconds, restarts = FIRST_BACKOFF_S, 0
            elif lived_s > USEFUL_AFTER_S:  # not kept down for longer than it served
                seconds = min(seconds, lived_s)
            if replica.served:  # what ended it was no failure to begin
                seconds, restarts = min(seconds, MAX_BACKOFF_S), min(restarts, QUICK_RESTARTS - 1)
            if how == ASKED_TO_STOP:
                self.say(f"replica {replica.number}: its craned was asked to stop")
                self.backoff.pop(replica.number, None)
                return
            if how in REFUSALS.values() and not self.settings["no-restart"]:
                self._restart_rebuilt(replica, how)
                return
            self._restart_later(replica, f"its craned {how}", seconds, restarts)
        elif at and time.monotonic() >= at:
            restarts += 1
            seconds = max(seconds, min(seconds * 2, MAX_BACKOFF_S if restarts < QUICK_RESTARTS else MAX_PAUSE_S))
            try:
                self._restore_files(replica)
                replica.start()
            except LaunchError as error:  # no reason to end the others
                self._restart_later(replica, str(error), seconds, restarts)
                return
            replica.row["since"] = time.monotonic()
            replica.served = False
            self.backoff[replica.number] = (seconds, restarts, 0)
            self._save()

    def _restart_later(self, replica, how, seconds, restarts):
        if self.unsaved:  # a full disk ends craneds: that passes, and says nothing of the replica
            restarts = 0
        if self.settings["no-restart"]:
            self.say(f"replica {replica.number}: {how}; not restarted (--no-restart); see "
                     f"{replica.state_dir}/craned.log")
            self.backoff[replica.number] = (seconds, restarts, 0)
            return
        if restarts == QUICK_RESTARTS:
            self.say(f"replica {replica.number} died {restarts} times in a row: it is tried again for ever, with pauses "
                     f"that grow up to {MAX_PAUSE_S} s; see {replica.state_dir}/craned.log")
        self.say(f"replica {replica.number}: {how}; restarting it in {seconds:.1f} s")
        self.backoff[replica.number] = (seconds, restarts, time.monotonic() + seconds)

    def _restart_rebuilt(self, replica, how):
        """Nothing but another database helps; it is tried all the same, for who put the right one back."""
        if replica.number not in self.disowned:
            self.disowned.add(replica.number)
            database = replica.state_dir / "db"
            told = "what of it" if how == DAMAGED else "who knows that"
            self.say(f"replica {replica.number} stays down: its craned {how} (the end of "
                     f"{replica.state_dir}/craned.log says {told}). To rebuild it from the others, move "
                     f"{database} away (mv {database} {database}.old): it is started as soon as that is gone")
        self.backoff[replica.number] = (FIRST_BACKOFF_S, 0, time.monotonic() + MAX_PAUSE_S)

    def _watch_databases(self):
        """A replica whose database was refused begins when that is gone: it then gets the others' log."""
        for replica in self.replicas:
            waits = replica.number in self.disowned and replica.pidfd < 0
            if waits and is_gone(replica.state_dir / "db"):
                self.disowned.discard(replica.number)
                self.backoff[replica.number] = (FIRST_BACKOFF_S, 0, time.monotonic())

    def _watch_folders(self, rows):
        """A craned whose folder was deleted writes into files that nobody can open any more, and hears no operator. One after
        the other: what it is to begin with is what the others hold, also those that are to follow."""
        for replica in self.replicas:
            # What a craned writes while its folder is deleted keeps the folder alone.
            lost = replica.served and self.settings["mode"] == "full" and is_gone(replica.state_dir / "db")
            gone = replica.pidfd >= 0 and (lost or is_gone(replica.state_dir))
            if gone and not replica.folder_gone:
                self.say(f"{replica.state_dir}{'/db' if lost and not is_gone(replica.state_dir) else ''} was deleted while its replica runs: " +
                         ("it is the only one, and goes on until it is stopped; its log is lost"
                          if len(self.replicas) == 1 else "it begins anew with what the others have"))
            replica.folder_gone = gone
        waiting = [r for r in self.replicas if r.folder_gone]
        level = all(r.folder_gone or (r.pidfd >= 0 and self._is_level(rows.get(r.number))) for r in self.replicas)
        if waiting and level and len(self.replicas) > 1:
            processes.send_signal(waiting[0].row["pid"], waiting[0].row["start"], signal.SIGKILL)

    @staticmethod
    def _is_level(row):
        return bool(row) and row.get("server") in ("listening", "running", "witness") and row.get("lag", 0) == 0

    def _restore_files(self, replica):
        """What an operator has deleted or spoilt of what a craned is started with. One whose folder was deleted has lost its
        database, and must not vote as if it had none."""
        folder, path = replica.state_dir, replica.state_dir / "craned.toml"
        lost_all = is_gone(folder)
        trouble = trouble_with(path)
        if not trouble:
            return
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_gone(path):
                os.replace(path, path.with_name(path.name + ".unreadable"))
                trouble += f"; what stood there is in {path}.unreadable"
            write_private(path, craned_toml(self.settings, self.layout, self.state.run, replica.number, folder,
                                            lost_all or self.state.was_ready()))
        except OSError as error:
            raise LaunchError(f"{path} cannot be written again: {error.strerror}") from error
        if not lost_all:
            self.say(f"replica {replica.number}: {trouble}: it is written anew, as crane-run was told")

    def _watch_ports(self, rows):
        """Says once what clients can no longer reach, and once that they can again."""
        for n, row in rows.items():
            now = closed_ports(row)
            for port, why in now.items():
                if (n, port) not in self.closed:
                    self.say(f"replica {n} cannot serve clients: {why}")
                self.closed[n, port] = why
            opened = {item.get("port") for item in row.get("listen", [])} - now.keys()
            for port in [port for number, port in self.closed if number == n and port in opened]:
                del self.closed[n, port]
                self.say(f"replica {n} serves the clients of port {port} now")

    def _server_ended(self, rows):
        """The exit status when the server has ended on every replica that answers; else None."""
        rows = [row for row in rows if not row.get("witness")]
        if len(rows) <= self._servers() // 2 or any(row.get("server") != "exited" for row in rows):
            return None
        text = rows[0].get("message") or "exited"
        self.say(f"the server has ended on all replicas: {text}")
        return 0 if text.endswith("status 0") else 1

    # --- the end -------------------------------------------------------------------------------------

    def _stop(self):
        """Asks, waits, kills; leaves nothing behind."""
        stop_processes([(r.state_dir, (r.row["pid"], r.row["start"])) for r in self.replicas if r.row.get("pid")])
        for replica in self.replicas:
            replica.ended()
            replica.reap()
        try:
            self.state.clean()
        except (LaunchError, OSError) as error:
            self.say(str(error))
        for row in self.state.run["replicas"]:
            row["pid"], row["start"] = 0, 0
        try:
            if not self.ready and self.state.logs.put_back():
                self.say("the log that --fresh was to discard is kept; what this start wrote is in "
                         f"{self.state.logs.failed}")
            elif self.replicas:
                self.state.run["supervisor"] = {}
                self.state.save()
        except OSError as error:
            if self.ready:  # else it is what ended the start
                self.say(f"{error.filename or self.state.path}: {error.strerror}")


def check_container_host():
    if os.geteuid() != 0:
        raise LaunchError("containers need root: run crane-run as root, or with --isolation none")
    if not shutil.which("lxc-start"):
        raise LaunchError("lxc-start is not installed: run scripts/install_deps.sh (or apt-get install lxc), or use "
                          "--isolation none")
