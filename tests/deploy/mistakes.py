"""What operators do that must not do harm: changes that a running cluster cannot take, a stopped replica that is to stay so, a
deployment that is broken off, a package that was built again."""

import hashlib
import os
import shutil
import signal

from bed import BedError, run, wait_until
from clients import WebWriter
from trial import WEB, Load

HOSTS = [1, 2, 3]


def each(trial, command):
    return {number: trial.bed.hosts[number].ssh(command).strip() for number in HOSTS}


PLAYBOOKS = {"check": (), "deploy": (), "upgrade": (), "status": (), "start": (), "stop": (), "image": (), "reboot": (), "diff": (), "backup": (),
             "logs": (), "add": ("crane_host=h3",), "remove": ("crane_host=h3",), "rejoin": ("crane_host=h3",),
             "replace": ("crane_host=h3", "crane_old=2"), "restore": ("crane_backup=/dev/null",), "destroy": ("crane_destroy=web",)}
# Beside web, which runs.
OTHER = {"crane_cluster": "other", "crane_profile": "apache2", "crane_peer_port": 7420, "crane_ports": {80: 8090}}


def unchanged(trial, refuse):
    """What the hosts have is the same before and after."""
    look = "find /etc/crane -type f -exec sha256sum {} + | sort; systemctl show -p MainPID crane@web; dpkg-query -W; ls /var/lib/crane"
    before = each(trial, look)
    refuse()
    trial.inventory(HOSTS, **WEB)
    changed = {number: sorted(set(text.splitlines()) ^ set(before[number].splitlines())) for number, text in each(trial, look).items()}
    if any(changed.values()):
        raise BedError(f"what was refused has changed something: {changed}")


def refusals(trial):
    """Before anything is changed."""
    def refuse():
        for settings, words in (({"crane_settings": {"schedule": {"policy": "parallel"}}}, "its server would run otherwise"),
                                ({"crane_peer_port": 7410}, "and reaches its replicas at"),
                                ({"crane_prots": {80: 80}}, "crane_prots is no setting of Crane: is crane_ports meant?")):
            trial.inventory(HOSTS, **WEB | settings)
            trial.refused("deploy", "web", words)
    unchanged(trial, refuse)


def refused_everywhere(trial):
    """By each of the playbooks, and what is wrong with one host keeps all from being changed."""
    trial.inventory(HOSTS, **WEB | {"crane_prots": {80: 80}})
    for name, extra in PLAYBOOKS.items():
        trial.refused(name, "web", "crane_prots is no setting of Crane: is crane_ports meant?", *extra)
    trial.inventory(HOSTS, **WEB | {"crane_own_addresses": ["10.9.9.8/24"]})
    trial.refused("deploy", "web", "its server would run otherwise")
    trial.inventory(HOSTS, **WEB)
    for name in ("add", "remove", "rejoin", "replace"):
        trial.refused(name, "web", "-e crane_host=NAME, one of h1, h2, h3")
    trial.refused("destroy", "web", "-e crane_destroy=web", "crane_destroy=other")
    hosts_refused(trial)


