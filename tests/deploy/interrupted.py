"""Playbooks that are broken off at a task of the seed's, with a host rebooted meanwhile: called again they come to the right end."""

import os
import random
import signal
import time

from bed import BedError, wait_until
from clients import WebWriter
from mistakes import another_package, each
from trial import WEB, Load

HOSTS = [1, 2, 3]
OLD = "touch -d '1 hour ago'"


class Breaker:
    """Breaks playbooks off, and then has them go on."""

    def __init__(self, trial, seed):
        self.trial, self.random = trial, random.Random(seed)
        trial.say(f"seed {seed}")

    def play(self, name, *extra, reboots=(), settings=None, numbers=HOSTS):
        """Killed at a task; a host of `reboots` is rebooted at once; then called again."""
        self.trial.inventory(numbers, **settings or WEB)
        last = self.random.randint(8, 60)  # the first are those of the check, which changes nothing
        begun, said = self.trial.begin_play(name, "web", *extra)
        wait_until(lambda: begun.poll() is not None or said.read_text().count("\nTASK [") >= last, 600, f"{name}.yml comes to its task {last}")
        ended = begun.poll() is not None
        if ended and begun.returncode != 0:
            raise BedError(f"{name}.yml failed before it was broken off:\n{said.read_text()[-3000:]}")
        time.sleep(self.random.random())
        try:
            os.killpg(begun.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        begun.wait()
        at = said.read_text().rsplit("\nTASK [", 1)[-1].split("]")[0]
        rebooted = self.reboot(self.random.choice(reboots)) if reboots else ""
        self.trial.say(f"{name}.yml {'ended before' if ended else 'was broken off at'} task {last} ({at}){rebooted}")
        self.trial.play(name, "web", *extra)

    def reboot(self, number):
        host = self.trial.bed.hosts[number]
        host.kill()
        host.start()
        # The replica may be one that was removed, whose unit fails until the playbook has disabled it.
        wait_until(lambda: {"running", "degraded"} & set(host.ssh("systemctl is-system-running", check=False).split()), 120, f"{host.name} is up")
        return f", and h{number} lost its power"


def remains(trial, numbers=HOSTS):
    """What broken-off copies have left."""
    found = {number: trial.bed.hosts[number].ssh("ls -d /var/lib/crane/web.* ~/.ansible/tmp/*/source 2>/dev/null", check=False).split()
             for number in numbers}
    return {number: names for number, names in found.items() if names}


def copies_broken_off(trial, breaker):
    """A backup and an image that did not come whole are not there; what they had left is gone."""
    leave = ("mkdir -p ~/.ansible/tmp/ansible-tmp-1; for file in /var/lib/crane/web.img-20200101T000000Z.partial "
             f"/var/lib/crane/web.backup-20200101T000000Z ~/.ansible/tmp/ansible-tmp-1/source; do echo part >$file; {OLD} $file; done")
    results, images = trial.bed.work / "crane-results" / "web", trial.bed.work / "crane-images"
    for number in HOSTS:
        trial.bed.hosts[number].ssh(leave)
    results.mkdir(parents=True, exist_ok=True)
    (results / "backup.part").write_text("part")
    (images / "web-9.img.part").write_text("part")
    before = set(results.glob("backup-*.tar"))  # of other parts of the trial
    trial.play("backup", "web")
    if remains(trial) or (results / "backup.part").exists() or len(set(results.glob("backup-*.tar")) - before) != 1:
        raise BedError(f"left on hosts: {remains(trial)}; here: {[path.name for path in results.iterdir()]}")
    for number in HOSTS:
        trial.bed.hosts[number].ssh(leave)
    again = WEB | {"crane_image_release": "9"}
    breaker.play("image", settings=again)
    for path in images.iterdir():
        if path.suffix == ".part" or path.stat().st_size < 1 << 20:
            raise BedError(f"{path} is there, with {path.stat().st_size} bytes")
    # A module that was at work when its playbook was killed has ended without anybody to remove what it made: the next run does.
    left = {number: [name for name in names if "20200101" in name or "source" in name] for number, names in remains(trial).items()}
    if any(left.values()):
        raise BedError(f"left on hosts: {left}")
    trial.inventory(HOSTS, **again)
    trial.play_again("deploy", "web")
    return again


def half_installed(trial, settings):
    """A host that stopped while Crane was installed has a package that is not whole, and a replica that does not run."""
    host = trial.bed.hosts[2]
    host.ssh("systemctl stop crane@web.service; dpkg --unpack /var/cache/crane.deb")
    if "unpacked" not in host.ssh("dpkg-query --show --showformat='${db:Status-Status}' crane"):
        raise BedError("the package was to be unpacked alone")
    trial.inventory(HOSTS, **settings)
    trial.play("upgrade", "web")
    states = each(trial, "dpkg-query --show --showformat='${db:Status-Status} ' crane; systemctl is-active crane@web.service")
    if set(states.values()) != {"installed active"}:
        raise BedError(f"after an upgrade that was broken off: {states}")
    trial.play_again("deploy", "web")


def interrupted(trial, package, seed, anew):
    """anew: on hosts that have had nothing yet."""
    breaker = Breaker(trial, seed)
    if anew:
        for number in HOSTS:
            trial.bed.host(number).wait()
        trial.package = package
        breaker.play("deploy", reboots=HOSTS)
        trial.play_again("deploy", "web")
    load = Load(trial, "web", WebWriter, HOSTS)
    settings = copies_broken_off(trial, breaker)
    trial.package, name, wanted = another_package(trial, package)
    breaker.play("upgrade", reboots=HOSTS, settings=settings)
    found = each(trial, f"md5sum < /{name}")
    if any(wanted not in text for text in found.values()):
        raise BedError(f"upgraded to {wanted}, and there is: {found}")
    trial.play_again("deploy", "web")
    half_installed(trial, settings)
    load.goes_on()
    trial.bed.host(4).wait()
    breaker.play("add", "crane_host=h4", reboots=[4], settings=settings, numbers=[1, 2, 3, 4])
    breaker.play("remove", "crane_host=h4", reboots=[4], settings=settings, numbers=[1, 2, 3, 4])
    trial.inventory(HOSTS, **settings)
    members = trial.bed.hosts[1].ssh("crane member list --state-dir /var/lib/crane/web")
    if trial.bed.hosts[4].address in members or "inactive" not in trial.bed.hosts[4].ssh("systemctl is-active crane@web", check=False):
        raise BedError(f"removed, and the members are:\n{members}")
    trial.play("deploy", "web")
    trial.bed.host(5).wait()
    trial.bed.hosts[3].kill()
    for writer in load.writers:
        writer.addresses = [trial.bed.hosts[number].address for number in (1, 2)]
    breaker.play("replace", "crane_host=h5", "crane_old=3", reboots=[5], settings=settings, numbers=[1, 2, 5])
    trial.play_again("deploy", "web")
    breaker.play("rejoin", "crane_host=h5", reboots=[5], settings=settings, numbers=[1, 2, 5])
    load.goes_on()
    load.check([trial.bed.hosts[number].address for number in (1, 2, 5)])
    trial.play("diff", "web")
