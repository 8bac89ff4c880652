"""What craned shows of itself at [metrics] listen: metrics that follow what happens, alarms that are raised and clear,
health for load balancers, a page; and that whoever asks, however badly, takes nothing from the service."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from support.case import CraneTest, together
from support.cluster import ClusterError
from support.paths import BUILD, ROOT, free_port
from support.procs import wait_until
from support.redisclient import Redis as RedisClient
from support.servers import Redis
import test_clocks  # the modules: their classes by name would be run here again
from test_repair import FLIPPED, VALUE, flip

SAMPLE = re.compile(r"^(\w+(?:\{.*\})?) (\S+)$", re.MULTILINE)


class Looked(CraneTest):
    """A cluster whose replica N is looked at at 127.0.0.N."""

    lane = 3

    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.needs_replicas()
        self.port = free_port()

    def looked_at(self, server=Redis, *options):
        return self.crane(server, options=(f"--metrics-port={self.port}", *options))

    def ask(self, replica, path, timeout_s=10):
        """(status, body)"""
        connection = http.client.HTTPConnection(f"127.0.0.{replica}", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self, replica):
        status, text = self.ask(replica, "/metrics")
        self.assertEqual(status, 200, text)
        return {name: float(value) for name, value in SAMPLE.findall(text)}

    def alarms(self, replica):
        return {name.split('"')[1] for name, value in self.metrics(replica).items() if name.startswith("crane_alarm{") and value}

    def await_alarm(self, replica, name, raised=True, use=lambda: None):
        def is_so():
            use()
            return (name in self.alarms(replica)) == raised
        wait_until(is_so, 60, f"replica {replica} has the alarm {name}: {raised}")

    def primary_by_health(self):
        """Those whose /health/primary says yes."""
        out = []
        for n in (1, 2, 3):
            try:
                out += [n] if self.ask(n, "/health/primary")[0] == 200 else []
            except OSError:
                pass
        return out


class Metrics(Looked):
    def test_they_follow_what_happens_and_promtool_finds_nothing(self):
        with self.looked_at() as cluster:
            leads = cluster.primary()
            before = self.metrics(leads)
            with RedisClient(cluster.address(leads)) as redis:
                for _ in range(50):
                    redis("INCR", "counter")
                proposed = before["crane_calls_proposed_total"] + 50
                # Who asks again within a tenth of a second is told the same.
                after = wait_until(lambda: (now := self.metrics(leads))["crane_calls_proposed_total"] >= proposed and now, 10, "all is told")
            self.assertEqual(after["crane_ready"], 1)
            self.assertEqual(after['crane_role{role="primary"}'], 1)
            self.assertGreaterEqual(after["crane_calls_proposed_total"] - before["crane_calls_proposed_total"], 50)
            self.assertGreater(after["crane_logical_clock_ticks_total"], before["crane_logical_clock_ticks_total"])
            name = "crane_consensus_latency_seconds"
            decided = after[f"{name}_count"] - before[f"{name}_count"]
            self.assertGreaterEqual(decided, 50)
            self.assertEqual(after[f'{name}_bucket{{le="+Inf"}}'], after[f"{name}_count"])
            self.assertGreater(after[f"{name}_sum"], before[f"{name}_sum"])
            self.assertGreater(after["crane_log_sync_duration_seconds_count"], 0)
            self.assertEqual(after["crane_voters_in_reach"], 3)
            self.assertEqual({n: self.alarms(n) for n in (1, 2, 3)}, {1: set(), 2: set(), 3: set()})
            promtool = shutil.which("promtool")
            if promtool:
                for replica in (1, 2, 3):
                    text = self.ask(replica, "/metrics")[1]
                    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True,
                                          timeout=60, check=False)
                    self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
            else:
                self.note("no promtool (package prometheus): names and units were not checked")
            self.assertEqual(self.ask(leads, "/other")[0], 404)

    def test_a_witness_is_looked_at_too(self):
        with self.looked_at(Redis, "--witnesses=1"):
            row = self.metrics(3)
            self.assertEqual(row['crane_server_state{state="witness"}'], 1)
            self.assertNotIn("crane_handovers_total", row)
            self.assertEqual(self.alarms(3), set())
            self.assertEqual(self.ask(3, "/health"), (503, "it is a witness: it has no server\n"))

    def test_nothing_is_served_where_nobody_asked_for_it(self):
        with self.crane(Redis) as cluster:
            self.assertNotIn("metrics", cluster.config(1))
            with self.assertRaises(ConnectionRefusedError):
                self.ask(1, "/metrics")

    def test_a_port_that_is_taken_is_refused(self):
        with socket.create_server(("127.0.0.2", self.port)):
            with self.assertRaisesRegex(ClusterError, f"127.0.0.2:{self.port}, where metrics are to be served, cannot be had"):
                with self.looked_at():
                    pass


class Alarms(Looked):
    def test_a_primary_that_nobody_answers(self):
        with self.looked_at() as cluster:
            leads = cluster.primary()
            self.assertEqual(self.primary_by_health(), [leads])
            go_on = [self.stopped(cluster, n) for n in (1, 2, 3) if n != leads]
            self.await_alarm(leads, "no-primary")
            self.assertEqual(self.ask(leads, "/health/primary"), (503, "there is no primary\n"))
            self.assertEqual(self.ask(leads, "/health/serving")[0], 503)
            for one in go_on:
                one()
            self.await_alarm(leads, "no-primary", raised=False)
            wait_until(lambda: len(self.primary_by_health()) == 1, 30, "one of them is the primary")
            wait_until(lambda: not any(self.alarms(n) for n in (1, 2, 3)), 60, "all is well again")

    def test_a_lost_quorum(self):
        with self.looked_at(Redis, "--no-restart") as cluster:
            leads = cluster.primary()
            others = [n for n in (1, 2, 3) if n != leads]
            for n in others:
                cluster.kill_craned(n)
            for name in ("no-quorum", "no-primary", "peer-down"):
                self.await_alarm(leads, name)
            self.assertEqual(self.metrics(leads)["crane_voters_in_reach"], 1)
            craned = subprocess.Popen([str(BUILD / "bin" / "craned"), "--config", str(cluster.state / f"r{others[0]}" / "craned.toml")],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                for name in ("no-quorum", "no-primary"):
                    self.await_alarm(leads, name, raised=False)
                self.assertEqual(self.metrics(leads)["crane_voters_in_reach"], 2)
                self.assertIn("peer-down", self.alarms(leads))
            finally:
                craned.terminate()
                craned.wait(timeout=60)

    def test_health_follows_the_primary(self):
        with self.looked_at(Redis, "--no-restart") as cluster:
            leads = cluster.primary()
            self.assertEqual([self.ask(n, "/health/serving")[0] for n in (1, 2, 3)], [200, 200, 200])
            cluster.kill_craned(leads)
            now, = wait_until(self.primary_by_health, 30, "another one is primary")
            self.assertNotEqual(now, leads)
            self.await_alarm(now, "peer-down")
            self.assertEqual(self.ask(now, "/health/serving")[0], 200)

    def test_a_server_that_crashes_again_and_again(self):
        with self.looked_at() as cluster:
            leads = cluster.primary()
            begun = self.metrics(leads)["crane_server_generation"]
            states = set()
            for crash in range(1, 5):
                def crashed():
                    row = self.metrics(leads)
                    states.update(name for name, value in row.items() if value and name.startswith("crane_server_state"))
                    states.update(self.alarms(leads))
                    return row["crane_server_generation"] >= begun + crash and row['crane_server_state{state="listening"}']
                with RedisClient(cluster.address(leads)) as redis:
                    try:
                        redis("DEBUG", "SEGFAULT")
                    except OSError:
                        pass
                wait_until(crashed, 60, f"the server was begun anew after crash {crash}")
            self.assertIn('crane_server_state{state="restarting"}', states)
            self.assertIn("server-down", states)
            self.await_alarm(leads, "server-down", raised=False)
            self.assertGreaterEqual(self.metrics(leads)["crane_server_ends_total"], 4)

    def test_a_clock_that_is_wrong(self):
        with self.looked_at(test_clocks.RedisWithClocks) as cluster:
            odd = next(n for n in (1, 2, 3) if n != cluster.primary())
            test_clocks.set_clock(cluster, odd, test_clocks.HOUR_MS)
            self.await_alarm(odd, "clocks")
            row = self.metrics(odd)
            self.assertAlmostEqual(row['crane_clock_skew_seconds{clock="host"}'], 3600, delta=5)
            wait_until(lambda: self.metrics(odd)["crane_fit_to_lead"] == 0, 60, "it is sure that its clock is wrong")
            test_clocks.set_clock(cluster, odd, 0)
            self.await_alarm(odd, "clocks", raised=False)

    def test_a_replica_that_differs(self):
        with self.looked_at(Redis, "--no-repair") as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            with RedisClient(cluster.address(leads)) as redis:
                redis("SET", "key", VALUE)
                self.assertGreater(flip(cluster.server_pid(odd), VALUE, FLIPPED), 0)
                self.assertEqual(redis("GET", "key"), VALUE)
                self.await_alarm(odd, "fenced", use=lambda: redis("INCR", "more"))
                self.await_alarm(leads, "diverged", use=lambda: redis("INCR", "more"))
                self.assertEqual(self.metrics(leads)["crane_diverged_replicas"], 1)
                self.assertEqual(self.ask(odd, "/health")[0], 503)
                done = cluster.crane("checkpoint", "restore", "--replica", odd)
                self.assertEqual(done.returncode, 0, done.stdout)
                for replica, name in ((odd, "fenced"), (odd, "on-trial"), (leads, "diverged")):
                    self.await_alarm(replica, name, raised=False, use=lambda: redis("INCR", "more"))
            wait_until(lambda: self.ask(odd, "/health")[0] == 200, 30, "it serves again")


class HostileScrapers(Looked):
    def test_those_who_ask_often_slowly_or_never_cost_nothing(self):
        with self.looked_at() as cluster:
            leads = cluster.primary()
            view = self.metrics(leads)["crane_view"]
            end, asked = threading.Event(), [0, 0]

            def flood():
                while not end.is_set():
                    try:
                        self.ask(leads, "/metrics")
                        asked[0] += 1
                    except OSError:
                        asked[1] += 1

            def crawl():
                held = []
                while not end.is_set():
                    try:
                        one = socket.create_connection((f"127.0.0.{leads}", self.port), timeout=5)
                        one.sendall(b"GET /metrics HTTP/1.1\r\n")
                        held.append(one)
                    except OSError:
                        pass
                    if len(held) > 200:
                        held.pop(0).close()
                    end.wait(0.01)
                for one in held:
                    one.close()

            def client():
                longest = 0
                with RedisClient(cluster.address(leads)) as redis:
                    for _ in range(20_000):  # until enough were told something
                        if sum(asked) >= 60:
                            break
                        begin = time.monotonic()
                        redis("INCR", "counter")
                        longest = max(longest, time.monotonic() - begin)
                end.set()
                return longest

            try:
                longest = together(client, flood, flood, flood, crawl)[0]
            finally:
                end.set()
            self.note(f"longest call {longest * 1000:.0f} ms beside {asked[0]} scrapes ({asked[1]} cut off) and 200 that hang")
            self.assertGreater(asked[0], 30)
            self.assertEqual(self.metrics(leads)["crane_view"], view, "nobody took the primary for dead")
            descriptors = len(list(pathlib.Path(f"/proc/{cluster.craned_pid(leads)}/fd").iterdir()))
            self.assertLess(descriptors, 256)
            cluster.assert_identical()


class LoadBalancers(Looked):
    def test_haproxy_by_the_recipe_follows_the_primary(self):
        if not shutil.which("haproxy"):
            self.skipTest("no haproxy: scripts/install_deps.sh --trials")
        with self.looked_at(Redis, "--no-restart") as cluster:
            front = free_port()
            text = (ROOT / "docs" / "examples" / "haproxy.cfg").read_text()
            for n in (1, 2, 3):
                text = text.replace(f"10.0.0.{n}:8080", f"127.0.0.{n}:{cluster.client_port}")
                text = text.replace(f"addr 10.0.0.{n}", f"addr 127.0.0.{n}")
            text = text.replace("port 9464", f"port {self.port}").replace("bind :80", f"bind 127.0.0.1:{front}")
            self.assertNotIn("10.0.0.", text)
            file = cluster.dir / "haproxy.cfg"
            file.write_text(text)
            self.tool("haproxy", "-c", "-f", file)
            haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                def incremented():
                    try:
                        with RedisClient(("127.0.0.1", front), timeout_s=5) as redis:
                            return int(redis("INCR", "counter"))
                    except (OSError, ValueError):
                        return 0
                wait_until(incremented, 30, "haproxy leads to a server")
                begin = time.monotonic()
                cluster.kill_craned(cluster.primary())
                wait_until(incremented, 30, "haproxy leads to the new primary")
                self.note(f"served again by haproxy {(time.monotonic() - begin) * 1000:.0f} ms after the primary was killed")
            finally:
                haproxy.terminate()
                haproxy.wait(timeout=10)

    def test_keepalived_by_the_recipe_knows_the_primary(self):
        """Its check, run as it would; the file itself is read by keepalived where there is one."""
        recipe = ROOT / "docs" / "examples" / "keepalived.conf"
        check = re.search(r'script "([^"]+)"', recipe.read_text())[1]
        with self.looked_at() as cluster:
            leads = cluster.primary()
            for n in (1, 2, 3):
                words = check.replace("127.0.0.1:9464", f"127.0.0.{n}:{self.port}").split()
                done = subprocess.run(words, capture_output=True, timeout=30, check=False)
                self.assertEqual(done.returncode == 0, n == leads, (n, done))
        if shutil.which("keepalived") and os.geteuid() == 0:
            # Having looked at a script as another user, keepalived 2.2.7's --config-test takes its parent for dead, and ends.
            file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "keepalived.conf"
            file.write_text(recipe.read_text().replace("script_user nobody", "script_user root"))
            # It asks for the interface, which may have another name here.
            with_interface = 'ip link add eth0 type veth peer name other && exec "$@"'
            self.tool("unshare", "--net", "sh", "-c", with_interface, "sh", "keepalived", "--config-test", "--use-file", file)

    def test_keepalived_by_the_recipe_has_no_address_where_nobody_is_served(self):
        """Neither before a first primary, nor behind the last one, nor from a keepalived that was killed meanwhile."""
        if not shutil.which("keepalived") or os.geteuid() != 0:
            self.skipTest("no keepalived, or not root")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        file, leads = folder / "keepalived.conf", folder / "leads"
        text = (ROOT / "docs" / "examples" / "keepalived.conf").read_text().replace("script_user nobody", "script_user root")
        file.write_text(re.sub(r'script "[^"]+"', f'script "/usr/bin/test -e {leads}"', text))
        holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        self.addCleanup(lambda: (holder.kill(), holder.wait()))
        inside = ["nsenter", "-t", str(holder.pid), "--net"]
        wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10, "a network of its own")
        for words in ("link add eth0 type veth peer name other", "link set eth0 up", "link set other up", "address add 10.0.0.1/24 dev eth0"):
            self.tool(*inside, "ip", *words.split())

        def begun():
            with open(folder / "log", "wb") as log:
                one = subprocess.Popen([*inside, "keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", file,
                                        "--pid", folder / "pid", "--vrrp_pid", folder / "vrrp"], stdout=log, stderr=log)
            self.addCleanup(lambda: (one.kill(), one.wait()))
            wait_until(lambda: b"Script `" in (folder / "log").read_bytes(), 30, "its script was run")
            return one

        def there():
            return "10.0.0.100" in subprocess.run([*inside, "ip", "address", "show"], capture_output=True, text=True, timeout=30, check=True).stdout

        one = begun()
        time.sleep(2)  # as long as an election takes: nothing is to happen in it
        self.assertFalse(there())
        for _ in range(2):
            leads.touch()
            wait_until(there, 30, "the primary's host has the address")
            leads.unlink()
            wait_until(lambda: not there(), 30, "it has it no more")
        leads.touch()
        wait_until(there, 30, "the primary's host has the address")
        for name in ("vrrp", "pid"):
            os.kill(int((folder / name).read_text()), signal.SIGKILL)
        one.wait()
        leads.unlink()
        self.assertTrue(there())
        for name in ("vrrp", "pid"):
            (folder / name).unlink(missing_ok=True)
        begun()
        wait_until(lambda: not there(), 30, "it has it no more")


class Page(Looked):
    def test_it_shows_the_cluster_in_a_browser(self):
        browser = shutil.which("chromium")
        if not browser:
            self.skipTest("no chromium: scripts/install_deps.sh --trials")
        with self.looked_at() as cluster:
            leads = cluster.primary()
            with RedisClient(cluster.address(leads)) as redis:
                for _ in range(100):
                    redis("INCR", "counter")
            shown = self.dom(browser, cluster, f"http://127.0.0.{leads}:{self.port}/")
            self.assertRegex(shown, rf"replica {leads} leads since [-0-9]+ [0-9:]+ UTC \(for \d+ (s|min)\)")
            self.assertIn("serves clients", shown)
            self.assertEqual(shown.count("(this)"), 1)
            self.assertNotIn("NaN", shown)
            self.assertNotIn("undefined", shown)
            status = json.loads(self.ask(leads, "/status.json")[1])
            self.assertEqual((status["alarms"], status["unhealthy"]), ([], ""))

    def test_what_each_has_put_out_where_they_differ_side_by_side(self):
        """Every replica knows it: the primary that found it, the odd one and the third. On the page it is text, whatever it is."""
        good, odd_value = b"<b>as it was</b> written by the client", b"<b>as it was</b> written by the cosmos"
        browser = shutil.which("chromium")
        with self.looked_at(Redis, "--no-repair") as cluster:
            leads = cluster.primary()
            odd = next(n for n in (1, 2, 3) if n != leads)
            self.assertIsNone(cluster.status()[leads]["divergence"]["first_difference"])
            with RedisClient(cluster.address(leads)) as redis:
                redis("SET", "key", good)
                redis("INCR", "equal")
                wait_until(lambda: flip(cluster.server_pid(odd), good, odd_value), 20, "it has come to that replica, and is another there")
                self.assertEqual(redis("GET", "key"), good)
                self.await_alarm(odd, "fenced", use=lambda: redis("INCR", "more"))
            for n in (1, 2, 3):
                found = wait_until(lambda: (first := cluster.status()[n]["divergence"]["first_difference"])
                                   and len(first["sides"]) == 3 and first, 20, f"replica {n} knows all sides")
                self.assertTrue(found["exact"])
                self.assertEqual({side["replica"]: "cosmos" in side["excerpt"] for side in found["sides"]},
                                 {m: m == odd for m in (1, 2, 3)})
                for side in found["sides"]:
                    self.assertEqual((side["call"], side["bytes"]), ("send", len(good) + 7))
                    self.assertEqual(side["offset"], len(b"+OK\r\n:1\r\n"))
                    self.assertEqual(side["connection"], found["sides"][0]["connection"])
                self.assertEqual(found["byte"], len(b"$38\r\n") + good.index(b"client") + 1, "c is the first of both")
            said = cluster.crane("status").stdout
            self.assertIn("what they put out where they first differ", said)
            self.assertRegex(said, rf'replica {odd}: send on connection \w+ at its byte 9, 45 bytes.*written by the cosmos')
            if browser:
                shown = self.dom(browser, cluster, f"http://127.0.0.{leads}:{self.port}/")
                self.assertRegex(shown, r"First different output\s+Found \d+ s ago at log index")
                self.assertEqual((shown.count("written by the client"), shown.count("written by the cosmos")), (2, 1))
                self.assertEqual(shown.count("b&gt;as it was&lt;/b&gt;"), 3)  # from 32 bytes before the first different one on
            else:
                self.note("no chromium: the page was not looked at")

    def dom(self, browser, cluster, address):
        """The page's text when it has asked for the status."""
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={cluster.dir}/browser",
                               "--virtual-time-budget=4000", "--window-size=1300,1500",
                               f"--screenshot={cluster.dir}/page.png", "--enable-logging=stderr", "--dump-dom", address],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertNotIn("CONSOLE", done.stderr, "the page has no errors")
        body = re.sub(r"<script.*?</script>|<style.*?</style>", "", done.stdout, flags=re.DOTALL)
        return re.sub(r"<[^>]+>", " ", body)
