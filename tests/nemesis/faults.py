"""The nemesis: a schedule of faults made from a seed, and what carries it out.

A fault begins, lasts, and is undone; another one may begin meanwhile. The schedule names its victim by role or number,
so the same seed repeats the schedule, not the run.
"""

import collections
import os
import random
import signal
import time

from lab import procs

SERVER_KILLS = 4  # of one replica in two minutes: craned gives a server up that is lost more often
SERVER_KILLS_S = 125

LONGEST_FREEZE_S = 6.0

# kind, weight, shortest and longest duration in seconds
KINDS = [
    ("kill craned", 5, 0.3, 3.0),
    ("kill server", 2, 0.5, 1.5),
    ("kill all", 1, 0.1, 2.0),
    ("stop craned", 3, 0.2, 3.0),
    ("stop server", 2, 0.2, 2.0),
    ("stop replica", 2, 0.2, 3.0),
    ("isolate", 3, 0.5, 4.0),
    ("cut one way", 3, 0.5, 4.0),
    ("cut pair", 2, 0.5, 4.0),
    ("reset pair", 2, 0.1, 0.6),
    ("reset all", 1, 0.1, 0.4),
    ("lose packets", 2, 1.0, 4.0),
    ("slow link", 2, 1.0, 4.0),
    ("fill disk", 2, 1.0, 4.0),
    ("freeze disk", 3, 0.3, LONGEST_FREEZE_S),
    ("wrong clock", 3, 0.5, 8.0),
]


def schedule(seed, seconds, only=()):
    """(begin, end, kind, victim, other) in order of begin; times in seconds from the start. `only`: of these kinds."""
    kinds = [kind for kind in KINDS if not only or kind[0] in only]
    choose = random.Random(seed)
    faults, now = [], 1.0
    # Each kind once, in an order of the seed's, then by weight: no kind is left to luck.
    first = list(kinds)
    choose.shuffle(first)
    while True:
        kind, _, shortest, longest = first.pop() if first else choose.choices(kinds, [kind[1] for kind in kinds])[0]
        length = choose.uniform(shortest, longest)
        victim = choose.choice(("primary", "primary", "backup", 1, 2, 3))
        other = choose.choice((1, 2))  # places after the victim
        if now + length > seconds:
            return faults
        faults.append((now, now + length, kind, victim, other))
        # The next one comes while this one lasts, right after it, or when all is calm again.
        overlap = 1.0 if first else choose.choice((0.5, 1.0, 1.0))  # none while each kind has its first time
        now += overlap * length + choose.choice((0.2, 1.0, 2.5)) * choose.uniform(0.5, 1.0)
        if kind == "kill all":
            now += 3.0


