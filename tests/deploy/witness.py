"""Two hosts with a server and one with a witness, which is the inventory's first: what is asked of one host alone is not asked of it."""

from bed import BedError, wait_until
from clients import WebWriter
from mistakes import another_package, each
from trial import AT_WEB, COPY, WEB_ADDRESS, Load

HOSTS, SERVERS = [1, 2, 3], [2, 3]
BARE = "ls -A /var/lib/crane/images /opt/crane/criu 2>/dev/null; dpkg-query -W apache2 keepalived 2>/dev/null; ss -Htln sport = :80"


def written(trial, witness=1, **settings):
    trial.inventory([witness, *SERVERS], {witness: {"crane_witness": True}}, **AT_WEB | settings)


def bare(trial, number):
    """It has nothing of a server, and says what it is."""
    row = trial.status(number, "web")["replicas"][0]
    left = [line for line in trial.bed.hosts[number].ssh(BARE, check=False).splitlines() if line and not line.endswith(":")]
    if left or (row["server"], row["role"]) != ("witness", "backup"):
        raise BedError(f"h{number} is a {row['role']} and its server {row['server']}, with: {left}")


def well(trial, number):
    wait_until(lambda: trial.status(number, "web").get("healthy"), 120, f"all is well, as h{number} sees it")


def primary_lost(trial, load):
    """The other server goes on with the witness alone."""
    first = trial.primary("web", 1)
    trial.bed.hosts[first].ssh("systemctl kill --kill-whom=main --signal=KILL crane@web.service")
    load.goes_on()
    well(trial, first)
    trial.say(f"the primary's craned (h{first}) was killed, and h{trial.primary('web', 1)} leads")


def rolled(trial, package):
    """Another Crane and another image; and neither a server becomes a witness nor a witness a server meanwhile."""
    trial.package, name, wanted = another_package(trial, package)
    trial.inventory(HOSTS, {2: {"crane_witness": True}}, **AT_WEB)
    trial.refused("deploy", "web", "its replica on h2 is no witness, for which the others take it")
    trial.refused("upgrade", "web", "h1: its replica is a witness, and crane_witness is false")
    written(trial)
    trial.play("upgrade", "web")
    found = each(trial, f"md5sum < /{name}; readlink /proc/$(systemctl show -p MainPID --value crane@web)/exe")
    if any(wanted not in text or "(deleted)" in text for text in found.values()):
        raise BedError(f"upgraded to {wanted}, and there is: {found}")
    release = {"crane_image_release": "2"}
    written(trial, **release)
    trial.play("image", "web")
    images = {trial.status(number, "web")["replicas"][0]["base_image"] for number in SERVERS}
    if len(images) != 1 or trial.bed.hosts[2].ssh("cat /etc/crane/web.toml").count(images.pop()) != 1:
        raise BedError(f"moved to another image, and the servers run on {images}")
    return release


def witness_lost(trial, load, settings):
    """Its host is lost for good, and another one's replica votes in its place: a server's host may be lost then."""
    trial.bed.hosts[1].kill()
    load.goes_on()
    trial.play("backup", "web")  # with a host that does not answer
    trial.bed.host(4).wait()
    written(trial, 4, **settings)
    trial.play("replace", "web", "crane_host=h4", "crane_old=1")
    trial.play_again("deploy", "web")
    bare(trial, 4)
    trial.play("rejoin", "web", "crane_host=h4")
    first = trial.primary("web", 4)
    trial.bed.hosts[first].kill()
    load.goes_on()
    trial.bed.hosts[first].start()
    trial.bed.hosts[first].wait()
    well(trial, first)
    trial.say(f"the host of the primary (h{first}) lost its power, and its vote was the new witness'")


def copied(trial, load, settings):
    trial.play("backup", "web")
    archive = max((trial.bed.work / "crane-results" / "web").glob("backup-*.tar"))
    written(trial, 4, **settings | COPY | {"crane_virtual_address": ""})
    trial.play("restore", "copy", f"crane_backup={archive}")
    load.in_copy(8080, SERVERS)
    trial.play("diff", "copy")
    trial.play("destroy", "copy", "crane_destroy=copy")


def last_one(trial, load, settings):
    """Both servers' hosts are lost for good: what the witness has becomes a server's, as docs/deployment.md has it."""
    for number in SERVERS:
        trial.bed.hosts[number].kill()
    trial.bed.hosts[4].ssh("systemctl stop crane@web && crane recover --force-new-cluster --state-dir /var/lib/crane/web")
    trial.inventory([4], **AT_WEB | settings | {"crane_virtual_address": ""})
    trial.play("deploy", "web")
    load.ask([trial.bed.hosts[4].address])
    trial.say("both servers' hosts were lost for good, and the witness' serves all that was acknowledged")
    trial.play("destroy", "web", "crane_destroy=web")


def witness(trial, package, anew):
    """anew: on hosts that have had nothing yet."""
    if anew:
        for number in HOSTS:
            trial.bed.host(number).wait()
        trial.package = package
    written(trial)
    if anew:  # what had run under that name on the hosts that there were is given up
        trial.play("destroy", "web", "crane_destroy=web")
    trial.play("deploy", "web")
    trial.play_again("deploy", "web")
    bare(trial, 1)
    load = Load(trial, "web", WebWriter, SERVERS, WEB_ADDRESS)
    primary_lost(trial, load)
    settings = rolled(trial, package)
    load.check()
    load = Load(trial, "web", WebWriter, SERVERS, WEB_ADDRESS)
    witness_lost(trial, load, settings)
    load.check()
    trial.play("diff", "web")
    copied(trial, load, settings)
    last_one(trial, load, settings)
