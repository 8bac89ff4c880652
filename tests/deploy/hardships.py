"""What the hosts live through while clients come by the virtual addresses: primaries and hosts lost, all rebooted, services killed."""

import json
import random

from bed import BedError, run, wait_until
from clients import DatabaseWriter, WebWriter, database_bench, sysbench, web_bench
from trial import AT_STORE, AT_WEB, STORE_ADDRESS, WEB_ADDRESS, Load

HOSTS = [1, 2, 3]
SERVICES = ["crane@web.service", "crane@store.service", "crane-audit@web.service", "keepalived.service"]


class Both:
    """Writers to both clusters by their virtual addresses, and ab and sysbench beside them."""

    def __init__(self, trial):
        self.trial = trial
        self.loads = [Load(trial, "web", WebWriter, HOSTS, WEB_ADDRESS), Load(trial, "store", DatabaseWriter, HOSTS, STORE_ADDRESS)]
        self.benches = [web_bench(WEB_ADDRESS), database_bench(STORE_ADDRESS)]
        for bench in self.benches:
            bench.start()

    def go_on(self):
        """Writers are served, and each program comes to an end of its own."""
        for load in self.loads:
            load.goes_on()
        before = [bench.runs for bench in self.benches]
        wait_until(lambda: all(bench.runs > count + 1 for bench, count in zip(self.benches, before)), 90,
                   f"ab and sysbench go on: {[bench.last_error for bench in self.benches]}")

    def check(self):
        for bench in self.benches:
            bench.end()
            self.trial.say(f"{bench.name}: {bench.done} done in {bench.runs} runs, {bench.broken} runs broken off")
        wait_well(self.trial)
        for load in self.loads:
            load.check()
        for cluster in ("web", "store"):
            self.trial.play("diff", cluster)


def wait_well(trial):
    for cluster in ("web", "store"):
        for host in HOSTS:
            wait_until(lambda: trial.status(host, cluster).get("healthy"), 180, f"{cluster} is well, as h{host} sees it")


def holders(trial, address):
    """Of the hosts that answer: where the address is."""
    found = []
    for number in HOSTS:
        said = trial.bed.hosts[number].ssh("ip -json -4 address show", check=False, timeout=20)
        try:
            links = json.loads(said)
        except ValueError:
            continue
        if any(one.get("local") == address for link in links for one in link.get("addr_info", [])):
            found.append(number)
    return found


def follows(trial, cluster, address, asked):
    wait_until(lambda: holders(trial, address) == [trial.primary(cluster, asked)], 60, f"{address} is where the primary of {cluster} is")


def virtual_addresses(trial):
    """A cluster that runs gets one, another one has it from the beginning."""
    for settings in (AT_WEB, AT_STORE):
        trial.inventory(HOSTS, **settings)
        trial.play("deploy", settings["crane_cluster"])
        trial.play_again("deploy", settings["crane_cluster"])
    follows(trial, "web", WEB_ADDRESS, 1)
    follows(trial, "store", STORE_ADDRESS, 1)
    nobody_served(trial)
    wait_until(lambda: "tester" in run("mariadb", "--no-defaults", "-h", STORE_ADDRESS, "-u", "tester", "-e", "SELECT USER()", check=False),
               60, "the database answers")
    run(*sysbench(STORE_ADDRESS), "prepare")


def nobody_served(trial):
    """No host keeps the address of a cluster without a primary, or gets it back from a keepalived that is killed meanwhile."""
    first = trial.primary("web", 1)
    for number in HOSTS:
        trial.bed.hosts[number].ssh("systemctl stop crane@web.service" if number != first
                                    else "systemctl kill --signal=KILL keepalived.service; systemctl stop crane@web.service")
        if number == HOSTS[1]:  # of three: nobody decides any more
            wait_until(lambda: holders(trial, WEB_ADDRESS) == [], 30, f"{WEB_ADDRESS} is nowhere without a primary, and not at {holders(trial, WEB_ADDRESS)}")
    wait_until(lambda: holders(trial, WEB_ADDRESS) == [], 30, f"{WEB_ADDRESS} is nowhere without a replica, and not at {holders(trial, WEB_ADDRESS)}")
    trial.say(f"{WEB_ADDRESS} is nowhere while nobody is served")
    follows(trial, "store", STORE_ADDRESS, 1)
    trial.play("start", "web")
    follows(trial, "web", WEB_ADDRESS, 1)


