#!/usr/bin/python3
"""make deploy-test: three hosts of a clean Debian 12, Crane's packages, and the playbooks, used as an operator would.

Without an option what a change is to be held against each time: Apache on three hosts; with --all also MariaDB beside it, virtual
addresses, services and hosts lost, an upgrade, reboots, a new image, a replaced and an added host, a backup and a new cluster
of it. Clients write all the while; what was acknowledged must be there in the end, on every host, and the output logs must be
identical.
"""

import argparse
import contextlib
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from bed import Bed, BedError, run, wait_until, work_folder  # noqa: E402
from clients import DatabaseWriter, WebWriter  # noqa: E402
from hardships import all_at_once, log_cut, primaries_lost, services_killed, virtual_addresses  # noqa: E402
from interrupted import interrupted  # noqa: E402
from mistakes import mistakes, not_spared, refusals, stopped  # noqa: E402
from trial import AT_STORE, AT_WEB, BUILD, COPY, STORE_ADDRESS, TOP, WEB, WEB_ADDRESS, Load, Trial  # noqa: E402
from witness import witness  # noqa: E402

PARTS = ["core", "mistakes", "address", "lost", "services", "at-once", "log-cut", "rolls", "members", "copies", "interrupted", "witness"]
ALONE = ["core", "mistakes", "interrupted", "witness"]  # all others go by what `address` sets up


def core(trial):
    """What is looked at each time: from nothing to a cluster that serves, the second run, a lost primary, and the logs."""
    trial.inventory([1, 2, 3], **WEB)
    trial.play("deploy", "web")
    trial.play_again("deploy", "web")
    written = trial.bed.hosts[1].ssh("cat /etc/crane/web.toml")
    if '[machine]\naddresses = ["10.9.9.9/24"]' not in written or '\nrestart = "always"' not in written.split("\n[", 1)[0]:
        raise BedError(f"the settings of the inventory are not in:\n{written}")
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
    refusals(trial)
    stopped(trial)


def rolls(trial, later):
    """A new version of Crane, reboots and a new image of the server, under load, one host after the other."""
    loads = [Load(trial, "web", WebWriter, [1, 2, 3], WEB_ADDRESS), Load(trial, "store", DatabaseWriter, [1, 2, 3], STORE_ADDRESS)]
    trial.package = later
    for name, settings in (("web", AT_WEB), ("store", AT_STORE)):
        trial.inventory([1, 2, 3], **settings)
        trial.play("upgrade", name, "crane_restart=true")
        trial.play_again("deploy", name)
    for load in loads:
        load.goes_on()
    trial.play("reboot", "web", timeout=900)
    for load in loads:
        load.goes_on()
    wait_until(lambda: trial.status(1, "store").get("healthy"), 120, "the other cluster is well, too")
    trial.inventory([1, 2, 3], **AT_WEB | {"crane_image_release": "2",
                                           "crane_image_files": WEB["crane_image_files"] + [{"path": "/var/www/html/two", "content": "2"}]})
    trial.play("image", "web")
    trial.play_again("deploy", "web")
    for load in loads:
        load.check()
    for cluster in ("web", "store"):
        trial.play("diff", cluster)
    return AT_WEB | {"crane_image_release": "2"}


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
    trial.inventory([1, 2, 4, 5], {5: {"crane_replica": 3}}, **settings)
    trial.refused("add", "web", "Give h5 crane_replica: 5", "crane_host=h5")
    trial.inventory([1, 2, 4, 5], **settings)
    trial.play("add", "web", "crane_host=h5")
    for one in load.writers:
        one.addresses = [trial.bed.hosts[n].address for n in (1, 4, 5)]
    trial.play("remove", "web", "crane_host=h2")
    trial.inventory([1, 4, 5], **settings)
    trial.play("start", "web")
    not_spared(trial, [1, 4, 5], 5, 4)
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
    trial.inventory(numbers, **settings | COPY | {"crane_virtual_address": ""})
    first, last = trial.bed.hosts[numbers[0]], trial.bed.hosts[numbers[-1]]
    first.ssh("mkdir /srv/copy /var/lib/crane/copy && mount --bind /srv/copy /var/lib/crane/copy")
    broken_restore(trial, archives[-1])
    load.in_copy(8080, numbers)
    trial.play("diff", "copy")
    trial.play("logs", "web")
    for number in numbers:
        names = run("tar", "-tzf", trial.bed.work / "crane-results" / "web" / "logs" / f"h{number}.tgz").split()
        if not {"./status.json", "./journal.txt", "craned.log"} <= set(names) or any("key" in name for name in names):
            raise BedError(f"the logs of h{number} are {names}")
    trial.play("stop", "web")
    trial.play("start", "web")
    # Some of it is gone already.
    last.ssh("systemctl stop crane@copy; rm -r /etc/crane/copy.toml /var/lib/crane/copy/db /etc/systemd/system/crane@copy.service.d")
    for cluster in ("copy", "web"):
        if cluster == "web":
            last.ssh("apt-get -q -y purge crane", timeout=300)
        trial.play("destroy", cluster, f"crane_destroy={cluster}")
        for number in numbers:
            left = trial.bed.hosts[number].ssh(f"ls -A /var/lib/crane/{cluster} 2>&1; ls -d /etc/crane/{cluster}.*; "
                                               f"systemctl is-active crane@{cluster}", check=False)
            mounted = (number, cluster) == (numbers[0], "copy")
            if "active" not in left or "\nactive" in left or left.count("No such file") != (1 if mounted else 2):
                raise BedError(f"destroyed, and on h{number} there is: {left}")
    first.ssh("mountpoint /var/lib/crane/copy")
    trial.play("destroy", "web", "crane_destroy=web")  # there is nothing left