def hosts_refused(trial):
    trial.inventory(HOSTS, {3: {"ansible_host": "10.66.7.77"}}, **OTHER)
    trial.refused("deploy", "other", "h3: it cannot be reached (")
    trial.inventory(HOSTS, **OTHER)
    trial.play_again("check", "other")
    for hosts, settings, words in (({3: {"crane_replica": 2}}, {}, "crane_replica is 2 of h3 and of h2"),
                                   ({3: {"ansible_host": trial.bed.hosts[2].address}}, {}, "of h3 and of h2: each replica has a host of its own"),
                                   ({3: {"crane_address": "10.66.7.9"}}, {}, "h3: crane_address (else ansible_host) is 10.66.7.9, and no address of this"),
                                   ({}, {"crane_ports": {80: 80}}, "port 80 (crane_ports) is in use by crane@web.service"),
                                   ({}, {"crane_peer_port": 7400}, "port 7400 (crane_peer_port) is in use by crane@web.service"),
                                   ({}, {"crane_profile": "apache"}, "there is no profile apache: is apache2 meant?")):
        trial.inventory(HOSTS, hosts, **OTHER | settings)
        trial.refused("deploy", "other", words)
    trial.inventory([1, 2], **OTHER)
    trial.refused("deploy", "other", "group crane has 2 hosts (h1, h2): a cluster begins with 3, 5 or 7")
    trial.inventory(HOSTS, **OTHER)
    trial.bed.hosts[3].ssh("cp /etc/os-release /root/os-release; sed -i --follow-symlinks 's/=.12.$/=11/' /etc/os-release")
    trial.refused("deploy", "other", "h3: it has debian 11, and Crane needs Debian 12")
    trial.bed.hosts[3].ssh("cat /root/os-release > /etc/os-release; rm /root/os-release")


def stopped(trial):
    """A replica that its operator has stopped is not started by its audit, which begins and ends with it."""
    host = trial.bed.hosts[3]

    def states():
        return host.ssh("systemctl is-active crane@web.service crane-audit@web.service", check=False).split()

    host.ssh("systemctl enable --now crane-audit@web.service")
    wait_until(lambda: "equal" in host.ssh("cat /var/lib/crane/web/audit.statement", check=False), 60, "the audit has stated something")
    host.ssh("systemctl stop crane@web.service")
    if states() != ["inactive", "inactive"]:
        raise BedError(f"stopped, and they are {states()}")
    host.ssh("systemctl start crane-audit@web.service")  # waits for whatever it wants
    if states()[0] != "inactive":
        raise BedError("the audit has started a replica that was stopped")
    host.ssh("systemctl stop crane-audit@web.service")
    trial.play("start", "web")
    wait_until(lambda: states() == ["active", "active"], 30, f"the audit begins with the replica: {states()}")
    host.ssh("systemctl disable --now crane-audit@web.service")


def not_spared(trial, numbers, number, other):
    """With another host lost, the log and the vote of one that runs are not taken away."""
    load = Load(trial, "web", WebWriter, numbers)
    trial.bed.hosts[other].kill()
    trial.refused("rejoin", "web", f"without it 1 of the 3 voters are left, and 2 have to be there; replica {other} is not connected",
                  f"crane_host=h{number}")
    load.goes_on()
    trial.bed.hosts[other].start()
    trial.bed.hosts[other].wait()
    wait_until(lambda: trial.status(other, "web").get("healthy"), 120, f"h{other} is back")
    load.check()


def broken_off(trial):
    """Whoever was restarted is not again, and nobody is left out."""
    mark = "cat /etc/crane/web.started"
    before = each(trial, mark)
    trial.inventory(HOSTS, **WEB | {"crane_settings": {"checkpoint": {"log_mib": 32}}})
    playing, _ = trial.begin_play("deploy", "web")
    wait_until(lambda: playing.poll() is not None or each(trial, mark) != before, 300, "a first replica was restarted")
    if playing.poll() is not None:
        raise BedError("the deployment ended before it could be broken off")
    os.killpg(playing.pid, signal.SIGKILL)
    playing.wait()
    for number in HOSTS:  # what it had begun there
        wait_until(lambda: not trial.bed.hosts[number].ssh("pgrep -f [A]nsiballZ", check=False).strip(), 60, "its modules have ended")
    pids = each(trial, "systemctl show -p MainPID crane@web")
    done = [number for number, text in each(trial, mark).items() if text != before[number]]
    trial.play("deploy", "web")
    now, after = each(trial, mark), each(trial, "systemctl show -p MainPID crane@web")
    again = [number for number in done if after[number] != pids[number]]
    left_out = [number for number in HOSTS if now[number] == before[number] or number not in done and after[number] == pids[number]]
    if again or left_out:
        raise BedError(f"restarted before: {done}; again: {again}; never: {left_out}")
    trial.say(f"broken off behind h{done}, and gone on with")


