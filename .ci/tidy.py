"""clang-tidy over every source, but for those that are as they were when it last found nothing in them.

usage: tidy.py [--all] [--jobs N] [SOURCE ...]

A source is as it was if it, every header of ours that it includes, the checks (.clang-tidy), the flags and the version
of clang-tidy are: of all that, .ci/tidy-clean has a sum for each source that was found clean. Without SOURCE, all that
git knows but the tests are looked at, and what is clean is written there. Exits with 1 if anything was found.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / ".ci" / "tidy-clean"
FLAGS = ["-I.", "-std=c++20", "-D_GNU_SOURCE", "-DCRANE_SHIM", '-DCRANE_VERSION="tidy"', "-DSPDLOG_SHARED_LIB",
         "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_FMT_EXTERNAL"]
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
NO_FINDINGS = re.compile(r"^(\d+ warnings? (generated|treated)|Suppressed|Use -)")
SUM_DIGITS = 32


def sources(root=ROOT):
    listed = subprocess.run(["git", "ls-files", "*.cpp"], cwd=root, stdout=subprocess.PIPE, check=True)
    return [name for name in listed.stdout.decode().split() if not name.startswith("tests/")]


def included(source, root=ROOT):
    """It and all headers of ours that it includes, directly or not, in order."""
    found, waiting = {}, [root / source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = path.read_bytes()
        for name in INCLUDE.findall(found[path]):
            places = [folder / name.decode() for folder in (path.parent, root)]
            waiting += [pathlib.Path(os.path.normpath(place)) for place in places if place.is_file()][:1]
    return sorted(found.items())


def sum_of(source, ground, root=ROOT):
    """Of all that what clang-tidy says of this source depends on."""
    total = hashlib.sha256(ground)
    for path, text in included(source, root):
        total.update(f"\0{path.relative_to(root)}\0{len(text)}\0".encode() + text)
    return total.hexdigest()[:SUM_DIGITS]


def ground_of(version, root=ROOT):
    return "\0".join([version, *FLAGS]).encode() + (root / ".clang-tidy").read_bytes()


def recorded(record=RECORD):
    lines = record.read_text().splitlines() if record.exists() else []
    return dict(reversed(line.split()) for line in lines if not line.startswith("#"))


def write_record(clean, record=RECORD):
    lines = [f"{total} {source}" for source, total in sorted(clean.items())]
    text = "\n".join(["# Sources in which clang-tidy finds nothing, by tidy.py.", *lines, ""])
    if not record.exists() or record.read_text() != text:
        record.write_text(text)


def findings(source):
    done = subprocess.run(["clang-tidy", "--quiet", source, "--", *FLAGS], cwd=ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
    said = "\n".join(line for line in done.stdout.splitlines() if not NO_FINDINGS.match(line))
    return said or (f"{source}: clang-tidy ended with {done.returncode}" if done.returncode else "")


def main():
    parser = argparse.ArgumentParser(description="clang-tidy over what is not known to be clean")
    parser.add_argument("--all", action="store_true", help="whatever the record says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("sources", nargs="*")
    options = parser.parse_args()
    tool = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True, text=True)
    ground = ground_of(" ".join(re.findall(r"version (\d+\.\d+)", tool.stdout)))
    wanted = {source: sum_of(source, ground) for source in options.sources or sources()}
    known = {} if options.all or options.sources else recorded()
    clean = {source: total for source, total in wanted.items() if known.get(source) == total}
    unknown = [source for source in wanted if source not in clean]
    print(f"tidy: {len(clean)} sources are as they were found clean, {len(unknown)} are looked at", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for source, said in zip(unknown, pool.map(findings, unknown)):
            if said:
                print(said, flush=True)
            else:
                clean[source] = wanted[source]
    if not options.sources:
        write_record(clean)
    return 0 if len(clean) == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
