#!/usr/bin/python3
"""make deploy-test: three hosts of a clean Debian 12, Crane's packages, and the playbooks, used as an operator would.

Without an option what a change is to be held against each time: Apache on three hosts; with --all also MariaDB beside it, an
upgrade, reboots, a new image, a replaced and an added host, a backup and a new cluster of it. Clients write all the while; what
was acknowledged must be there in the end, on every host, and the output logs must be identical.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from bed import Bed, BedError, run, wait_until, work_folder  # noqa: E402
from clients import DatabaseWriter, WebWriter  # noqa: E402

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
       "crane_image_files": [{"path": "/etc/apache2/conf-enabled/crane-test.conf", "content": WEB_SITE}],
       "crane_image_commands": [["a2enmod", "dav_fs"], ["install", "-d", "-o", "www-data", "/var/lib/apache2/lock", "/var/www/html/dav"]]}
STORE = {"crane_cluster": "store", "crane_profile": "mariadb", "crane_peer_port": 7401, "crane_mariadb_init": DATABASE.replace("; ", ";\n")}
COPY = {"crane_cluster": "copy", "crane_peer_port": 7402, "crane_image_name": "web", "crane_ports": {80: 8080}}


class Trial:
    def __init__(self, bed, package):
        self.bed, self.package, self.begin, self.lines = bed, package, time.monotonic(), []
        self.inventories = {}

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.0f} s  {text}", flush=True)

    def inventory(self, numbers, **settings):
        """A file of its own for each cluster; `numbers`: the hosts, and so the replicas."""
        name = settings["crane_cluster"]
        options = " ".join(str(word) for word in self.bed.ssh_options)
        whole = {"crane": {"hosts": {f"h{n}": {"ansible_host": self.bed.hosts[n].address, "crane_replica": n} for n in numbers},
                           "vars": {"ansible_user": "root", "ansible_ssh_common_args": options,
                                    "crane_package": str(self.package), **settings}}}
        path = self.bed.work / f"{name}.json"  # YAML, too
        path.write_text(json.dumps(whole, indent=1))
        path = path.rename(path.with_suffix(".yml"))
        self.inventories[name] = path
        return path

    def play(self, name, cluster, *extra, timeout=600):
        """How many things it changed, by host."""
        begin = time.monotonic()
        words = ["ansible-playbook", "-i", str(self.inventories[cluster]), str(PLAYBOOKS / f"{name}.yml")]
        for one in extra:
            words += ["-e", one]
        environment = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS.parent / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                                    "ANSIBLE_HOME": str(self.bed.work / "ansible"), "LC_ALL": "C.UTF-8",
                                    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.bed.work / "cp")}
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, check=False, env=environment, cwd=PLAYBOOKS.parent)
        (self.bed.work / f"{name}-{cluster}.log").write_text(done.stdout)
        if done.returncode != 0:
            tail = [line[:1500] for line in done.stdout.splitlines() if not line.startswith(("ok:", "skipping:")) and line.strip()]
            raise BedError(f"{name}.yml on {cluster} failed:\n" + "\n".join(tail[-40:]))
        changed = {host: int(count) for host, _, count, *_ in RECAP.findall(done.stdout)}
        said = re.findall(r'"msg": "(identical: .*)"', done.stdout)
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
    """Writers to one cluster, from here to close()."""

    def __init__(self, trial, cluster, kind, numbers, writers=2):
        self.trial, self.cluster = trial, cluster
        self.addresses = [trial.bed.hosts[number].address for number in numbers]
        self.writers = [kind(self.addresses, number) for number in range(writers)]
        for one in self.writers:
            one.start()
        wait_until(lambda: all(one.acknowledged > 3 for one in self.writers), 60,
                   f"writes to {cluster} are acknowledged: {[one.last_error for one in self.writers]}")

    def goes_on(self):
        """They are served again: a write that began after this call is acknowledged."""
        before = [one.acknowledged for one in self.writers]
        wait_until(lambda: all(one.acknowledged > count + 1 for one, count in zip(self.writers, before)), 60,
                   f"writes to {self.cluster} go on: {[one.last_error for one in self.writers]}")

    def check(self, addresses=None):
        """Ends the writers, and asks each host for everything."""
        for one in self.writers:
            one.end()
        for address in addresses or self.addresses:
            for one in self.writers:
                lost = one.lost(address)
                if lost:
                    raise BedError(f"{self.cluster} at {address}: acknowledged and lost: {len(lost)}, as {lost[:5]}")
        self.trial.say(f"{self.cluster}: {sum(one.acknowledged for one in self.writers)} writes acknowledged, none lost on "
                       f"{len(addresses or self.addresses)} hosts; {sum(one.failures for one in self.writers)} connections lost; "
                       f"longest pause {max(one.longest_s for one in self.writers):.2f} s")


def core(trial):
    """What is looked at each time: from nothing to a cluster that serves, the second run, a lost primary, and the logs."""
    trial.inventory([1, 2, 3], **WEB)
    trial.play("deploy", "web")
    trial.play_again("deploy", "web")
    load = Load(trial, "web", WebWriter, [1, 2, 3])
    first = trial.primary("web", 1)
    trial.bed.hosts[first].ssh("systemctl kill --kill-whom=main --signal=KILL crane@web.service")
    load.goes_on()
    trial.say(f"the primary's craned (h{first}) was killed; writes go on")
    wait_until(lambda: trial.status(first, "web").get("healthy"), 90, "the killed replica is back")
    load.check()
    trial.play("diff", "web")
    shown = trial.bed.hosts[first].ssh("systemctl show -p StatusText,NRestarts,Type crane@web.service")
    if "NRestarts=1" not in shown or "StatusText=replica" not in shown or "Type=notify" not in shown:
        raise BedError(f"systemd was not told:\n{shown}")


def rolls(trial, later):
    """A new version of Crane, reboots and a new image of the server, under load, one host after the other."""
    trial.inventory([1, 2, 3], **STORE)
    trial.play("deploy", "store")
    trial.play_again("deploy", "store")
    loads = [Load(trial, "web", WebWriter, [1, 2, 3]), Load(trial, "store", DatabaseWriter, [1, 2, 3])]
    trial.package = later
    for name, settings in (("web", WEB), ("store", STORE)):
        trial.inventory([1, 2, 3], **settings)
        trial.play("upgrade", name, "crane_restart=true")
        trial.play_again("deploy", name)
    for load in loads:
        load.goes_on()
    trial.play("reboot", "web", timeout=900)
    for load in loads:
        load.goes_on()
    wait_until(lambda: trial.status(1, "store").get("healthy"), 120, "the other cluster is well, too")
    trial.inventory([1, 2, 3], **WEB | {"crane_image_release": "2",
                                        "crane_image_files": WEB["crane_image_files"] + [{"path": "/var/www/html/two", "content": "2"}]})
    trial.play("image", "web")
    trial.play_again("deploy", "web")
    for load in loads:
        load.check()
    for cluster in ("web", "store"):
        trial.play("diff", cluster)
    return WEB | {"crane_image_release": "2"}


def members(trial, settings):
    """A host that is lost for good, a new one in its place; one more, and one less; a disk that is lost."""
    load = Load(trial, "web", WebWriter, [1, 2])
    trial.bed.hosts[3].kill()
    trial.say("h3 is lost for good")
    trial.bed.host(4).wait()
    trial.inventory([1, 2, 4], **settings)
    trial.play("replace", "web", "crane_host=h4", "crane_old=3")
    trial.play_again("deploy", "web")
    load.goes_on()
    trial.bed.host(5).wait()
    trial.inventory([1, 2, 4, 5], **settings)
    trial.play("add", "web", "crane_host=h5")
    for one in load.writers:
        one.addresses = [trial.bed.hosts[n].address for n in (1, 4, 5)]
    trial.play("remove", "web", "crane_host=h2")
    trial.inventory([1, 4, 5], **settings)
    trial.play("start", "web")
    trial.play("rejoin", "web", "crane_host=h5")
    load.goes_on()
    trial.play("diff", "web")
    load.check([trial.bed.hosts[n].address for n in (1, 4, 5)])


def copies(trial, settings, numbers):
    """A backup of the one cluster is another one's beginning, beside it; then both are gone."""
    load = Load(trial, "web", WebWriter, numbers)
    load.check()
    trial.play("backup", "web")
    archives = sorted((trial.bed.work / "crane-results" / "web").glob("backup-*.tar"))
    trial.inventory(numbers, **settings | COPY)
    trial.play("restore", "copy", f"crane_backup={archives[-1]}")
    for number in numbers:
        for one in load.writers:
            copy = type(one)([], one.number)
            copy.port, copy.acknowledged = 8080, one.acknowledged
            lost = copy.lost(trial.bed.hosts[number].address)
            if lost:
                raise BedError(f"not in the copy on h{number}: {len(lost)}, as {lost[:5]}")
    trial.say(f"the copy has all that the backup was of, on {len(numbers)} hosts")
    trial.play("diff", "copy")
    trial.play("logs", "web")
    for number in numbers:
        names = run("tar", "-tzf", trial.bed.work / "crane-results" / "web" / "logs" / f"h{number}.tgz").split()
        if not {"./status.json", "./journal.txt", "craned.log"} <= set(names) or any("key" in name for name in names):
            raise BedError(f"the logs of h{number} are {names}")
    trial.play("stop", "web")
    trial.play("start", "web")
    for cluster in ("copy", "web"):
        trial.play("destroy", cluster, f"crane_destroy={cluster}")
        left = trial.bed.hosts[numbers[0]].ssh(f"ls -d /var/lib/crane/{cluster} /etc/crane/{cluster}.toml; "
                                               f"systemctl is-active crane@{cluster}", check=False)
        if "active" not in left or "\nactive" in left or left.count("No such file") != 2:
            raise BedError(f"destroyed, and there is: {left}")


