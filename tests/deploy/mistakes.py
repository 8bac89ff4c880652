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


def refusals(trial):
    """Before anything is changed."""
    before = each(trial, "sha256sum /etc/crane/web.toml; systemctl show -p MainPID crane@web")
    for settings, words in (({"crane_settings": {"schedule": {"policy": "parallel"}}}, "its server would run otherwise"),
                            ({"crane_peer_port": 7410}, "and reaches its replicas at"),
                            ({"crane_settings": {"admin": {"listen": "0.0.0.0:7400"}}}, "must be another one than crane_peer_port")):
        trial.inventory(HOSTS, **WEB | settings)
        trial.refused("deploy", "web", words)
    trial.inventory(HOSTS, **WEB)
    if each(trial, "sha256sum /etc/crane/web.toml; systemctl show -p MainPID crane@web") != before:
        raise BedError("what was refused has changed something")


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


def broken_off(trial):
    """Whoever was restarted is not again, and nobody is left out."""
    mark = "cat /etc/crane/web.started"
    before = each(trial, mark)
    trial.inventory(HOSTS, **WEB | {"crane_settings": {"checkpoint": {"log_mib": 32}}})
    playing = trial.begin_play("deploy", "web")
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


def built_again(trial, package):
    """Of the same version, with another shim: deploy leaves it alone, upgrade takes it into use from a checkpoint."""
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
    trial.package = trial.bed.work / "again.deb"
    run("dpkg-deb", "--build", "-Zgzip", "-z1", tree, trial.package, timeout=300)
    shutil.rmtree(tree)
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
    broken_off(trial)
    built_again(trial, package)
