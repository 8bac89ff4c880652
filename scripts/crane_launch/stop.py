"""`crane stop`: ends the cluster of a state directory, whoever started it, and removes what a crash left."""

import pathlib
import signal
import time

from . import LaunchError, processes
from .leftovers import CGROUPS
from .locks import holder_of, is_held, program_of, unit_of
from .replica import ask
from .state import State

STOP_WAIT_S = 5  # for one that does not answer
# For one that does, or is a unit's: more than craned's own limits come to, less than TimeoutStopSec of its unit, after which
# systemd kills it and starts another.
END_WAIT_S = 28


class Stopped:
    """What was done: crane-run and replica numbers that were asked, processes that were killed, paths that were removed."""

    def __init__(self):
        self.asked, self.ended, self.removed = [], [], []
        self.unknown = None  # the directory, if nothing in it is a cluster's

    def as_json(self):
        return {"stopped": self.asked, "ended": self.ended, "removed": self.removed}

    def lines(self):
        if self.asked:
            yield "stopped"
        elif self.ended or self.removed:
            yield "stopped what an earlier run left"
        elif self.unknown:
            yield f"nothing was ever started in {self.unknown}"
        else:
            yield "nothing runs here"
        if self.ended:
            yield f"ended {len(self.ended)} process(es) that were left"
        cgroups = [path for path in self.removed if path.startswith(f"{CGROUPS}/")]
        if cgroups:
            yield f"removed {len(cgroups)} cgroups"
        yield from (f"removed {path}" for path in self.removed if path not in cgroups)


def stop_processes(craneds):
    """Asks every craned of [(state directory, (pid, start))], waits with a limit, kills. Those that were killed."""
    return kill(ask_and_wait(craneds))


def ask_and_wait(craneds):
    """Those that do not end in time."""
    limits_s = processes.at_once(ask_to_stop, craneds)
    begun = time.monotonic()
    for (_, identity), limit_s in zip(craneds, limits_s):
        processes.wait_gone([identity], begun + limit_s - time.monotonic())
    return [(folder, identity) for folder, identity in craneds if processes.is_alive(*identity)]


def ask_to_stop(craned):
    """How long it has to end."""
    folder, identity = craned
    if ask(folder, "stop") is not None:
        return END_WAIT_S
    processes.send_signal(*identity, signal.SIGTERM)  # it may have just begun, and listen to nobody yet
    return END_WAIT_S if unit_of(identity[0]) else STOP_WAIT_S


def kill(craneds):
    """Their (pid, start)."""
    identities = [identity for _, identity in craneds]
    for identity in identities:
        processes.send_signal(*identity, signal.SIGKILL)
    processes.wait_gone(identities, STOP_WAIT_S)
    return identities


def supervisor_of(state):
    """(pid, start) of the crane-run that holds the directory, also one that has recorded nothing yet. Or None."""
    if not state.is_locked():
        return None
    supervisor = state.run.get("supervisor") or {}
    identity = (supervisor.get("pid"), supervisor.get("start"))
    if processes.is_alive(*identity):
        return identity
    text = (state.path / "lock").read_text().strip()
    pid = int(text) if text.isdecimal() else 0
    start = processes.start_time(pid) if pid else None
    return (pid, start) if start is not None else None


def replica_folders(state):
    """replica number -> folder; 0: the directory is that of one replica of several hosts."""
    folders = {int(folder.name[1:]): folder for folder in state.logs.folders()}
    if not folders and any((state.path / name).exists() for name in ("control.sock", "craned.lock")):
        folders = {0: state.path}
    return folders


def running_craneds(state):
    """replica number -> (folder, (pid, start)) of every craned that answers, holds its directory, or is on record as living."""
    found = {}
    for number, folder in replica_folders(state).items():
        row = ask(folder, "status")
        pid = row.get("pid") if row else holder_of(folder / "craned.lock", "craned")
        start = processes.start_time(pid) if pid else None
        if start is not None:
            found[row.get("replica", number) if row else number] = (folder, (pid, start))
    for row in state.run["replicas"]:
        identity = (row.get("pid"), row.get("start"))
        if row["id"] not in found and processes.is_alive(*identity):
            found[row["id"]] = (state.replica_dir(row["id"]), identity)
    return found


def refuse_what_is_begun_again(craneds):
    """A service manager takes one that is killed for a failure, and starts another."""
    for folder, (pid, _) in craneds:
        unit = unit_of(pid)
        if unit and ask(folder, "status") is None:
            raise LaunchError(f"the craned of {folder} (pid {pid}) does not answer, and is {unit}'s: systemctl stop {unit}")


def refuse_to_kill_what_is_begun_again(late):
    for folder, (pid, _) in late:
        unit = unit_of(pid)
        if unit:
            raise LaunchError(f"the craned of {folder} (pid {pid}) was asked to end, and has not within {END_WAIT_S} s; it is not "
                              f"killed, since {unit} would start another: systemctl stop {unit}")


def check_released(state):
    """Where somebody is still there, whatever was tried, nothing has been stopped."""
    for folder in replica_folders(state).values():
        if is_held(folder / "craned.lock"):
            pid = holder_of(folder / "craned.lock")
            who = f"{program_of(pid)} (pid {pid})" if pid else "a process that is not seen from here"
            raise LaunchError(f"{who} holds {folder}, and does not end: end it, and say this again. One that waits for a disk ends "
                              "when that answers")


def stop_cluster(path, say):
    """What was done, as Stopped. Raises LaunchError when it could not be."""
    state, done = State(pathlib.Path(path)), Stopped()
    state.check_owner()
    damage = None
    try:
        state.load()
    except LaunchError as error:  # all the same, what answers is stopped
        damage = error
    supervisor = supervisor_of(state)
    if supervisor:
        processes.send_signal(*supervisor, signal.SIGTERM)
        if processes.wait_gone([supervisor], END_WAIT_S + 3 * STOP_WAIT_S):  # it waits for its craneds
            say("crane-run does not end; killing it")
            processes.send_signal(*supervisor, signal.SIGKILL)
            processes.wait_gone([supervisor], STOP_WAIT_S)
        done.asked.append("crane-run")
    if state.recorded or damage:
        state.lock()
    craneds = running_craneds(state)
    refuse_what_is_begun_again(craneds.values())
    if craneds:
        done.asked += sorted(craneds)
        late = ask_and_wait(list(craneds.values()))
        refuse_to_kill_what_is_begun_again(late)
        done.ended += [pid for pid, _ in kill(late)]
    if damage:
        raise damage
    one_of_several_hosts = (state.path / "db").exists()
    known = state.recorded or craneds or state.logs.folders() or one_of_several_hosts
    done.unknown = None if known else state.path
    if state.recorded:
        cleaned = state.clean()
        done.ended += [pid for pid, _ in cleaned.processes]
        done.removed += cleaned.removed
    check_released(state)
    return done