def packages(revision=""):
    """The package's file; with a revision a later one."""
    version = (TOP / "VERSION").read_text().strip()
    if revision:
        run(TOP / "scripts/packaging/make_deb.sh", BUILD, os.environ.get("OPT", "-O2 -g"), timeout=900,
            env=os.environ | {"CRANE_DEB_REVISION": revision})
    path = BUILD / "deb" / f"crane_{version}{revision}_amd64.deb"
    if not path.exists():
        raise BedError(f"{path} is missing: make deb")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="everything, some twenty minutes")
    parser.add_argument("--keep", action="store_true", help="leave the hosts running, and say how to reach them")
    chosen = parser.parse_args()
    work, bed, status = work_folder(), None, 0
    try:
        first = packages()
        later = packages("+2") if chosen.all else None
        bed = Bed(BUILD / "deploy", work)
        trial = Trial(bed, first)
        for number in (1, 2, 3):
            bed.host(number)
        for host in bed.hosts.values():
            host.wait()
        trial.say("three hosts are up")
        core(trial)
        if chosen.all:
            settings = rolls(trial, later)
            members(trial, settings)
            copies(trial, settings, [1, 4, 5])
        trial.say("all is as it should be")
    except (BedError, subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        print(f"deploy-test: {error}", file=sys.stderr)
        status = 1
    finally:
        if bed and chosen.keep:
            print(f"kept: nsenter --net=/run/netns/{bed.name} ssh {' '.join(map(str, bed.ssh_options))} root@{bed.hosts[1].address}; {work}")
        else:
            if bed:
                bed.close()
            shutil.rmtree(work, ignore_errors=True)
    print(f"{1 - status} passed, {status} failed, 0 skipped")
    return status


if __name__ == "__main__":
    sys.exit(main())
