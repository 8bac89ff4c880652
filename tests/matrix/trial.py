"""One server's trial: natively, then on three replicas, disturbed, the primary killed; what was seen."""

import contextlib
import dataclasses
import os
import subprocess
import threading
import time

from support.case import together
from support.cluster import Cluster, ClusterError
from support.disturb import Disturber
from support.native import NativeServer
from support.procs import wait_until

QUIET = 6  # sessions one after the other, timed
DISTURBED = 9  # for each seed
LINES_OF_A_DIFFERENCE = 4
AFTER_KILL = 8
NEW_PRIMARY_S = 20
CROWD_S = 240
SLOW = 4.0  # times as long as natively, where a session takes long enough to tell


@dataclasses.dataclass
class Result:
    name: str
    kind: str
    verdict: str = "ok"
    ratio: float = 0.0
    seen: str = ""
    needs: str = ""

    def line(self):
        ratio = f"{self.ratio:5.1f}x" if self.ratio else "     -"
        return f"{self.name:22} {self.kind:14} {self.verdict:8} {ratio}  {self.seen}"


class Failure(Exception):
    def __init__(self, verdict, seen):
        super().__init__(seen)
        self.verdict, self.seen = verdict, seen


@contextlib.contextmanager
def step(name, verdict="fails"):
    """What goes wrong within is this step's; a time limit that ran out means that it hangs."""
    try:
        yield
    except Failure:
        raise
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise Failure("hangs", f"{name}: {short(error)}") from error
    except (AssertionError, OSError, RuntimeError) as error:
        raise Failure(verdict, f"{name}: {short(error, LINES_OF_A_DIFFERENCE if verdict == 'differs' else 1)}") from error


def short(error, lines=1):
    text = str(error).strip()
    return " ".join(" ".join((text.splitlines() or [type(error).__name__])[:lines]).split())[:300 * lines]


def first_answers(entry, address):
    """Until a session works: a server may listen before it can serve."""
    end, last = time.monotonic() + 20, None
    while time.monotonic() < end:
        try:
            return entry.answer(address, 0)
        except (AssertionError, OSError) as error:
            last = error
            time.sleep(0.2)
    raise last


def crowd_of(server_class):
    """How many clients there are at once, whose sessions have the numbers from `sessions` on."""
    return server_class.crowd if server_class.together > 1 else 0


def natively(server_class, port, sessions):
    """The answers by number, what a session takes, and what a crowd takes."""
    entry = server_class(port)
    try:
        with NativeServer(entry.command(), port, environment=entry.environment, name=f"matrix-{entry.name}", protocol=entry.protocol) as server:
            answers = {0: first_answers(entry, server.address())}
            begin = time.monotonic()
            for number in range(1, sessions):
                answers[number] = entry.answer(server.address(), number)
            took_s = (time.monotonic() - begin) / (sessions - 1)
            begin = time.monotonic()
            numbers = range(sessions, sessions + crowd_of(server_class))
            answers.update(zip(numbers, together(*[lambda n=n: entry.answer(server.address(), n) for n in numbers], timeout_s=CROWD_S)))
            return answers, took_s, time.monotonic() - begin
    finally:
        entry.remove()


