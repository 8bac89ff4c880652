#!/usr/bin/env python3
"""Style that a formatter does not know: file length, headers guarded, directions of includes, Python that compiles, no
leftovers of editing."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 1000
SOURCE = {".cpp", ".hpp", ".c", ".h", ".py", ".sh"}
MARKERS = re.compile(r"^(<{7} |>{7} |={7}$)|\bFIXME\b|\bXXX:")

INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)/[^"/]+"')

# What each folder may include beside itself: what it is not told of here it does not know. A folder that is not named
# has no say in C++ (tests and measurements may include all).
INCLUDES = {
    "dmt_scheduler": set(),
    "timebubble": set(),
    "checkpoint": set(),
    "paxos/core": set(),
    "paxos/store": {"paxos/core"},
    "paxos/link": {"paxos/core"},
    "paxos": {"paxos/core", "paxos/store", "paxos/link"},
    "proxy": {"checkpoint", "paxos", "paxos/core", "paxos/store", "paxos/link", "timebubble"},
    "proxy/tool": {"proxy", "checkpoint", "paxos", "paxos/core", "paxos/store", "paxos/link", "timebubble"},
    "interpose/core": {"dmt_scheduler", "timebubble"},
    "interpose": {"interpose/core", "dmt_scheduler", "timebubble"},
}
FREE_TO_INCLUDE = ("tests/", "eval/")
# A pure folder has no sockets, threads or event loop, and so nothing to include them for.
PURE = {"dmt_scheduler", "paxos/core"}
IMPURE = re.compile(r"^\s*#\s*include <(event2?/|openssl/|db\.h|sys/socket|sys/epoll|netinet/|arpa/|netdb|thread|mutex)")

DECLARATION = re.compile(r"^[a-zA-Z_:][^=/{]*\)( noexcept)?;")


def include_problems(name, lines):
    folder = name.parent.as_posix()
    if name.suffix not in {".cpp", ".hpp"} or name.as_posix().startswith(FREE_TO_INCLUDE):
        return
    if folder not in INCLUDES:
        yield f"{name}: {folder}/ is not in INCLUDES of tests/e2e/style.py: say there what it may include"
        return
    if folder == "interpose/core" and name.suffix == ".hpp" and not (ROOT / name).with_suffix(".cpp").exists():
        if any(DECLARATION.match(line) for line in lines):
            yield f"{name}: declares functions that no {name.stem}.cpp beside it has: what is implemented above is not core"
    allowed = INCLUDES[folder] | {folder}
    if name.name.endswith("_main.cpp"):
        allowed = allowed | {f for f in INCLUDES if f.startswith(folder + "/")}
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match and match[1] not in allowed:
            yield f"{name}:{number}: {folder}/ must not include {match[1]}/ (directions: tests/e2e/style.py)"
        if folder in PURE and IMPURE.match(line):
            yield f"{name}:{number}: {folder}/ is pure: {line.strip()}"


def problems(path):
    text = path.read_text(errors="replace")
    lines = text.splitlines()
    name = path.relative_to(ROOT)
    if len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines; at most {MAX_LINES}: split it by reason to change"
    if path.suffix in {".hpp", ".h"} and "#pragma once" not in text:
        yield f"{name}: no `#pragma once`"
    yield from include_problems(name, lines)
    if path.suffix == ".py":
        try:
            compile(text, str(name), "exec")
        except SyntaxError as error:
            yield f"{name}:{error.lineno}: {error.msg}"
    for number, line in enumerate(lines, 1):
        if MARKERS.search(line) and path.name != "style.py":
            yield f"{name}:{number}: left over: {line.strip()[:60]}"
        if line.rstrip() != line:
            yield f"{name}:{number}: white space at the end of the line"


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    files = [ROOT / name for name in listed.stdout.decode().splitlines()]
    files = [path for path in files if path.suffix in SOURCE and path.is_file()]
    found = [problem for path in files for problem in problems(path)]
    print("\n".join(found + [f"style: {len(files)} files, {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