EXPIRED = """mkdir issuing && : >issuing/database && openssl req -new -key replica.key -subj "/CN=expired" -out issuing/csr &&
openssl ca -batch -notext -config openssl.cnf -extensions replica -cert ../ca.crt -keyfile ../ca.key -in issuing/csr -out replica.crt \
    -startdate 20200101000000Z -enddate 20210101000000Z && rm -r issuing"""


def certificates(trial):
    """One that has expired, or lies beside the key of another one, keeps craned from starting, and no host from being deployed to."""
    trial.inventory(HOSTS, **WEB)
    own = trial.bed.work / "crane-secrets" / "web" / "replica-1"
    run("bash", "-c", f"cd {own} && {EXPIRED}")
    another = run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    for number, name, text, words in ((1, "replica.crt", (own / "replica.crt").read_text(), "expired on"),
                                      (2, "replica.key", another, "does not belong to")):
        host = trial.bed.hosts[number]
        host.ssh(f"cat >/etc/crane/tls/web/{name} <<END\n{text}END")
        wait_until(lambda host=host, words=words: words in host.ssh("crane status --state-dir /var/lib/crane/web", check=False), 60,
                   f"h{number} tells of it")
    trial.play("deploy", "web")
    for number in HOSTS:
        host = trial.bed.hosts[number]
        host.ssh("craned --check-config --config /etc/crane/web.toml")  # also that the key belongs to the certificate
        wait_until(lambda host=host: "alarm certificate" not in host.ssh("crane status --state-dir /var/lib/crane/web", check=False), 60,
                   f"h{number} uses what was shipped")
    trial.play_again("deploy", "web")


def another_package(trial, package):
    """Of the same version, with another shim; its file, the shim's name and sum."""
    tree = trial.bed.work / "again"
    run("dpkg-deb", "--raw-extract", package, tree)
    shim = next(tree.glob("usr/lib/crane/**/libcrane.so"))
    with open(shim, "ab") as file:
        file.write(b"\n")
    name, sums = str(shim.relative_to(tree)), tree / "DEBIAN/md5sums"
    lines = [f"{hashlib.md5(shim.read_bytes()).hexdigest()}  {name}" if line.endswith("  " + name) else line
             for line in sums.read_text().splitlines()]
    sums.write_text("\n".join(lines) + "\n")
    wanted = hashlib.md5(shim.read_bytes()).hexdigest()
    made = trial.bed.work / f"again-{wanted[:8]}.deb"
    run("dpkg-deb", "--build", "-Zgzip", "-z1", tree, made, timeout=300)
    shutil.rmtree(tree)
    return made, name, wanted


def built_again(trial, package):
    """Of the same version, with another shim: deploy leaves it alone, upgrade takes it into use from a checkpoint."""
    trial.package, name, wanted = another_package(trial, package)
    load = Load(trial, "web", WebWriter, HOSTS)
    trial.inventory(HOSTS, **WEB)
    installed = f"md5sum < /{name}"
    before = each(trial, installed)
    trial.play("deploy", "web")
    if each(trial, installed) != before:
        raise BedError("deploy has replaced Crane below replicas that run")
    load.goes_on()
    trial.play("upgrade", "web")
    trial.play_again("deploy", "web")
    found = each(trial, f"{installed}; readlink /proc/$(systemctl show -p MainPID --value crane@web)/exe")
    if any(wanted not in text or "(deleted)" in text for text in found.values()):
        raise BedError(f"upgraded to {wanted}, and there is: {found}")
    load.goes_on()
    load.check()
    trial.play("diff", "web")


def mistakes(trial, package):
    unchanged(trial, lambda: refused_everywhere(trial))
    certificates(trial)
    broken_off(trial)
    built_again(trial, package)