def broken_restore(trial, archive):
    """Broken off when a first host has it; called again it goes on with the others."""
    extra = f"crane_backup={archive}"
    playing, _ = trial.begin_play("restore", "copy", extra)
    marks = [host for host in trial.bed.hosts.values() if host.alive()]
    wait_until(lambda: playing.poll() is not None or any("begun" in host.ssh("cat /etc/crane/copy.restored", check=False) for host in marks), 300,
               "a first host begins to restore")
    if playing.poll() is not None:
        raise BedError("the restore ended before it could be broken off")
    os.killpg(playing.pid, signal.SIGKILL)
    playing.wait()
    trial.say("restore.yml was broken off while hosts restored")
    for host in marks:  # what it had begun there
        wait_until(lambda: not host.ssh("pgrep -f [A]nsiballZ", check=False).strip(), 120, "its modules have ended")  # pylint: disable=cell-var-from-loop
    trial.play("restore", "copy", extra)


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


def perform(trial, parts, first, later, seed):
    settings = AT_WEB | {"crane_image_release": "2" if "rolls" in parts else "1"}
    steps = {"core": lambda: core(trial), "mistakes": lambda: mistakes(trial, first),
             "interrupted": lambda: interrupted(trial, first, seed, "copies" in parts), "address": lambda: virtual_addresses(trial),
             "lost": lambda: primaries_lost(trial), "services": lambda: services_killed(trial, seed),
             "at-once": lambda: all_at_once(trial), "log-cut": lambda: log_cut(trial), "rolls": lambda: rolls(trial, later),
             "members": lambda: members(trial, settings),
             "witness": lambda: witness(trial, first, len(parts) > 1),
             "copies": lambda: copies(trial, settings, [1, 4, 5] if "members" in parts else [1, 2, 3])}
    for part in PARTS:
        if part in parts:
            trial.say(f"--- {part}")
            steps[part]()
    trial.say("all is as it should be")


def with_what_they_need(chosen):
    """In the order in which they are performed."""
    return [part for part in PARTS if part in chosen or part in ("core", "address") and not set(chosen) <= set(ALONE)]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="everything, some half an hour")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["core"], help="these, and what they build on")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order in which services are killed, and where playbooks are")
    parser.add_argument("--hosts-only", action="store_true", help="make what hosts are copies of, and end")
    parser.add_argument("--keep", action="store_true", help="leave the hosts running, and say how to reach them")
    return parser.parse_args()


def report(bed):
    """What the replicas said last."""
    for number, host in bed.hosts.items():
        for log in host.ssh("ls /var/lib/crane/*/craned.log 2>/dev/null", check=False).split():
            print(f"--- h{number} {log}\n{host.ssh(f'tail -n 30 {log}', check=False)}", file=sys.stderr)


def main():
    # Whoever ends it has the hosts ended, too.
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, signal.default_int_handler)
    chosen = options()
    parts = PARTS if chosen.all else with_what_they_need(chosen.parts)
    work, bed, status = work_folder(), None, 0
    try:
        first = packages()
        later = packages("+2") if "rolls" in parts and not chosen.hosts_only else None
        bed = Bed(BUILD / "deploy", work, first)
        if not chosen.hosts_only:
            trial = Trial(bed, first)
            for number in (1, 2, 3):
                bed.host(number)
            for host in bed.hosts.values():
                host.wait()
            trial.say("three hosts are up")
            perform(trial, parts, first, later, chosen.seed)
    except (BedError, subprocess.TimeoutExpired, OSError, http.client.HTTPException, KeyboardInterrupt) as error:
        print(f"deploy-test: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
        if bed and not isinstance(error, KeyboardInterrupt):
            with contextlib.suppress(BedError, subprocess.TimeoutExpired, OSError):
                report(bed)
    finally:
        if bed and chosen.keep and bed.hosts:
            print(f"kept: nsenter --net=/run/netns/{bed.name} ssh {' '.join(map(str, bed.ssh_options))} root@{bed.hosts[1].address}; {work}")
        else:
            if bed:
                bed.close()
            shutil.rmtree(work, ignore_errors=True)
    if status or not chosen.hosts_only:
        print(f"{1 - status} passed, {status} failed, 0 skipped")
    return status


if __name__ == "__main__":
    sys.exit(main())