def primaries_lost(trial):
    """Both primaries' craneds are killed, and a primary's host."""
    both = Both(trial)
    both.go_on()
    for cluster, address in (("web", WEB_ADDRESS), ("store", STORE_ADDRESS)):
        first = trial.primary(cluster, 1)
        trial.bed.hosts[first].ssh(f"systemctl kill --kill-whom=main --signal=KILL crane@{cluster}.service")
        both.go_on()
        wait_well(trial)
        follows(trial, cluster, address, first % 3 + 1)
        trial.say(f"{cluster}'s primary (h{first}) was killed; {address} is at h{trial.primary(cluster, first)}, and all goes on")
    first = trial.primary("web", 1)
    trial.bed.hosts[first].kill()
    both.go_on()
    trial.bed.hosts[first].start()
    trial.bed.hosts[first].wait()
    wait_well(trial)
    follows(trial, "web", WEB_ADDRESS, first)
    trial.say(f"the host of web's primary (h{first}) lost its power, and is back")
    both.check()


def all_at_once(trial):
    """All three are rebooted at the same time, and then all three lose their power."""
    both = Both(trial)
    before = {number: started(trial, number) for number in HOSTS}
    for number in HOSTS:
        trial.bed.hosts[number].ssh("systemd-run --quiet --on-active=1 --timer-property=AccuracySec=1ms systemctl reboot")
    wait_until(lambda: all(started(trial, number) > before[number] for number in HOSTS), 120, "all three were rebooted")
    both.go_on()
    wait_well(trial)
    trial.say("all three were rebooted at once")
    for number in HOSTS:
        trial.bed.hosts[number].kill()
    for number in HOSTS:
        trial.bed.hosts[number].start()
    both.go_on()
    wait_well(trial)
    trial.say("all three lost their power at once")
    both.check()


def log_cut(trial):
    """A host is off until the others have cut their logs behind what it has: it begins with a checkpoint of theirs."""
    both = Both(trial)
    leading = {cluster: trial.primary(cluster, 1) for cluster in ("web", "store")}
    off = next(number for number in HOSTS if number not in leading.values())
    had = {cluster: own(trial, off, cluster)["decided"] for cluster in leading}
    trial.bed.hosts[off].kill()
    both.go_on()
    for cluster, primary in leading.items():
        trial.bed.hosts[primary].ssh(f"crane checkpoint --state-dir /var/lib/crane/{cluster} take", timeout=180)
        both.go_on()
        wait_until(lambda: own(trial, primary, cluster)["first_log_index"] > had[cluster], 120,
                   f"{cluster}'s log is cut: it begins at {own(trial, primary, cluster)['first_log_index']}, not behind {had[cluster]}")
    trial.bed.hosts[off].start()
    trial.bed.hosts[off].wait()
    wait_well(trial)
    for cluster, index in had.items():
        if own(trial, off, cluster)["first_log_index"] <= index:
            raise BedError(f"{cluster} on h{off} has its old log still, from before {index}")
    trial.say(f"h{off} was off until the logs were cut behind what it had ({had}), and began with checkpoints")
    both.check()


def own(trial, number, cluster):
    """What the host's replica says of itself."""
    return trial.status(number, cluster)["replicas"][0]


def started(trial, number):
    """When the host's init was, 0 where nobody answers."""
    said = trial.bed.hosts[number].ssh("cut -d ' ' -f 22 /proc/1/stat", check=False, timeout=20).strip()
    return int(said) if said.isdigit() else 0


def services_killed(trial, seed):
    """Every service of every host, in an order of the seed's, each as soon as the one before runs again, whether it serves or not."""
    trial.say(f"seed {seed}")
    for number in HOSTS:
        trial.bed.hosts[number].ssh("systemctl enable --now crane-audit@web.service")
    both = Both(trial)
    order = [(number, service) for number in HOSTS for service in SERVICES]
    random.Random(seed).shuffle(order)
    for number, service in order:
        host = trial.bed.hosts[number]

        def shown():
            return dict(line.split("=", 1) for line in host.ssh(f"systemctl show -p MainPID,ActiveState {service}").split())

        wait_until(lambda: shown()["ActiveState"] == "active", 60, f"{service} runs on h{number}")
        before = shown()["MainPID"]
        host.ssh(f"systemctl kill --signal=KILL {service}")
        wait_until(lambda: shown()["ActiveState"] == "active" and shown()["MainPID"] not in (before, "0"), 60,
                   f"{service} runs on h{number} again")
    trial.say(f"{len(order)} services were killed")
    both.go_on()
    both.check()
    for number in HOSTS:
        trial.bed.hosts[number].ssh("systemctl disable --now crane-audit@web.service")