class Nemesis:
    """Carries a schedule out. `disks` fills and frees a replica's disk; `say` takes a line for each fault."""

    def __init__(self, lab, network, disks, say, seed=0):
        self.lab, self.network, self.disks, self.say = lab, network, disks, say
        self.counts = collections.Counter()
        self.missed = collections.Counter()  # nothing there to hurt
        self.server_kills = collections.defaultdict(list)
        self.choose = random.Random(seed)  # how wrong clocks are
        self.blocked = collections.Counter()  # replica -> faults at its receiving side that last

    def run(self, faults):
        begin = time.monotonic()
        undo = []  # (when, what)
        for at, end, kind, victim, other in faults:
            self._wait(begin + at, undo)
            number = self._resolve(victim)
            peer = (number - 1 + other) % 3 + 1
            undone_by = getattr(self, "_" + kind.replace(" ", "_"))(number, peer)
            (self.counts if undone_by else self.missed)[kind] += 1
            self.say(f"{at:6.1f} s  {kind} {number}" + (f" (with {peer})" if kind.endswith(("pair", "way")) else "") +
                     f" for {end - at:.1f} s" + ("" if undone_by else ": nothing to hurt"))
            if undone_by:
                undo.append((begin + end, undone_by))
        self._wait(float("inf"), undo)

    def end(self):
        """Nothing hurts any more."""
        self.network.heal()
        for member in self.lab.members:
            self.network.fast(member.number)
            self.disks.thaw(member.number)
            self.disks.free(member.number)
            member.set_clock(0)
            self._signal_server(member, signal.SIGCONT)
            member.signal(signal.SIGCONT)
            self._do_as_told(member)

    @staticmethod
    def _wait(until, undo):
        """Until a time, undoing what is due; with no time given, until all is undone."""
        while undo or time.monotonic() < until:
            undo.sort(key=lambda item: item[0])
            if not undo or undo[0][0] > until:
                if until == float("inf"):
                    return
                time.sleep(max(0.0, until - time.monotonic()))
                return
            due, what = undo.pop(0)
            time.sleep(max(0.0, due - time.monotonic()))
            what()

    def _resolve(self, victim):
        if isinstance(victim, int):
            return victim
        primary = self.lab.primary() or 1
        return primary if victim == "primary" else primary % 3 + 1

    def _member(self, number):
        return self.lab.members[number - 1]

    # --- processes: each returns what undoes it, or None if nothing happened ------------------------------

    def _kill_craned(self, number, _peer):
        return self._member(number).start if self._member(number).kill() else None

    def _kill_all(self, _number, _peer):
        running = [member for member in self.lab.members if member.signal(signal.SIGKILL)]
        for member in running:
            member.process.wait()
        return (lambda: [member.start() for member in running]) if running else None

    @staticmethod
    def _server_pid(member):
        """The child of its crane-init, as numbered here: the server itself may be in a container."""
        init = member.status(0.5).get("init_pid", 0)
        return next((pid for pid in procs.all_pids() if procs.parent(pid) == init), 0) if init > 0 else 0

    def _signal_server(self, member, number):
        pid = self._server_pid(member)
        try:
            if pid > 0:
                os.kill(pid, number)
        except OSError:
            return 0
        return pid

    def _kill_server(self, number, peer):
        for victim in (number, peer):  # the first one may have none just now
            kills = self.server_kills[victim]
            recent = [at for at in kills if time.monotonic() - at < SERVER_KILLS_S]
            if len(recent) < SERVER_KILLS and self._signal_server(self._member(victim), signal.SIGKILL):
                kills.append(time.monotonic())
                return lambda: None  # craned brings it back
        return None

    def _stop_craned(self, number, _peer):
        member = self._member(number)
        return (lambda: member.signal(signal.SIGCONT)) if member.signal(signal.SIGSTOP) else None

    def _stop_server(self, number, peer):
        pid = (self._signal_server(self._member(number), signal.SIGSTOP) or
               self._signal_server(self._member(peer), signal.SIGSTOP))
        return (lambda: self._resume(pid)) if pid else None

    def _stop_replica(self, number, _peer):
        member, pid = self._member(number), self._signal_server(self._member(number), signal.SIGSTOP)
        if not member.signal(signal.SIGSTOP):
            self._resume(pid)
            return None
        return lambda: (self._resume(pid), member.signal(signal.SIGCONT))

    @staticmethod
    def _resume(pid):
        try:
            if pid:
                os.kill(pid, signal.SIGCONT)
        except OSError:
            pass  # killed meanwhile

    # --- the clock ------------------------------------------------------------------------------------------

    def _wrong_clock(self, number, _peer):
        """Off by milliseconds to hours, ahead or behind; set right again at the end."""
        member = self._member(number)
        member.set_clock(self.choose.choice((-1, 1)) * int(10 ** self.choose.uniform(2, 7.1)))
        return lambda: member.set_clock(0)

    # --- the network ----------------------------------------------------------------------------------------

    def _blocking(self, pairs, act):
        """`act` on every (source, target); the undo heals a target once nothing else blocks it."""
        targets = {target for _, target in pairs}
        for source, target in pairs:
            act(source, target)
        self.blocked.update(targets)

        def undo():
            self.blocked.subtract(targets)
            free = [target for target in targets if self.blocked[target] <= 0]
            if free:
                self.network.heal(free)

        return undo

    def _both(self, number, peers):
        return [pair for peer in peers for pair in ((number, peer), (peer, number))]

    def _others(self, number):
        return [member.number for member in self.lab.members if member.number != number]

    def _isolate(self, number, _peer):
        return self._blocking(self._both(number, self._others(number)), self.network.cut)

    def _cut_one_way(self, number, peer):
        return self._blocking([(number, peer)], self.network.cut)

    def _cut_pair(self, number, peer):
        return self._blocking(self._both(number, [peer]), self.network.cut)

    def _reset_pair(self, number, peer):
        return self._blocking(self._both(number, [peer]), self.network.reset)

    def _reset_all(self, number, _peer):
        return self._blocking(self._both(number, self._others(number)), self.network.reset)

    def _lose_packets(self, number, _peer):
        return self._blocking(self._both(number, self._others(number)),
                              lambda source, target: self.network.lose(source, target, 20))

    def _slow_link(self, number, _peer):
        self.network.slow(number, 400)
        return lambda: self.network.fast(number)

    # --- the disk -------------------------------------------------------------------------------------------

    def _fill_disk(self, number, _peer):
        self.disks.fill(number)

        def undo():
            self.disks.free(number)
            self._do_as_told(self._member(number))

        return undo

    def _freeze_disk(self, number, _peer):
        """Log, output log and craned.log: whoever writes stands still, and cannot even be killed."""
        return (lambda: self.disks.thaw(number)) if self.disks.freeze(number, LONGEST_FREEZE_S) else None

    @staticmethod
    def _do_as_told(member):
        """A craned that cannot write its database has ended; one that could not write its output log says in its status
        that it wants to be started anew. (Its craned.log may not have it: that is on the full disk, too.)"""
        if "output is no longer logged" in member.status().get("message", ""):
            member.kill()
        member.start()
