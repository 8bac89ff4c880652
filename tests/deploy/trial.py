"""What a trial of the deployment is made of: the inventories, the playbooks on them, and the load meanwhile."""

import itertools
import json
import os
import pathlib
import re
import subprocess
import time

from bed import NET, BedError, wait_until

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = (TOP / os.environ.get("BUILD", "build")).resolve()
PLAYBOOKS = TOP / "scripts" / "ansible" / "playbooks"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)

WEB_SITE = """\
DAVLockDB /var/lib/apache2/lock/DAVLock
ServerName crane.test
<Directory /var/www/html/dav>
    Dav On
    Require all granted
</Directory>
"""
DATABASE = ("CREATE DATABASE IF NOT EXISTS test; CREATE USER IF NOT EXISTS tester@'%' IDENTIFIED BY ''; GRANT ALL ON test.* TO tester@'%'; "
            "CREATE TABLE IF NOT EXISTS test.acknowledged (name VARCHAR(64) PRIMARY KEY) ENGINE=InnoDB;")
WEB = {"crane_cluster": "web", "crane_profile": "apache2", "crane_peer_port": 7400,
       "crane_own_addresses": ["10.9.9.9/24"], "crane_settings": {"restart": "always"},
       "crane_image_files": [{"path": "/etc/apache2/conf-enabled/crane-test.conf", "content": WEB_SITE}],
       "crane_image_commands": [["a2enmod", "dav_fs"], ["install", "-d", "-o", "www-data", "/var/lib/apache2/lock", "/var/www/html/dav"]]}
STORE = {"crane_cluster": "store", "crane_profile": "mariadb", "crane_peer_port": 7401, "crane_mariadb_init": DATABASE.replace("; ", ";\n")}
COPY = {"crane_cluster": "copy", "crane_peer_port": 7402, "crane_image_name": "web", "crane_ports": {80: 8080}}

# Where the primary is, whichever that may be.
WEB_ADDRESS, STORE_ADDRESS = f"{NET}.100", f"{NET}.101"
AT_WEB, AT_STORE = WEB | {"crane_virtual_address": f"{WEB_ADDRESS}/24"}, STORE | {"crane_virtual_address": f"{STORE_ADDRESS}/24"}


class Trial:
    def __init__(self, bed, package):
        self.bed, self.package, self.begin, self.lines = bed, package, time.monotonic(), []
        self.inventories = {}

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.0f} s  {text}", flush=True)

    def inventory(self, numbers, of_hosts=None, **settings):
        """A file of its own for each cluster; `numbers`: the hosts, and so the replicas; of_hosts: variables of single ones."""
        name = settings["crane_cluster"]
        options = " ".join(str(word) for word in self.bed.ssh_options)
        whole = {"crane": {"hosts": {f"h{n}": {"ansible_host": self.bed.hosts[n].address, "crane_replica": n} | (of_hosts or {}).get(n, {})
                                     for n in numbers},
                           "vars": {"ansible_user": "root", "ansible_ssh_common_args": options,
                                    "crane_package": str(self.package), **settings}}}
        path = self.bed.work / f"{name}.json"  # YAML, too
        path.write_text(json.dumps(whole, indent=1))
        path = path.rename(path.with_suffix(".yml"))
        self.inventories[name] = path
        return path

    def _words(self, name, cluster, extra):
        """The command, and how it is run."""
        words = ["ansible-playbook", "-i", str(self.inventories[cluster]), str(PLAYBOOKS / f"{name}.yml")]
        for one in extra:
            words += ["-e", one]
        environment = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS.parent / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                                    "ANSIBLE_HOME": str(self.bed.work / "ansible"), "LC_ALL": "C.UTF-8",
                                    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.bed.work / "cp")}
        return words, {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "env": environment, "cwd": PLAYBOOKS.parent}

    def _run(self, name, cluster, extra, timeout):
        words, how = self._words(name, cluster, extra)
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=timeout, check=False, **how)
        (self.bed.work / f"{name}-{cluster}.log").write_text(done.stdout)
        return done

    def begin_play(self, name, cluster, *extra):
        """The process, which leads a group of its own, and where what it says is written."""
        words, how = self._words(name, cluster, extra)
        said = self.bed.work / f"{name}-{cluster}-begun.log"
        with open(said, "w", encoding="utf-8") as out:
            return subprocess.Popen(words, stdout=out, start_new_session=True, **how), said

    def refused(self, name, cluster, why, *extra):
        """It fails with these words, and has changed nothing."""
        done = self._run(name, cluster, extra, 300)
        changed = {host: int(count) for host, _, count, *_ in RECAP.findall(done.stdout)}
        if done.returncode == 0 or why not in " ".join(done.stdout.split()) or not changed or any(changed.values()):
            raise BedError(f"{name}.yml was to be refused, since {why}: it exited with {done.returncode}, changed {changed}:\n{done.stdout[-4000:]}")
        self.say(f"{name}.yml on {cluster}: refused, {why}")

    def play(self, name, cluster, *extra, timeout=600):
        """How many things it changed, by host."""
        begin = time.monotonic()
        done = self._run(name, cluster, extra, timeout)
        if done.returncode != 0:
            tail = [line[:1500] for line in done.stdout.splitlines() if not line.startswith(("ok:", "skipping:")) and line.strip()]
            raise BedError(f"{name}.yml on {cluster} failed:\n" + "\n".join(tail[-40:]))
        changed = {host: int(count) for host, _, count, *_ in RECAP.findall(done.stdout)}
        said = re.findall(r"identical: \w+ records of \w+ replicas, \w+", " ".join(done.stdout.split()))
        self.say(f"{name}.yml on {cluster}: {time.monotonic() - begin:.0f} s, changed {sum(changed.values())}"
                 + "".join(f"; {one}" for one in said))
        return changed

    def play_again(self, name, cluster, *extra):
        changed = self.play(name, cluster, *extra)
        if not changed or any(changed.values()):
            log = (self.bed.work / f"{name}-{cluster}.log").read_text()
            raise BedError(f"{name}.yml again changed something: {changed}\n"
                           + "\n".join(line for line in log.splitlines() if line.startswith(("TASK", "changed"))))

    def status(self, host, cluster):
        return json.loads(self.bed.hosts[host].ssh(f"crane status --json --state-dir /var/lib/crane/{cluster}", check=False))

    def primary(self, cluster, asked):
        return self.status(asked, cluster)["primary"]


