"""Small servers that exercise one family of calls each: equal on all replicas, and correct as the native run is.

Lines that start with "~" (or carry "~" within) may differ natively; the replicas must agree on them too, which
crane diff checks.
"""

import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

from support import procs
from support.case import CraneTest, together
from support.looks import Looks
from support.paths import ROOT, Settings
from support.servers import Program


def ask(address, line="run", then=(), half_close=False, timeout_s=120):
    """Sends a line, then pieces of data with pauses; the answer, whole."""
    with socket.create_connection(address, timeout_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(line.encode() + b"\n")
        for piece in then:
            time.sleep(0.02)
            connection.sendall(piece)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer.decode(errors="replace")


def send_and_reset(address):
    with socket.create_connection(address, 30) as connection:
        if connection.recv(100) != b"hello\n":
            raise ConnectionError("not greeted")
        connection.sendall(b"reset follows\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def fixed(text):
    return [line for line in text.splitlines() if not line.startswith("~")]


PARTS = {
    "receiving": {"then": [b"0123456789", b"abcdef"]},
    "options": {},
    "duplicates": {"then": [b"abcd", b"efgh"]},
    "sending": {},
    "level": {"then": [b"x" * 10, b"y" * 3000, b"z"], "half_close": True},
    "edge": {"then": [b"x" * 10, b"y" * 3000, b"z"], "half_close": True},
    "oneshot": {"then": [b"x" * 10, b"y" * 3000, b"z"], "half_close": True},
    "selecting": {"then": [b"x" * 10, b"y" * 3000, b"z"], "half_close": True},
    "shutting": {},
}


def keep_on_one_core(cluster):
    for replica in range(1, cluster.replicas + 1):
        os.sched_setaffinity(cluster.server_pid(replica), {min(os.sched_getaffinity(0))})


def calls_of_reading(pid):
    """How many the kernel has seen of the process (proc(5), io)."""
    return int(re.search(r"syscr: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


class LaunchedProgram(Program):
    """The same, started by another program that ends as it."""

    def __init__(self, launcher, program):
        self.launcher = launcher
        super().__init__(program)

    def command(self):
        return [shutil.which(self.launcher[0]), *self.launcher[1:], *super().command()]


class Programs(CraneTest):
    lane = 1

    def check(self, name, rounds=3, tools=(), prepare=None, finish=None, options=()):
        for program in (name, *tools):
            self.built_program(program)
        with self.native(Program, name, tools) as native:
            expected = fixed(ask(native.address()))
        with self.crane(Program, name, tools, options=options) as cluster:
            if prepare:
                prepare(cluster)
            for _ in range(rounds):
                self.assertEqual(fixed(ask(cluster.address())), expected)
            together(*[lambda: self.assertEqual(fixed(ask(cluster.address())), expected)] * 4)
            cluster.assert_identical()
            if finish:
                finish(cluster)

    def test_locks(self):
        self.check("locks")

    def test_locks_that_end_with_their_descriptor(self):
        self.check("closed_locks")

    def test_commands_and_calls_of_timers(self):
        self.check("commands", rounds=1)

    def test_launchers_in_mode_proxy(self):
        """The server is another user's, and may open fewer descriptors, than who executes it."""
        with self.native(Program, "locks") as native:
            expected = fixed(ask(native.address()))
        for launcher in (["runuser", "-u", "nobody", "--"],
                         ["prlimit", "--nofile=1024:1024", "setpriv", "--reuid=65534", "--clear-groups", "env"]):
            with self.crane(LaunchedProgram, launcher, "locks", replicas=1,
                            options=("--mode", "proxy")) as cluster:
                self.assertEqual(fixed(ask(cluster.address())), expected)

    def test_processes_at_their_edges(self):
        self.check("process_edges", rounds=1, tools=("static_tool", "fork_module"))

    def test_programs_as_another_user(self):
        """Alone: nobody sees that such a one waits, so after a while it is left to itself (docs/limitations.md)."""
        self.built_program("other_user")
        with self.native(Program, "other_user") as native:
            expected = fixed(ask(native.address()))
        with self.crane(Program, "other_user", replicas=1) as cluster:
            self.assertEqual(fixed(ask(cluster.address())), expected)

    def test_programs_that_may_not_be_read(self):
        """Alone, for the same reason."""
        for name in ("unreadable", "static_tool"):
            self.built_program(name)
        with self.native(Program, "unreadable", ("static_tool",)) as native:
            expected = fixed(ask(native.address()))
        with self.crane(Program, "unreadable", ("static_tool",), replicas=1) as cluster:
            self.assertEqual(fixed(ask(cluster.address())), expected)

    def test_signals_of_terminals(self):
        self.check("terminal_signals", rounds=1)

    def test_signals_at_their_edges(self):
        self.check("signal_edges", rounds=1)

    def test_signals_and_whom_they_are_for(self):
        self.check("signal_targets", rounds=1)

    def test_sockets_at_their_limits(self):
        self.check("odd_sockets")

    def test_epolls_with_little_room_and_late_arming(self):
        self.check("epoll_turns")

    def test_what_came_before_a_reset_can_be_read(self):
        self.built_program("kept_input")
        with self.native(Program, "kept_input") as native:
            send_and_reset(native.address())
            expected = ask(native.address(), "tell")
        self.assertIn("read 14 reset follows", expected)
        with self.crane(Program, "kept_input") as cluster:
            for _ in range(3):
                send_and_reset(cluster.address())
                self.assertEqual(ask(cluster.address(), "tell"), expected)
            cluster.assert_identical()

    def test_streams_of_random_devices_closed_in_parallel(self):
        self.check("closed_devices", rounds=1, options=("--schedule", "parallel"))

    def test_what_is_moved_in_unusual_ways(self):
        self.check("odd_transfers")

    def test_what_the_kernel_has_in_memory_shows_in_no_answer(self):
        def look(cluster):
            answer = ask(cluster.address()).splitlines()
            for line in ("at a place: 8", "at the next: 8", "which is now 8", "written: 4096", "behind the end: 4096",
                         "of a pipe: -1 EOPNOTSUPP", "other flags: -1 EOPNOTSUPP", "there: 16"):
                self.assertIn("~" + line, answer)

        self.check("uncached", finish=look)

    def test_watched_files(self):
        self.check("watched")

    def test_children_that_unmap_what_is_not_theirs(self):
        self.check("unmapped")

    def test_privileges_of_processes_with_timers(self):
        self.check("privileges")

    def test_fifos(self):
        self.check("fifos")

    def test_sync_kinds(self):
        self.check("sync_kinds")

    def test_syncs_are_shared_and_closed_descriptors_are_not_synced(self):
        self.check("syncs")
        with self.crane(Program, "syncs", replicas=1) as cluster:
            syncs = int(re.search(r"~syncs (\d+)", ask(cluster.address()))[1])
            # Each would be a transaction's own if the others stood still meanwhile.
            self.assertLess(syncs, 40)

    def test_nobody_is_traced(self):
        """As where a system forbids it: a thread that a tracer stops in its turn would end the service."""
        self.built_program("tracing")
        with self.crane(Program, "tracing") as cluster:
            for _ in range(2):
                self.assertEqual(ask(cluster.address()).splitlines(), [
                    "faults: signal 11", "executes: exit 0", "attach: -1 EPERM", "seize: -1 EPERM",
                    "traced in vain: exit 0", "dispatch: -1 EINVAL", "by number: -1 EINVAL"])
            cluster.assert_identical()

    def test_locks_taken_again_and_again(self):
        self.check("locked_out", rounds=1)

    def test_polling(self):
        self.check("polling")

    def test_nested_epolls(self):
        self.check("nested_epolls")

    def test_loopback_connects(self):
        self.check("loopback_connects")

    def test_folders_read_again_and_times_set(self):
        self.check("reread")

    def test_terminals_and_what_computes_for_ever_beside(self):
        self.check("terminals", rounds=1)

    def test_who_writes_much_to_a_terminal_lets_its_reader_come(self):
        """Alone: how much of it comes at once is up to a thread of the kernel's (docs/limitations.md)."""
        self.built_program("fed_terminal")
        with self.native(Program, "fed_terminal") as native:
            expected = fixed(ask(native.address()))
        with self.crane(Program, "fed_terminal", replicas=1) as cluster:
            for _ in range(3):
                self.assertEqual(fixed(ask(cluster.address())), expected)

    def test_processes(self):
        self.check("processes")

    def test_clocks(self):
        self.check("clocks")

    def test_streams(self):
        self.check("streams")

    def test_streams_that_are_opened_for_something_else(self):
        self.check("reopened")

    def test_streams_of_wide_characters(self):
        self.check("wide_streams")

    def test_names_that_are_asked_for_without_waiting(self):
        self.check("looked_up")

    def test_streams_on_a_file_system_with_other_blocks(self):
        """One replica's files lie on blocks of 1 KiB: libc sizes stdio's buffers by them."""
        self.needs_replicas()
        cluster = self.crane(Program, "streams")
        folder, image = cluster.state / "r3", cluster.dir / "blocks.img"
        folder.mkdir(parents=True)
        with open(image, "wb") as file:
            file.truncate(100 << 20)
        self.tool("mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0", image)
        self.tool("mount", "-o", "loop", image, folder)
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(folder)], stderr=subprocess.DEVNULL, check=False)
        with cluster:
            for _ in range(3):
                self.assertIn("read back some text", ask(cluster.address()))
            cluster.assert_identical()
            cluster.stop()
            self.tool("umount", folder)

    def test_thread_ends(self):
        self.check("thread_ends")

    def test_allocator_of_the_programs_own(self):
        self.check("own_malloc", rounds=2)

    def test_cancelled_threads_end_where_they_wait(self):
        self.check("cancelled")

    def test_pending_cancellations_come_before_anything_is_taken(self):
        self.check("cancel_points")

    def test_children(self):
        self.check("children")

    def test_processes_made_by_clone_and_vfork(self):
        self.check("clones", rounds=1)

    def test_pipelines(self):
        self.check("pipelines", rounds=1, tools=("mixed_output",))

    def test_children_that_cannot_be_scheduled(self):
        self.check("opaque", tools=("static_tool",), prepare=keep_on_one_core)

    def leaving(self):
        self.needs_replicas()
        for program in ("leaving", "static_tool"):
            self.built_program(program)
        return self.crane(Program, "leaving", ("static_tool",))

    def test_who_ends_last_is_gone_though_no_client_comes(self):
        with self.leaving() as cluster:
            child = int(ask(cluster.address()))
            for n in (1, 2, 3):
                procs.wait_until(lambda n=n: child not in map(procs.namespace_pid, cluster.replica_pids(n)), 10,
                                 f"the child has ended on replica {n}")
            cluster.assert_identical()

    def test_who_leaves_the_schedule_last_does_its_work_though_no_client_comes(self):
        with self.leaving() as cluster:
            ask(cluster.address())
            ask(cluster.address())
            for n in (1, 2, 3):
                lines = f"/proc/{cluster.server_pid(n)}/root/var/tmp/crane-leaving"
                procs.wait_until(lambda path=lines: procs.read(path) == "line 0\nline 1\n", 10,
                                 f"the tool has run on replica {n}")
            cluster.assert_identical()

    def test_pids_beside_children_that_cannot_be_scheduled(self):
        """What such a one makes of threads, by timing, takes no number of the server's own."""
        self.check("numbered", tools=("static_tool",))

    def test_what_is_given_back_by_one_that_is_left_to_itself(self):
        self.check("left_locks", rounds=1, tools=("static_tool",))

    def test_robust_locks_tell_of_their_holders_end(self):
        self.check("robust_locks", rounds=1, tools=("static_tool",))

    def test_robust_locks_under_parallel(self):
        self.check("robust_locks", rounds=1, tools=("static_tool",), options=("--schedule", "parallel"))

    def test_spawns_beside_forks(self):
        self.check("spawns", rounds=1, options=("--quantum", "1"))

    def test_orphans_that_have_ended_are_not_shown(self):
        def look(cluster):
            self.assertIn("~seen: 0 by stat, 0 by access, 0 by readlink, 0 by open, 0 in the folder", ask(cluster.address()))
        self.check("orphan_files", rounds=1, finish=look)

    def test_signals_that_several_threads_wait_for(self):
        self.check("sigwaits", rounds=1, options=("--quantum", "1000"))

    def test_loops_on_files_let_others_go_on(self):
        self.check("file_loops")

    def test_bad_paths(self):
        self.check("bad_paths")

    def test_places_that_can_only_be_read(self):
        self.check("read_only")

    def test_bad_places(self):
        self.check("bad_places")

    def test_bad_calls(self):
        self.check("bad_calls")

    def test_big_messages_between_threads(self):
        self.check("big_messages")

    def test_counter_reads(self):
        """What reads the time stamp counter often ceases to fault, on every replica, where that can be."""
        self.needs_replicas()
        counts = []
        self.check("counter_reads", rounds=5, finish=lambda cluster: counts.extend(
            row["tsc"] for row in cluster.status().values()))
        self.assertEqual(len(counts), 3)
        for tsc in counts:
            patched = [site for site in tsc["sites"] if site["patched"]]
            self.assertGreaterEqual(len(patched), 4, tsc)
            self.assertEqual({site["faults"] for site in patched}, {16}, tsc)
            # One is jumped behind, one has a jump behind it.
            self.assertEqual(len([site for site in tsc["sites"] if site["faults"] > 16]), 2, tsc)

    def test_system_calls_by_instructions(self):
        """No wrapper sees them, and they are served all the same; the status tells which, and where they are made."""
        self.needs_replicas()
        counts, reads = [], []

        def look(cluster):
            counts.extend(row["trapped_calls"] for row in cluster.status().values())
            reads.extend(calls_of_reading(cluster.server_pid(replica)) for replica in cluster.status())

        self.check("raw_calls", options=("--backstop", "on"), finish=look)
        self.assertEqual(len(counts), 3)
        for trapped, calls in zip(counts, reads):
            # Where a call is made is looked up in /proc/self/maps once for each place, not for each call.
            self.assertLess(calls, sum(trapped["calls"].values()) / 2, trapped)
            self.assertGreater(min(trapped["calls"][name] for name in ("accept4", "read", "futex", "getdents64")), 0)
            self.assertTrue(any(site["from"].startswith("raw_calls+0x") for site in trapped["sites"]), trapped)

    def test_system_calls_inside_the_c_library(self):
        self.check("libc_calls", options=("--backstop", "on"))

    def test_descriptors(self):
        self.check("descriptors")

    def test_options_of_each_socket(self):
        self.check("socket_options")

    def test_random_device_of_the_processor(self):
        self.check("random_device")

    def test_loops_that_read_a_clock_until_another_thread_is_done(self):
        self.check("clock_loops")

    def test_loops_that_find_out_how_fast_they_compute(self):
        def crowd(cluster):  # what they decide meanwhile is as old as the loop when it is let in
            together(*[lambda: self.assertIn("from one reading on", ask(cluster.address()))] * 6)

        self.check("calibrated", rounds=1, finish=crowd)

    def test_random_numbers_of_the_processor(self):
        self.check("drawn")

    def test_spins_with_pause_let_others_go_on(self):
        self.check("spins")

    def test_spins_without_pause_let_others_go_on(self):
        self.check("bare_spins")

    def test_loops_with_calls_in_which_threads_wait_for_others(self):
        self.check("endless_rounds")

    def test_looks_for_rounds_at_any_time_change_nothing(self):
        self.needs_replicas()  # and the right to trace them
        asked = {}
        for name in ("endless_rounds", "calibrated"):
            with Looks(name, 0.02) as looks:
                self.check(name, rounds=2)
            asked[name] = looks.asked
        self.assertGreater(min(asked.values()), 10, asked)

    def test_main_thread_that_does_nothing_for_ever(self):
        self.check("busy_main")

    def test_locks_that_are_only_tried(self):
        def got_all(cluster):  # natively chance may lock one out
            self.assertEqual([line.rsplit(b" ", 1)[1] for line in ask(cluster.address()).encode().splitlines()], [b"got"] * 5)

        self.check("same_phase", rounds=1, finish=got_all)

    def test_interfaces(self):
        self.needs_replicas()  # and a network of their own

        def same_everywhere(cluster):
            lines = ask(cluster.address()).splitlines()
            self.assertIn("~eth0 flags 11043 family 2 address 192.0.0.8 mask 255.255.255.0 others 192.0.0.255", lines)
            self.assertIn("~eth0 flags 11043 index 2 type 1 hardware 02:00:c0:00:00:08 received 0 sent 0", lines)
            self.assertEqual([line for line in lines if line.startswith("~number")], ["~number 1 is lo", "~number 2 is eth0"])

        self.check("interfaces", finish=same_everywhere)

    def test_own_addresses(self):
        self.needs_replicas()
        own = ("10.9.0.5/24", "10.9.0.6/24", "10.8.0.7/30", "2001:db8::5/64")
        with self.crane(Program, "interfaces", (), options=[word for one in own for word in ("--own-address", one)]) as cluster:
            for number in (1, 2, 3):
                lines = ask(cluster.address(number)).splitlines()
                for line in ("~eth0 flags 11043 family 2 address 10.9.0.5 mask 255.255.255.0 others 10.9.0.255",
                             "~eth0 flags 11043 family 2 address 10.9.0.6 mask 255.255.255.0 others 10.9.0.255",
                             "~eth0 flags 11043 family 2 address 10.8.0.7 mask 255.255.255.252 others 10.8.0.7",
                             "~eth0\t0400080A\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0",
                             "~eth0\t0000090A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
                             "~20010db8000000000000000000000005 01 80 00 80       lo"):
                    self.assertIn(line, lines)
                self.assertNotIn("192.0.0.8", "\n".join(lines))
            cluster.assert_identical()

    def test_addresses(self):
        self.check("addresses")

    def test_interrupted(self):
        self.check("interrupted", rounds=1)

    def test_io_signals(self):
        self.check("io_signals")

    def test_signals_as_posix_has_them(self):
        self.check("posix_signals")

    def test_accounts_of_processes_and_machine(self):
        self.check("accounts")

    def test_waits_without_descriptors(self):
        self.check("ipc")

    def test_handlers_that_look_at_the_place_they_interrupt_and_change_it(self):
        self.check("handler_places")

    def test_datagrams_between_sockets_of_the_server(self):
        self.check("datagrams")

    def test_what_ends_every_replay_at_one_place_costs_a_restart(self):
        self.built_program("struck")
        with self.crane(Program, "struck") as cluster:
            def served():
                try:
                    return ask(cluster.address(1 + tries.pop() % 3), timeout_s=10) == "served\n"
                except OSError:
                    return False
            tries = list(range(100))
            procs.wait_until(served, 90, f"the next server serves\n{cluster.report()}")
            procs.wait_until(lambda: [row["generation"] for row in cluster.status().values()] == [2] * 3, 30,
                             f"all have the next one\n{cluster.report()}")
            cluster.assert_identical()

    def test_racy_under_serial(self):
        self.check("racy")

    def test_client_sockets(self):
        self.built_program("client_sockets")
        with self.native(Program, "client_sockets") as native:
            expected = {part: fixed(ask(native.address(), part, **how)) for part, how in PARTS.items()}
        with self.crane(Program, "client_sockets") as cluster:
            for part, how in PARTS.items():
                with self.subTest(part=part):
                    self.assertEqual(fixed(ask(cluster.address(), part, **how)), expected[part])
            cluster.assert_identical()

    def test_prefork(self):
        self.built_program("prefork")
        clients, rounds = 8, 20 if Settings.quick else 100
        with self.crane(Program, "prefork") as cluster:

            def client():
                numbers = []
                for _ in range(rounds // 10):
                    with socket.create_connection(cluster.address(), 30) as connection:
                        stream = connection.makefile("rb")
                        for _ in range(10):
                            connection.sendall(b"next\n")
                            numbers.append(int(stream.readline().split()[0]))
                        stream.close()
                return numbers

            numbers = sum(together(*[client] * clients), [])
            self.assertEqual(sorted(numbers), list(range(1, clients * rounds + 1)))
            cluster.assert_identical()

    def test_identity(self):
        self.check("identity")
        with self.crane(Program, "identity") as cluster:
            text = ask(cluster.address())
            for promised in ("~host crane node crane ", " pid 2 tid 2 ", "~cpus 2 of 2 usable 2 now on 0",
                             "~set the clock: -1 EPERM", "~profiling timer: -1 EINVAL", "~io_uring -1 ENOSYS",
                             "~io_setup -1 ENOSYS", "~rseq -1 ENOSYS", "~outside -1 ENETUNREACH",
                             "~listing .:0 .:0 apple:"):
                self.assertIn(promised, text)
            cluster.assert_identical()

    def test_watchdog_names_a_spinning_thread(self):
        self.built_program("spinning")
        with self.crane(Program, "spinning", options=("--watchdog-s", "2")) as cluster:
            with socket.create_connection(cluster.address(), 30) as client:
                client.sendall(b"run\n")

                def told():
                    return all("spin_until_raised" in row["message"] for row in cluster.status().values())

                # Where others compute too, the next look comes when it has a CPU of its own for once.
                procs.wait_until(told, 80, "every replica names the function that spins")
            log = (cluster.state / "r1" / "craned.log").read_text()
            self.assertIn("scenario+", log)

    def test_traces_name_the_same_objects_on_every_replica(self):
        self.built_program("sync_kinds")
        trace = ("--env", "CRANE_TRACE=/run/crane/trace")
        with self.crane(Program, "sync_kinds", options=trace) as cluster:
            ask(cluster.address())
            cluster.assert_identical()
            traces = [cluster.state / f"r{replica}" / "shared" / "trace" for replica in (1, 2, 3)]
            for other in traces[1:]:
                compared = subprocess.run([sys.executable, ROOT / "scripts" / "trace_diff.py", traces[0], other],
                                          stdout=subprocess.PIPE, timeout=60, check=False)
                # 3: equal as far as both go, which is not equally far while they run.
                self.assertIn(compared.returncode, (0, 3), compared.stdout.decode())
            alone = subprocess.run([sys.executable, ROOT / "scripts" / "trace_diff.py", traces[0]],
                                   stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()
            for name in ("MutexLock (Address ", "CondWait (Address ", "Accept (Socket ", "Receive (Socket "):
                self.assertIn(name, alone)
