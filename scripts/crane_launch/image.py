"""The base image that a server is begun on: put into this host's store by `crane image add`, and named by its sum."""

import json
import pathlib
import re
import subprocess

from . import LaunchError

NAME = re.compile(r"sha256:[0-9a-f]{64}")
APACHE_ENVVARS = "etc/apache2/envvars"


def resolve(settings, layout, say):
    """Makes of a file in settings["image"] the name of what is in the store. Raises LaunchError."""
    given, called = settings["image"], settings.called("image")
    if not given or NAME.fullmatch(given):
        return
    if given.startswith("sha256:"):
        raise LaunchError(f"{called} {given}: the name of an image has 64 digits behind sha256:")
    if not pathlib.Path(given).exists():
        raise LaunchError(f"{called} {given}: there is no such file; crane image make makes one")
    # One that outlived a killed crane-run would work beside the next one's.
    words = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", str(layout.bin / "crane"), "image", "add", given, "--store",
             settings["image-store"], "--json"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"error": done.stderr.strip() or f"crane image add ended with status {done.returncode}"}
    if done.returncode != 0:
        raise LaunchError(f"{called} {given}: {answer.get('error', 'it cannot be added')}")
    settings["image"] = answer["image"]
    say(f"{given} is {answer['image']}")


def say_another(settings, rows, say):
    """A log goes on with what it was begun with; nobody shall believe that the option has changed that."""
    runs_on = {row.get("base_image") for row in rows.values() if row and row.get("server") == "listening"} - {settings["image"] or None}
    for name in sorted(name or "the files of this host" for name in runs_on):
        if settings["image"]:
            say(f"warning: the server runs on {name}, as its log says, and not on {settings['image']}: "
                f"crane restart --image {settings['image']} moves it there")


def apache_envvars(settings):
    """The text of an image's own file; "" where there is none."""
    path = pathlib.Path(settings["image-store"]) / (settings["image"].removeprefix("sha256:") + ".squashfs")
    try:
        done = subprocess.run(["/usr/bin/unsquashfs", "-cat", str(path), APACHE_ENVVARS], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{path}, from which apache2 takes its variables, cannot be read: {error} "
                          "(apt-get install squashfs-tools)") from error
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else ""