class Load:
    """Writers to one cluster, from here to check(): by the hosts' addresses, or by the virtual one alone."""

    numbers = itertools.count()

    def __init__(self, trial, cluster, kind, numbers, through=None, writers=2):
        self.trial, self.cluster = trial, cluster
        self.addresses = [trial.bed.hosts[number].address for number in numbers]
        # No write is found that an earlier load's writer had written.
        self.writers = [kind([through] if through else self.addresses, next(Load.numbers)) for _ in range(writers)]
        for one in self.writers:
            one.start()
        wait_until(lambda: all(one.acknowledged > 3 for one in self.writers), 60,
                   f"writes to {cluster} are acknowledged: {[one.last_error for one in self.writers]}")

    def goes_on(self):
        """They are served again: a write that began after this call is acknowledged."""
        before = [one.acknowledged for one in self.writers]
        wait_until(lambda: all(one.acknowledged > count + 1 for one, count in zip(self.writers, before)), 60,
                   f"writes to {self.cluster} go on: {[one.last_error for one in self.writers]}")

    def ask(self, addresses):
        """Of writers that have ended."""
        for address in addresses:
            for one in self.writers:
                lost = one.lost(address)
                if lost:
                    raise BedError(f"{self.cluster} at {address}: acknowledged and lost: {len(lost)}, as {lost[:5]}")

    def in_copy(self, port, numbers):
        """What was acknowledged before the backup is in the cluster that is served at this port."""
        for number in numbers:
            for one in self.writers:
                copy = type(one)([], one.number)
                copy.port, copy.acknowledged = port, one.acknowledged
                lost = copy.lost(self.trial.bed.hosts[number].address)
                if lost:
                    raise BedError(f"not in the copy on h{number}: {len(lost)}, as {lost[:5]}")
        self.trial.say(f"the copy has all that the backup was of, on {len(numbers)} hosts")

    def check(self, addresses=None):
        """Ends the writers, and asks each host for everything."""
        for one in self.writers:
            one.end()
        self.ask(addresses or self.addresses)
        self.trial.say(f"{self.cluster}: {sum(one.acknowledged for one in self.writers)} writes acknowledged, none lost on "
                       f"{len(addresses or self.addresses)} hosts; {sum(one.failures for one in self.writers)} connections lost; "
                       f"longest pause {max(one.longest_s for one in self.writers):.2f} s")
