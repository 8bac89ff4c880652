"""What an operator gets wrong in an inventory, or a host has otherwise, is refused by its name, before anything is changed."""

import importlib.util
import json
import pathlib
import re
import tempfile
import unittest

try:
    import jinja2
except ImportError:  # it comes with ansible
    jinja2 = None

TOP = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = TOP / "scripts" / "ansible" / "roles" / "crane" / "filter_plugins"
PLAYBOOKS = TOP / "scripts" / "ansible" / "playbooks"


def plugin(name):
    spec = importlib.util.spec_from_file_location(name, PLUGINS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


inventory, hosts = plugin("crane_inventory"), plugin("crane_hosts")

SAID = {
    "crane_replica": 1, "crane_witness": False, "crane_cluster": "web", "crane_profile": "apache2", "crane_peer_port": 7400, "crane_address": "10.0.0.1",
    "crane_client_address": "10.0.0.1", "crane_virtual_address": "", "crane_virtual_id": "6", "crane_ports": {80: 8080},
    "crane_settings": {}, "crane_limits": {"CPUWeight": 200}, "crane_own_addresses": [], "crane_image_release": "1",
    "crane_image_name": "web", "crane_image_packages": [], "crane_image_files": [], "crane_image_commands": [["a2enmod", "dav_fs"]],
    "crane_image_exclude": ["/var/cache"], "crane_package": "", "crane_criu": "/opt/crane/criu", "crane_lxc_units": [],
    "crane_time_daemon": "chrony", "crane_wait_s": "180", "crane_secrets": "/a", "crane_images": "/b", "crane_results": "/c",
    "crane_authority_days": 3650, "crane_certificate_days": 825, "crane_renewal_days": 60, "crane_checkpoint": True,
    "crane_profile_packages": ["apache2"], "crane_profile_units": [], "crane_profile_server": ["/usr/sbin/apache2"],
    "crane_profile_environment": {"LANG": "C"}, "crane_profile_ports": {80: 80}, "crane_profile_settings": {}, "crane_profile_files": []}
THREE = {f"h{n}": {"ansible_host": f"10.0.0.{n}", "crane_replica": n} for n in (1, 2, 3)}
LOOK = {"uid": 0, "system": "debian", "release": "12", "machine": "x86_64", "addresses": ["10.0.0.1", "127.0.0.1"],
        "resolved": ["10.0.0.1"], "listening": [], "log": False, "witness": None, "contained": False, "synchronised": True, "time_daemon": "chrony", "time": 5.0}


def of_inventory(names=(), group=None, founded=False, **said):
    return inventory.inventory_mistakes(SAID | said, "h1", names, THREE if group is None else group, founded)


def of_host(founded=False, asks="deploy", said=(), **look):
    whole = SAID | dict(said)
    return hosts.host_mistakes({"found": LOOK | look}, whole, inventory.ports_wanted(whole), founded, asks)


class Refusals(unittest.TestCase):
    def refused(self, mistakes, *words):
        self.assertEqual(1, len(mistakes), mistakes)
        for word in words:
            self.assertIn(word, mistakes[0])


class InventoryTest(Refusals):
    def test_one_that_is_right_is_not_refused(self):
        self.assertEqual([], of_inventory(["crane_cluster", "crane_mariadb_init", "ansible_host", "my_own"]))

    def test_every_default_has_a_kind_or_follows_from_others(self):
        text = (TOP / "scripts/ansible/roles/crane/defaults/main.yml").read_text(encoding="utf-8")
        settable = text[:text.index("# --- what follows from these")]
        self.assertEqual(set(re.findall(r"^(crane_\w+):", settable, re.MULTILINE)), set(inventory.KINDS) - {"crane_replica", "crane_checkpoint"})

    def test_names_that_nobody_reads_are_refused_with_the_ones_that_are_meant(self):
        self.refused(of_inventory(["crane_profle"]), "crane_profle is no setting", "is crane_profile meant?")
        self.refused(of_inventory(["carne_profile"]), "carne_profile is no setting", "is crane_profile meant?")

    def test_values_of_another_kind_are_refused_by_name(self):
        for name, values in {"crane_replica": ["", 0, 256, "one", True], "crane_cluster": ["", "Web", "a_b", 3],
                             "crane_peer_port": [0, 65536, "74OO"], "crane_ports": [{}, {80: 0}, [80], {80: 70000}, {80: 1, 81: 1}],
                             "crane_settings": [[], {"checkpoint": 3}, {"checkpiont": {}}, {"checkpoint": {"log_mb": 1}}, {"tls": {}},
                                                {"checkpoint": {"log_mib": "64"}}, {"schedule": {"policy": "fast"}},
                                                {"disk": {"reserve_bytes": True}}, {"restart": "never"}, {"egress": {"allow": "any"}}],
                             "crane_witness": ["maybe", 1, {}], "crane_limits": [[], {"a": []}], "crane_virtual_id": [0, 256], "crane_wait_s": ["soon"],
                             "crane_image_files": [[{"path": "/a"}], [{"path": "/a", "content": "", "mode": 420}], "x"],
                             "crane_image_commands": [["a2enmod dav_fs"], "a2enmod"], "crane_image_packages": ["nano"],
                             "crane_image_exclude": [["/a/"]], "crane_image_release": ["a/b"],
                             "crane_own_addresses": ["10.0.0.5/24", ["10.0.0.5"], ["127.0.0.1/8"], ["10.0.0.5/24", "10.0.0.5/8"]],
                             "crane_package": ["/nowhere/crane.deb"]}.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    self.refused(of_inventory(**{name: value}), name)

    def test_numbers_that_come_as_texts_are_taken(self):
        self.assertEqual([], of_inventory(crane_peer_port="7410", crane_replica="1", crane_ports={"80": "8080"}, crane_checkpoint="false"))

    def test_numbers_and_addresses_are_those_of_one_host(self):
        self.refused(of_inventory(group=THREE | {"h2": {"ansible_host": "10.0.0.2", "crane_replica": "1"}}), "crane_replica is 1 of h1 and of h2")
        self.refused(of_inventory(group=THREE | {"h2": {"crane_address": "10.0.0.1", "crane_replica": 2}}), "10.0.0.1 of h1 and of h2")

    def test_a_cluster_begins_with_three_five_or_seven(self):
        for count in (1, 2, 4, 9):
            group = {f"h{n}": {"ansible_host": f"10.0.0.{n}", "crane_replica": n} for n in range(1, count + 1)}
            self.refused(of_inventory(group=group), f"group crane has {count} host", "3, 5 or 7")
            self.assertEqual([], of_inventory(group=group, founded=True))

    def test_one_host_at_least_has_a_server(self):
        def of(*witnesses, **more):
            return of_inventory(group={name: host | {"crane_witness": name in witnesses} for name, host in THREE.items()}, **more)
        for founded in (False, True):
            self.assertEqual([], of("h1", founded=founded))
            self.assertEqual([], of("h2", "h3", founded=founded))  # as crane-run --witnesses 2
            self.refused(of("h1", "h2", "h3", founded=founded), "crane_witness is true of all hosts (h1, h2, h3)", "has to run the server")
        two = {name: THREE[name] for name in ("h1", "h2")}
        self.refused(of_inventory(group=two | {"h2": THREE["h2"] | {"crane_witness": True}}), "group crane has 2 hosts", "3, 5 or 7")
        self.refused(of_inventory(crane_settings={"witness": True}), "has witness", "crane_witness of a host")
        self.assertEqual(["h2"], inventory.witnesses(list(THREE), THREE | {"h1": {"crane_witness": "false"}, "h2": {"crane_witness": "True"}}))

    def test_a_witness_has_no_clients(self):
        own = SAID | {"crane_witness": True, "crane_settings": {"metrics": {"listen": "0.0.0.0:9464"}}}
        self.assertEqual([7400, 9464], [port for port, *_ in inventory.ports_wanted(own)])
        self.assertEqual([], of_inventory(crane_witness=True, crane_ports={80: 7400}, crane_client_address="nowhere", crane_virtual_address="10.0.0.100/24"))

    def test_ports_do_not_meet(self):
        self.refused(of_inventory(crane_ports={80: 7400}), "port 7400", "crane_peer_port", "crane_ports")
        self.refused(of_inventory(crane_settings={"admin": {"listen": "0.0.0.0:7400"}}), "must be another one than crane_peer_port")
        self.assertEqual([], of_inventory(crane_settings={"metrics": {"listen": "127.0.0.1:8080"}}))

    def test_virtual_addresses_are_nobodys_own(self):
        free = {"crane_client_address": "0.0.0.0"}
        self.assertEqual([], of_inventory(crane_virtual_address="10.0.0.100/24", **free))
        self.refused(of_inventory(crane_virtual_address="10.0.0.100", **free), "crane_virtual_address", "10.0.0.100/24")
        self.refused(of_inventory(crane_virtual_address="10.0.0.1/24", **free), "crane_virtual_address", "h1's own")
        self.refused(of_inventory(crane_virtual_address="fd00::1/64", **free), "of another kind")
        self.refused(of_inventory(crane_virtual_address="10.0.0.100/24"), "crane_client_address", "nobody is served")

    def test_profiles_are_found(self):
        self.assertEqual([], inventory.profile_mistakes("apache2", "."))
        self.refused(inventory.profile_mistakes("mariadbd", "."), "no profile mariadbd", "is mariadb meant?", "apache2, mariadb, redis")
        self.refused(inventory.profile_mistakes("/nowhere/own.yml", "."), "/nowhere/own.yml")
        with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as own:
            own.write("crane_profile_server: ['{{ crane_mine }}']\n")
            own.flush()
            self.assertEqual([], of_inventory(["crane_mine"], crane_profile=own.name))

    def test_craneds_settings_are_known_as_craned_knows_them(self):
        kinds = {"text": inventory.TEXT, "number": inventory.NUMBER, "boolean": inventory.BOOLEAN, "texts": inventory.TEXTS}
        tables = {}
        for path in (TOP / "proxy").glob("config*.cpp"):
            source = path.read_text(encoding="utf-8")
            of = {"root": ""} | dict(re.findall(r'\b(\w+) = root\.table\("(\w+)"\)', source))
            for variable, call, key, choices in re.findall(
                    r'\b(\w+)\.(text|number|boolean|choice|texts)\(\s*"(\w+)"(?:,[^;{]*\{([^}]*)\})?', source):
                if variable in of and key not in inventory.ELSEWHERE:
                    tables.setdefault(of[variable], {})[key] = kinds.get(call) or tuple(re.findall(r'"([^"]+)"', choices))
        known = {table: keys for table, keys in inventory.TABLES.items() if table not in ("metrics", "admin")}  # read by a function of their own
        self.assertEqual(known, {table: keys for table, keys in tables.items() if table not in inventory.ELSEWHERE})


class HostTest(Refusals):
    def test_a_host_that_is_right_is_not_refused(self):
        self.assertEqual([], of_host())
        self.assertEqual([], of_host(synchronised=False, contained=True))
        self.assertEqual([], of_host(synchronised=False, time_daemon=""))  # it is installed

    def test_what_a_host_has_otherwise_is_refused(self):
        self.refused(of_host(release="11"), "debian 11", "needs Debian 12")
        self.refused(of_host(system="ubuntu", release="24.04"), "ubuntu 24.04")
        self.refused(of_host(machine="aarch64"), "aarch64")
        self.refused(of_host(uid=1000), "ansible_become")
        self.refused(of_host(synchronised=False), "clock is not synchronised", "chrony")
        self.refused(of_host(resolved=["10.0.0.9"], said={"crane_address": "10.0.0.9"}), "crane_address", "no address of this host, which has 10.0.0.1")
        self.refused(of_host(said={"crane_client_address": "10.0.0.9"}), "crane_client_address")

    def test_a_port_that_is_in_use_is_refused_with_who_has_it(self):
        def used(port, address, unit):
            return [{"port": port, "address": address, "program": "x", "unit": unit}]
        self.refused(of_host(listening=used(8080, "0.0.0.0", "apache2.service")), "port 8080 (crane_ports)", "in use by apache2.service")
        self.refused(of_host(listening=used(7400, "10.0.0.1", "crane@other.service")), "port 7400 (crane_peer_port)", "crane@other.service")
        self.assertEqual([], of_host(listening=used(8080, "127.0.0.1", "x.service")))
        self.assertEqual([], of_host(listening=used(8080, "10.0.0.1", "crane@web.service")))

    def test_a_witness_wants_no_clients_port_or_address(self):
        web = [{"port": 8080, "address": "0.0.0.0", "program": "x", "unit": "apache2.service"}]
        self.refused(of_host(listening=web), "port 8080")
        self.assertEqual([], of_host(listening=web, said={"crane_witness": True, "crane_client_address": "10.0.0.9"}))
        peers = [web[0] | {"port": 7400}]
        self.refused(of_host(listening=peers, said={"crane_witness": "true"}), "port 7400 (crane_peer_port)")

    def test_a_replica_does_not_become_another_kind_while_others_know_it(self):
        for asks in ("upgrade", "image", "reboot", "rejoin"):
            self.refused(of_host(log=True, witness=False, said={"crane_witness": True}, founded=True, asks=asks), "is no witness, and crane_witness is true",
                         "playbooks/stop.yml")
            self.refused(of_host(log=True, witness=True, founded=True, asks=asks), "is a witness, and crane_witness is false", "playbooks/stop.yml")
            self.assertEqual([], of_host(log=True, witness=True, said={"crane_witness": "yes"}, founded=True, asks=asks))
            self.assertEqual([], of_host(witness=True, founded=True, asks=asks))  # it has not come to know anybody
        self.assertEqual([], of_host(log=True, witness=True, founded=True, asks="deploy"))  # which looks whether they run

    def test_a_host_that_the_cluster_has_not_had_is_no_replica_by_being_deployed_to(self):
        self.refused(of_host(founded=True), "playbooks/add.yml", "playbooks/rejoin.yml")
        self.assertEqual([], of_host(founded=True, log=True))
        self.assertEqual([], of_host(founded=True, asks="add"))

    def test_hosts_that_cannot_be_asked_are_refused(self):
        self.refused(hosts.host_mistakes({"unreachable": True, "msg": "no route"}, SAID, []), "cannot be reached (no route)")
        self.refused(hosts.host_mistakes({"failed": True, "module_stderr": "python3: not found"}, SAID, []), "python3: not found")

    def test_clocks_that_differ_are_refused(self):
        self.assertEqual([], hosts.clocks_apart({"a": {"found": {"time": 1.0}}, "b": {"found": {"time": 3.0}}, "c": {"unreachable": True}}))
        self.refused(hosts.clocks_apart({"a": {"found": {"time": 1.0}}, "b": {"found": {"time": 300.0}}}), "clock of b is 299 s before that of a")


class RejoinTest(unittest.TestCase):
    """A log is taken away only where the others decide without it."""

    @staticmethod
    def said(leader=1, voters=(1, 2, 3), view=4, **of_peers):
        """What crane status --json says on the host of the primary; of_peers: r2={"connected": False}."""
        peers = [{"replica": n, "voter": True, "connected": True, "rejoining": False, "needs_checkpoint": False} | of_peers.get(f"r{n}", {})
                 for n in voters if n != leader]
        return json.dumps({"replicas": [{"replica": leader, "alive": True, "role": "primary", "view": view, "leader": leader, "peers": peers,
                                         "membership": {"members": [{"replica": n, "voter": True} for n in voters] + [{"replica": 9, "voter": False}]}}]})

    def test_a_vote_that_can_be_spared_is(self):
        backup = json.dumps({"replicas": [{"replica": 2, "alive": True, "role": "backup", "leader": 1}]})
        down = json.dumps({"replicas": [{"replica": 3, "alive": False, "role": "down", "error": "not running"}]})
        for others in ([], [backup, down, "", "no JSON", '{"error": "holds no replica"}']):
            self.assertEqual("", hosts.unspared([*others, self.said()], 3))
        self.assertEqual("", hosts.unspared([self.said(r3={"connected": False})], 3))
        self.assertEqual("", hosts.unspared([self.said()], 1))  # it leads, and another one will
        self.assertEqual("", hosts.unspared([self.said(voters=(1, 2, 3, 4, 5), r2={"connected": False})], 3))

    def test_a_vote_that_cannot_be_spared_stays(self):
        for trouble, word in (({"connected": False}, "is not connected"), ({"rejoining": True}, "has lost its database"),
                              ({"needs_checkpoint": True}, "waits for a checkpoint")):
            why = hosts.unspared([self.said(r2=trouble)], 3)
            self.assertIn(f"without it 1 of the 3 voters are left, and 2 have to be there; replica 2 {word}", why)
            self.assertIn("Bring those back first", why)
        self.assertIn("Add another one first", hosts.unspared([self.said(voters=(1, 3))], 3))
        # Who has led before does not know.
        self.assertNotEqual("", hosts.unspared([self.said(view=3), self.said(leader=2, view=5, r1={"connected": False})], 3))

    def test_where_nobody_leads_nothing_is_taken_away(self):
        for said in ([], ["", "no JSON"], [json.dumps({"replicas": [{"replica": 1, "alive": True, "role": "candidate", "leader": 0}]})]):
            self.assertIn("nobody leads", hosts.unspared(said, 3))

    def test_the_playbook_looks_before_it_changes_anything_and_again_before_it_stops(self):
        playbook = (PLAYBOOKS / "rejoin.yml").read_text(encoding="utf-8")
        self.assertLess(playbook.index("tasks_from: spared"), playbook.index("tasks_from: profile"))
        tasks = (PLAYBOOKS.parent / "roles/crane/tasks/rejoin.yml").read_text(encoding="utf-8")
        self.assertLess(tasks.index("spared.yml"), tasks.index("stop.yml"))


class WaitTest(unittest.TestCase):
    @unittest.skipIf(jinja2 is None, "no jinja2 (scripts/install_deps.sh --deploy)")
    def test_a_replica_that_does_not_count_yet_is_waited_for(self):
        text = (PLAYBOOKS.parent / "roles/crane/tasks/wait.yml").read_text(encoding="utf-8")
        until = " ".join(re.search(r"until: >-\n((?:    .*\n)+)", text)[1].split())
        environment = jinja2.Environment()
        environment.filters["from_json"] = json.loads
        well = environment.compile_expression(until)

        def is_well(code=0, **said):
            row = {"lag": 0, "server": "witness", "rejoining": False, "lacks_checkpoint": False} | said
            return well(crane_status={"rc": code, "stdout": json.dumps({"replicas": [row]})})
        self.assertTrue(is_well())
        self.assertTrue(is_well(server="listening"))
        for said in ({"lacks_checkpoint": True}, {"rejoining": True}, {"server": "starting"}, {"lag": 1000}, {"code": 1}):
            self.assertFalse(is_well(**said), said)


class PlaybooksTest(unittest.TestCase):
    def test_each_begins_with_the_check(self):
        for path in PLAYBOOKS.glob("*.yml"):
            if path.stem != "check":
                plays = path.read_text(encoding="utf-8").split("\n- name:", 1)[1]
                self.assertIn("import_playbook: check.yml\n  vars: {crane_asks: " + path.stem + "}", plays.split("- name:")[0], path.name)


if __name__ == "__main__":
    unittest.main()
