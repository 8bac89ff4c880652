"""crane-run with a craned that only pretends: options, refusals, supervision, cleaning."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from launcher_case import LauncherCase, eventually, write_config  # noqa: E402
from crane_launch import LaunchError, environment, processes, replica, settings, state  # noqa: E402


class OptionTest(unittest.TestCase):
    def parse(self, *arguments):
        return settings.parse(list(arguments))

    def refused(self, text, *arguments):
        with self.assertRaises(LaunchError) as caught:
            self.parse(*arguments)
        self.assertIn(text, str(caught.exception))

    def test_defaults(self):
        chosen = self.parse("--", "server", "--replicas", "9")
        self.assertEqual(chosen["command"], ["server", "--replicas", "9"])
        self.assertEqual(chosen["replicas"], 3)
        self.assertEqual(chosen["client-address"], ["127.0.0.1", "127.0.0.2", "127.0.0.3"])
        self.assertEqual((chosen["w-timeout-us"], chosen["n-clock"], chosen["schedule"]), (0, 0, "serial"))

    def test_single_replica_modes(self):
        self.assertEqual(self.parse("--mode", "dmt", "--", "x")["replicas"], 1)
        self.refused("one replica", "--mode", "proxy", "--replicas", "3", "--", "x")

    def test_refusals(self):
        self.refused("no server command", "--replicas", "3")
        self.refused("majority", "--replicas", "2", "--", "x")
        self.refused("names 2 addresses for 3", "--client-address", "127.0.0.1,127.0.0.2", "--", "x")
        self.refused("of its own", "--client-address", "127.0.0.1,127.0.0.1,127.0.0.2", "--", "x")
        self.refused("not an IP address", "--client-address", "a,b,c", "--", "x")
        self.refused("LISTEN:CLIENT", "--port-map", "80", "--", "x")
        self.refused("mapped twice", "--port-map", "80:8080", "--port-map", "81:8080", "--", "x")
        self.refused("auto or a number", "--n-clock", "0", "--", "x")
        self.refused("three times", "--heartbeat-ms", "300", "--", "x")

    def test_config_file_and_flags_win(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('command = ["a", "b"]\nquantum = 7\nschedule = "parallel"\nport_map = ["80:81"]\n')
            file.flush()
            chosen = self.parse("--config", file.name, "--quantum", "9")
            self.assertEqual((chosen["command"], chosen["quantum"], chosen["schedule"], chosen["port-map"]),
                             (["a", "b"], 9, "parallel", {80: 81}))
            file.write("quantums = 7\n")
            file.flush()
            self.refused("quantums is not a setting", "--config", file.name)
            self.refused("whole number", "--config", write_config('quantum = "x"'), "--", "x")

    def test_environment_is_the_operators_without_her_session(self):
        source = {"PATH": "/usr/bin:/usr/sbin", "KEY": "v", "SSH_TTY": "x", "TERM": "t", "PWD": "/", "LD_PRELOAD": "z"}
        self.assertEqual(environment.server_environment(["x"], ["A=b", "TERM"], source),
                         ["A=b", "KEY=v", "PATH=/usr/bin:/usr/sbin", "TERM=t"])
        with self.assertRaises(LaunchError):
            environment.server_environment(["x"], ["NOT_SET_HERE"], {})

    def test_toml_carries_any_text(self):
        for text in ('quote " backslash \\ newline \n tab \t', "\x7f\x01 é €", ""):
            self.assertEqual(tomllib.loads(f"a = {replica.toml_text(text)}")["a"], text)

    def test_peer_ports_are_free_and_not_ephemeral(self):
        ports = replica.free_peer_ports(7)
        self.assertEqual(len(set(ports)), 7)
        for port in ports:
            self.assertLess(port, 15_000)  # the tests' own are above
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))

    def test_peer_ports_are_not_those_that_clients_will_come_to(self):
        drawn = iter([11211, 11211, 10000, 14000, 12000, 12001])
        with unittest.mock.patch.object(replica.random, "randrange", lambda low, high: next(drawn)):
            self.assertEqual(len(set(replica.free_peer_ports(2, {11211, 14000})) - {11211, 14000}), 2)


class RunTest(LauncherCase):
    def test_start_report_and_stop(self):
        process, text = self.start("listen", options=("--port-map", "80:18123"))
        self.assertRegex(text, r"replica 1: 127\.0\.0\.1:18123  primary  server listening  .*/state/r1\n")
        self.assertRegex(text, r"replica 3: 127\.0\.0\.3:18123  backup")
        run = self.run_record()
        self.assertEqual(len(run["cluster_id"]), 32)
        for row in run["replicas"]:
            self.assertTrue(processes.is_alive(row["pid"], row["start"]))
            self.assertEqual(row["container"], f"crane-{run['cluster_id']}-{row['id']}")
        config = tomllib.loads((self.state / "r2" / "craned.toml").read_text())
        self.assertEqual(config["port_map"], {"80": 18123})
        self.assertEqual([r["client_address"] for r in config["replica"]], ["127.0.0.1", "127.0.0.2", "127.0.0.3"])
        self.stop(process)

    def test_detach_returns_when_ready_and_stop_ends_it(self):
        code, text = self.finish("listen", options=("--detach",))
        self.assertEqual(code, 0, text)
        self.assertIn("ready", text)
        self.assertGreaterEqual(len(self.ours()), 4)
        stopped = self.crane("stop")
        self.assertEqual(stopped.returncode, 0, stopped.stdout + stopped.stderr)
        self.assertEqual(self.ours(), [])
        self.assertIn("nothing runs", self.crane("stop").stdout)

    def test_detached_as_root_writes_nothing_through_what_others_have_planted(self):
        if os.geteuid() != 0:
            self.skipTest("only root is refused another's directory")
        self.dir.chmod(0o755)
        victim = self.dir / "victim"
        for owner, words in ((65534, "root's cluster is not to be in another's hands"), (0, "crane-run.log: Too many levels of symbolic links")):
            with self.subTest(owner=owner):
                self.state.mkdir()
                (self.state / "crane-run.log").symlink_to(victim)
                os.chown(self.state, owner, owner)
                code, text = self.finish("listen", options=("--detach",))
                self.assertFalse(victim.exists(), victim.exists() and victim.read_text())
                self.assertEqual(code, 1, text)
                self.assertIn(words, text)
                self.assertEqual([path.name for path in self.state.iterdir()], ["crane-run.log"])
                (self.state / "crane-run.log").unlink()
                self.state.rmdir()

    def test_server_that_exits_at_start(self):
        for options in ((), ("--detach",)):
            code, text = self.finish("exit", "3", options=("--fresh", *options))
            self.assertEqual(code, 1, text)
            self.assertIn("exited with status 3", text)
            self.assertIn("server: configuration error in line 7", text)
            self.assertEqual(self.ours(), [])

    def test_refused_server_and_dead_craned(self):
        self.assertRegex(self.finish("refuse")[1], "replica 2: refused: cannot be scheduled: statically linked")
        code, text = self.finish("die", options=("--fresh",))
        self.assertEqual(code, 1)
        self.assertRegex(text, "replica 1: its craned exited with status 9")
        self.assertIn("told to die", text)

    def test_start_has_a_time_limit(self):
        code, text = self.finish("never", options=("--timeout-s", "1"))
        self.assertEqual(code, 1)
        self.assertIn("starting after 1 s", text)

    def test_second_run_on_the_same_directory_is_refused(self):
        process, _ = self.start("listen")
        code, text = self.finish("listen")
        self.assertEqual(code, 1)
        self.assertRegex(text, f"in use by crane-run with pid {process.pid}")
        self.stop(process)

    def test_dead_replica_is_restarted(self):
        process, _ = self.start("listen")
        old = self.run_record()["replicas"][1]["pid"]
        os.kill(old, signal.SIGKILL)
        new = eventually(lambda: self.run_record()["replicas"][1]["pid"] not in (0, old) and self.run_record())
        self.assertRegex(process.stdout.readline(), "replica 2: its craned was killed by SIGKILL; restarting")
        eventually(lambda: (replica.ask(self.state / "r2", "status") or {}).get("server") == "listening")
        self.assertEqual(new["replicas"][0]["pid"], self.run_record()["replicas"][0]["pid"])
        self.stop(process)

    def test_no_restart_leaves_it_dead_and_ends_with_the_last(self):
        process, _ = self.start("listen", options=("--no-restart",))
        for row in self.run_record()["replicas"]:
            os.kill(row["pid"], signal.SIGKILL)
        self.assertEqual(process.wait(20), 1)
        self.assertIn("not restarted", process.stdout.read())

    def test_craneds_that_were_asked_to_stop_stay_stopped(self):
        process, _ = self.start("listen")
        for number in (1, 2, 3):
            replica.ask(self.state / f"r{number}", "stop")
        self.assertEqual(process.wait(20), 0)
        self.assertNotIn("restarting", process.stdout.read())

    def test_same_command_goes_on_another_is_refused(self):
        process, _ = self.start("listen")
        first = self.run_record()["cluster_id"]
        self.stop(process)
        process, text = self.start("listen")
        self.assertIn("going on with", text)
        self.assertEqual(self.run_record()["cluster_id"], first)
        self.assertEqual((self.state / "r1/db/log").read_text(), "started\n" * 2)
        self.stop(process)
        code, text = self.finish("exit", "0")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"another command \(listen; now exit 0\): use --fresh")
        self.assertIn("another quantum", self.finish("listen", options=("--quantum", "5"))[1])
        process, text = self.start("listen", options=("--quantum", "5", "--fresh"))
        self.assertNotEqual(self.run_record()["cluster_id"], first)
        self.stop(process)

    def test_what_a_killed_run_left_is_ended_by_the_next(self):
        process, _ = self.start("listen")
        process.kill()
        process.wait()
        left = self.ours()
        self.assertEqual(len(left), 3)
        process, text = self.start("listen", options=("--fresh",))  # else they are watched on: see test_watch.py
        self.assertIn("ended 3 process(es) that an earlier run left", text)
        for identity in left:
            self.assertFalse(processes.is_alive(*identity))
        process.kill()
        process.wait()
        self.assertEqual(self.crane("stop").returncode, 0)
        self.assertEqual(self.ours(), [])

    def test_a_recorded_pid_that_is_another_process_is_left_alone(self):
        self.state.mkdir()
        bystander = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
        self.started.append(bystander)
        (self.state / "run.json").write_text(json.dumps({"replicas": [{"id": 1, "pid": bystander.pid, "start": 1}]}))
        process, _ = self.start("listen")
        self.assertIsNone(bystander.poll())
        self.stop(process)

    def test_craned_that_ignores_stop_is_killed(self):
        process, _ = self.start("deaf")
        self.stop(process)

    @staticmethod
    def port_of_no_client():
        """Below the ephemeral range, and free on every address."""
        for port in range(28000, 32000):
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("0.0.0.0", port))
                return port
        raise RuntimeError("no free port")

    def test_taken_client_port_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.2", self.port_of_no_client()))
            taken.listen()
            port = taken.getsockname()[1]
            code, text = self.finish("listen", options=("--port-map", f"80:{port}"))
        self.assertEqual(code, 1)
        self.assertIn(f"127.0.0.2:{port}, where clients are to be served, cannot be had", text)

    def test_address_of_another_machine_is_named(self):
        _, text = self.finish("listen", options=("--client-address", "127.0.0.1,192.0.2.7,127.0.0.3"))
        self.assertRegex(text, r"192\.0\.2\.7: Cannot assign requested address on this machine")

    def test_damaged_record(self):
        self.state.mkdir()
        (self.state / "run.json").write_text("{")
        self.assertRegex(self.finish("listen")[1], "run.json is damaged")
        process, _ = self.start("listen", options=("--fresh",))
        self.stop(process)

    def test_missing_build_is_named(self):
        (self.dir / "build/lib/libcrane.so").unlink()
        self.assertTrue(re.search("libcrane.so is missing: run make first", self.finish("listen")[1]))


class StateTest(unittest.TestCase):
    def test_identity_of_processes(self):
        self.assertTrue(processes.is_alive(os.getpid(), processes.start_time(os.getpid())))
        self.assertFalse(processes.is_alive(os.getpid(), 1))
        self.assertFalse(processes.send_signal(os.getpid(), 1, signal.SIGKILL))

    def test_log_without_record_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "r1/db").mkdir(parents=True)
            (pathlib.Path(folder) / "r1/db/log").touch()
            found = state.State(folder)
            found.load()
            self.assertIn("no record of which server", found.difference(settings.parse(["--", "x"])))


if __name__ == "__main__":
    unittest.main()