class Trial:
    def __init__(self, server_class, seeds):
        self.server_class, self.seeds = server_class, seeds
        self.port = server_class.fresh_port()
        self.sessions = 1 + QUIET + DISTURBED * len(seeds) + AFTER_KILL
        self.result = Result(server_class.name, server_class.kind, needs=server_class.needs)
        self.answers, self.next, self.native_crowd_s = {}, 0, 0.0
        self.lock = threading.Lock()

    def run(self):
        missing = [path for path in self.server_class.programs if not os.path.exists(path)]
        if missing:
            self.result.verdict, self.result.seen = "absent", f"{missing[0]}: packages {' '.join(self.server_class.packages)}"
            return self.result
        try:
            if not self.server_class.refused:
                with step("natively", "wrong"):
                    self.answers, native_s, self.native_crowd_s = natively(self.server_class, self.port, self.sessions)
            entry = self.server_class(self.port)
            try:
                self.result.ratio = self.replicated(entry) / native_s if not self.server_class.refused else self.refuse(entry)
            finally:
                entry.remove()
            if self.result.ratio > SLOW and native_s > 0.005:
                self.result.verdict = "slow"
        except Failure as failure:
            self.result.verdict, self.result.seen = failure.verdict, failure.seen
        return self.result

    def cluster(self, entry):
        return Cluster(entry.replicated_command(), entry.port, environment=entry.environment, name=f"matrix-{entry.name}", options=entry.options,
                       protocol=entry.protocol)

    def refuse(self, entry):
        try:
            with self.cluster(entry):
                pass
        except ClusterError as error:
            if entry.refused in str(error):
                raise Failure("refused", entry.refused) from error
        raise Failure("fails", f"is not refused for {entry.refused}")

    def replicated(self, entry):
        cluster = self.cluster(entry)
        try:
            with step("start"), cluster:
                try:
                    return self.trial(entry, cluster)
                except Failure as failure:
                    if "{" not in failure.seen:
                        failure.seen += said(cluster)
                    raise
        except Failure as failure:
            if failure.seen.startswith("start"):
                failure.seen += said(cluster)
            raise

    def trial(self, entry, cluster):
        with step("first session"):
            first_answers(entry, cluster.address(1))
            self.next = 1
        begin = time.monotonic()
        with step("session"):
            for turn in range(QUIET):
                self.session(entry, cluster.address(1 + turn % 3))
        took = (time.monotonic() - begin) / QUIET
        with step("diff", "differs"):
            cluster.assert_identical()
        self.crowd(entry, cluster)
        for seed in self.seeds:
            with step(f"disturbed with seed {seed}"), Disturber(cluster, seed):
                def some(replica):
                    for _ in range(DISTURBED // entry.together):
                        self.session(entry, cluster.address(replica))
                together(*[lambda n=n: some(1 + n % 3) for n in range(entry.together)], timeout_s=120)
            with step(f"diff after seed {seed}", "differs"):
                cluster.assert_identical()
        self.kill(entry, cluster)
        return took

    def crowd(self, entry, cluster):
        """All at once, on the primary."""
        address = cluster.address(cluster.primary())
        numbers = range(self.sessions, self.sessions + crowd_of(self.server_class))
        begin = time.monotonic()
        with step("crowd"):
            together(*[lambda n=n: self.session(entry, address, n) for n in numbers], timeout_s=CROWD_S)
        took_s = time.monotonic() - begin
        if took_s > 5 and took_s > 2 * SLOW * self.native_crowd_s:
            raise Failure("slow", f"a crowd of {len(numbers)} takes {took_s:.1f} s, natively {self.native_crowd_s:.1f} s")
        with step("diff after the crowd", "differs"):
            cluster.assert_identical()

    def session(self, entry, address, number=None):
        with self.lock:
            number, self.next = (self.next, self.next + 1) if number is None else (number, self.next)
        answer = entry.answer(address, number)
        if answer != self.answers[number]:
            raise Failure("differs", f"session {number} from native: {difference(self.answers[number], answer)}")

    def kill(self, entry, cluster):
        """In the middle of a session of a client of another replica, which must not notice."""
        with step("kill"):
            dead = cluster.primary()
            other = dead % 3 + 1
            client = threading.Thread(target=lambda: failed.extend(self.quietly(entry, cluster.address(other))))
            failed = []
            client.start()
            cluster.kill_craned(dead)
            client.join(NEW_PRIMARY_S + 60)
            if client.is_alive():
                raise TimeoutError("the client's session does not end")
            if failed:
                raise failed[0]
        with step("session after the kill"):
            for _ in range(AFTER_KILL - 1):
                self.session(entry, cluster.address(other))
        with step("replay by the killed replica"):
            wait_until(lambda: len(cluster.status()) == 3, 60, "the killed replica is back")
        with step("diff after the kill", "differs"):
            cluster.assert_identical()

    def quietly(self, entry, address):
        try:
            self.session(entry, address)
            return []
        except Exception as error:  # pylint: disable=broad-except
            return [error]


def difference(native, answer):
    ours, theirs = native.splitlines(), answer.splitlines()
    for place, line in enumerate(ours):
        if place >= len(theirs) or theirs[place] != line:
            return f"line {place + 1}: {line[:100]!r}, now {theirs[place][:100] if place < len(theirs) else 'the end'!r}"
    return f"{len(theirs) - len(ours)} lines more"


def said(cluster):
    """The first thing that a replica says of itself."""
    try:
        rows = cluster.status().values()
    except (ClusterError, subprocess.TimeoutExpired, OSError):
        rows = []
    for row in rows:
        for key in ("message", "last_end"):
            if row.get(key):
                return f" {{{key}: {' '.join(str(row[key]).split())[:300]}}}"
    return ""
