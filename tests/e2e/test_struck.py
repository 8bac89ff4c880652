"""Signals from outside that end a process of the server: what it was in the midst of is lost, so its replica is made anew."""

import os
import signal
import socket

from support.case import CraneTest
from support.procs import namespace_pid, read, wait_until
from support.servers import Program
from test_programs import ask

FUTEX = "202"


def segment_of(pid):
    """The addresses at which the process has mapped what it shares with craned."""
    spans = [line.split()[0].split("-") for line in read(f"/proc/{pid}/maps").splitlines() if "crane-transport" in line]
    return [(int(low, 16), int(high, 16)) for low, high in spans]


def waits_for_input(pid):
    """Some thread sleeps on a word of the segment: it waits for the log on behalf of all."""
    segment = segment_of(pid)
    for task in os.listdir(f"/proc/{pid}/task"):
        words = read(f"/proc/{pid}/task/{task}/syscall").split()
        if len(words) > 1 and words[0] == FUTEX and any(low <= int(words[1], 16) < high for low, high in segment):
            return True
    return False


def count(address):
    """The answer's number, from whichever process took the client; it is the same on every replica."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(b"x\n")
        return int(connection.makefile().readline().split()[0])


class Struck(CraneTest):
    lane = 1

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.built_program("prefork")

    def waiting(self, cluster, replica):
        """The server's process that waits for the log's next entry."""
        def find():
            inside = [pid for pid in cluster.replica_pids(replica) if namespace_pid(pid) >= 2]
            return next((pid for pid in inside if waits_for_input(pid)), None)
        return wait_until(find, 20, f"a process of replica {replica} waits for input")

    def is_back(self, cluster, victim, restarts):
        row = cluster.status().get(victim, {})
        again = row.get("counters", {}).get("domain_restarts") == restarts
        return again and row["server"] == "listening" and row["lag"] == 0

    def check_strikes(self, victims, strikes):
        """`strikes`: each a signal, for who waits or (of true) for another process of the same server."""
        asked = 0
        with self.crane(Program, "prefork") as cluster:
            restarts = dict.fromkeys((1, 2, 3), 0)
            for number in strikes:
                for role in victims:
                    asked += 1
                    self.assertEqual(count(cluster.address(cluster.primary())), asked)
                    victim = cluster.primary() if role == "primary" else next(n for n in (1, 2, 3) if n != cluster.primary())
                    pid = self.waiting(cluster, victim)
                    self.assertNotEqual(namespace_pid(pid), 2, "a child takes the clients")
                    os.kill(pid, number)
                    restarts[victim] += 1
                    wait_until(lambda n=victim: self.is_back(cluster, n, restarts[n]), 60,
                               f"replica {victim} has made its server anew after {signal.Signals(number).name}")
                    asked += 1
                    self.assertEqual(count(cluster.address(victim)), asked)
            for row in cluster.status().values():
                self.assertEqual((row["generation"], row["fenced"], row["server_ends"]), (1, "", 0))
            cluster.assert_identical()

    def test_crash_signals_from_outside_to_who_waits_for_input(self):
        self.check_strikes(("primary", "backup"), (signal.SIGSEGV, signal.SIGABRT))

    def test_deadly_signals_from_outside_to_who_waits_for_input(self):
        self.check_strikes(("backup", "primary"), (signal.SIGKILL, signal.SIGUSR1))

    def test_crash_signal_from_outside_again_and_again_at_one_entry(self):
        """An operator's, in a container: never the server's own deed, however often it comes at one place."""
        with self.crane(Program, "prefork") as cluster:
            self.assertEqual(count(cluster.address()), 1)
            victim = next(n for n in (1, 2, 3) if n != cluster.primary())
            for round_ in range(1, 5):
                os.kill(self.waiting(cluster, victim), signal.SIGSEGV)
                wait_until(lambda n=round_: self.is_back(cluster, victim, n), 60, f"its server is made anew for the {round_}th time")
            self.assertEqual(count(cluster.address(victim)), 2)
            cluster.assert_identical()

    def test_client_of_a_server_that_is_lost_again_and_again_is_not_left_hanging(self):
        """The pause before it is made anew grows: meanwhile the client has the others' answers, then hears that it was cut off."""
        with self.crane(Program, "prefork") as cluster:
            victim = next(n for n in (1, 2, 3) if n != cluster.primary())
            last = served_meanwhile = 0
            for lost in range(6):
                wait_until(lambda n=lost: self.is_back(cluster, victim, n), 60, f"its server is made anew for the {lost}th time")
                with socket.create_connection(cluster.address(victim), 60) as client, client.makefile() as answers:
                    client.sendall(b"x\n")
                    number = int(answers.readline().split()[0])
                    self.assertIn(number, (last + 1, last + 2))  # what was asked as it was cut off may have counted
                    last = number
                    cluster.kill_server(victim)
                    if lost >= 4:
                        wait_until(lambda: cluster.status()[victim]["server"] != "listening", 20, "it is lost")
                    client.settimeout(4)
                    before = last
                    try:
                        for _ in range(20):
                            client.sendall(b"x\n")
                            answer = answers.readline()
                            if not answer:
                                break
                            self.assertEqual(int(answer.split()[0]), last + 1)
                            last += 1
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                    served_meanwhile += last - before
            self.assertGreater(served_meanwhile, 0)  # the last pauses are of seconds
            cluster.assert_identical()

    def test_ignored_crash_signal_from_outside_costs_nothing(self):
        self.built_program("ignoring")
        with self.crane(Program, "ignoring") as cluster:
            self.assertEqual(ask(cluster.address()), "served\n")
            os.kill(cluster.server_pid(1), signal.SIGABRT)
            self.assertEqual(ask(cluster.address()), "served\n")
            self.assertEqual(cluster.status()[1]["counters"]["domain_restarts"], 0)
            cluster.assert_identical()
