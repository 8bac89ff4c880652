"""What `crane backup` wrote, as far as a start from it needs that: how the server was started. The rest is read by
`crane restore`, which checks all of it."""

import json
import os
import stat
import subprocess
import tarfile
import tomllib

from . import LaunchError

RECORD = "backup.json"
MAX_RECORD_BYTES = 1 << 20


def check_file(path):
    """Before it is opened, since a fifo waits for who writes to it. Raises LaunchError."""
    mode = os.stat(path).st_mode
    for is_one, what in ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a fifo, which can be read only once"),
                         (stat.S_ISBLK, "a device"), (stat.S_ISCHR, "a device"), (stat.S_ISSOCK, "a socket")):
        if is_one(mode):
            raise LaunchError(f"{path} is {what}: give the file that crane backup wrote with --restore")
    if os.stat(path).st_size == 0:
        raise LaunchError(f"{path} is empty: the backup was cut short, or its file was lost; make or fetch it again")


def read_launched(path):
    """{"identity", "options", "environment", "env", "port_map"} of the run that was backed up. Raises LaunchError."""
    try:
        check_file(path)
        with tarfile.open(path) as archive:
            member = archive.next()  # the first: an archive of another kind may be long
            if member is None or member.name != RECORD or not member.isfile() or member.size > MAX_RECORD_BYTES:
                raise LaunchError(f"{path} is no backup of Crane")
            record = json.load(archive.extractfile(member))["backup"]
            launched, config = record["launched"], tomllib.loads(record["craned.toml"])
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror or error}: give what crane backup wrote with --restore") from error
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"{path} is no backup of Crane, or a damaged one ({error})") from error
    if not isinstance(launched, dict) or not isinstance(launched.get("identity"), dict):
        raise LaunchError(f"{path} was made of a cluster that crane-run did not start: restore it with craned's "
                          "configuration (crane restore FILE --config craned.toml, for each replica)")
    # Not bound to a log, and still to be as it was where nobody says otherwise.
    confinement = config.get("confinement", {})
    launched["options"] = {"disk-quota-bytes": confinement.get("disk_quota_bytes", 0),
                           "disk-format": confinement.get("disk_format", "ext4"),
                           "no-time-bubble": not config.get("bubble", {}).get("enabled", True)}
    return launched


def restore_replica(layout, path, folder):
    """One replica's state directory, whose craned.toml is written, from the backup. Raises LaunchError."""
    # One that outlived a killed crane-run would write where the next one works.
    words = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", str(layout.bin / "crane"), "restore", str(path), "--config", str(folder / "craned.toml"), "--json"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"error": done.stderr.strip() or "crane restore ended with status " + str(done.returncode)}
    if done.returncode != 0:
        raise LaunchError(answer.get("error", "crane restore failed"))
    return answer
