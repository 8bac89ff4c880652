"""Trees of files for base images: some programs, what the loader gives them, and accounts of their own."""

import os
import pathlib
import shutil
import subprocess

MADE_S = 1_700_000_000
LINKS = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run"}


def libraries(program):
    listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout
    for line in listed.splitlines():
        words = line.split()
        path = words[2] if "=>" in words else words[0]
        if path.startswith("/"):
            yield path


def make_tree(tree, programs, files=()):
    """`files`: (path, text). The links are as Debian has them: absolute ones, too, which lead nowhere outside."""
    tree = pathlib.Path(tree)
    for folder in ("etc", "tmp", "run", "proc", "sys", "dev", "usr/bin", "usr/lib", "usr/lib64", "var/lib/served"):
        (tree / folder).mkdir(parents=True)
    for link, target in LINKS.items():
        (tree / link).symlink_to(target)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nimaged:x:4711:4712::/var/lib/served:/bin/sh\n", encoding="ascii")
    (tree / "etc/group").write_text("root:x:0:\nimaged:x:4712:\nbeside:x:4713:other,imaged\n", encoding="ascii")
    shutil.chown(tree / "var/lib/served", 4711, 4712)
    for program in programs:
        for path in (program, *libraries(program)):
            to = tree / "usr/bin" / pathlib.Path(path).name if path == program else tree / path.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(path).resolve(), to)
    for path, text in files:
        (tree / path.lstrip("/")).write_text(text, encoding="ascii")
    # The same files are the same image, and their times are of them.
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (MADE_S, MADE_S), follow_symlinks=False)
    return tree
