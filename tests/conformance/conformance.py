#!/usr/bin/python3
"""The Open POSIX Test Suite, natively and under Crane: what passes natively has to pass under Crane.

usage: conformance.py --ltp DIR [--jobs N] [--again N] [--results FILE] [WORD …]

DIR is a checkout of the Linux Test Project, or its testcases/open_posix_testsuite. Each program of conformance/interfaces is
built, run natively, and, if it passed, run as a server of its own (one replica, without a container). Programs whose path
holds one of the WORDs are taken, or all. One that fails is run again, natively too, so that a program which natively fails
now and then is told from one that Crane breaks. Programs named in known.toml may fail; it says why.

Exits with 0 only if nothing but those failed, and 2 if there is no suite.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from support.procs import end_group  # noqa: E402

ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve()
FLAGS = ["-std=gnu99", "-O1", "-w", "-D_GNU_SOURCE", "-D_POSIX_C_SOURCE=200809L", "-D_XOPEN_SOURCE=700"]
LIBRARIES = ["-lpthread", "-lrt", "-lm"]
# How a program of the suite says what it found (include/posixtest.h).
VERDICTS = {0: "pass", 1: "fail", 2: "unresolved", 4: "unsupported", 5: "untested"}
NATIVE_S = 120
# A program that takes longer than this, and than five times what it takes natively, hangs.
HANG_S = 20


def programs(suite, words):
    interfaces = suite / "conformance" / "interfaces"
    for source in sorted(interfaces.rglob("*.c")):
        name = str(source.relative_to(interfaces).with_suffix(""))
        if not re.fullmatch(r"\d+-\d+", source.stem) or not re.search(r"\b(?:test_)?main\s*\(", source.read_text(errors="replace")):
            continue
        if not words or any(word in name for word in words):
            yield name, source


def build(suite, name, source, where):
    """The program's path; None if it does not compile."""
    program = where / name
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Where the suite keeps main() out of the programs they have test_main().
    bootstrap = [] if re.search(r"\bmain\s*\(", source.read_text(errors="replace")) else [str(suite / "lib" / "common.c")]
    done = subprocess.run(["gcc", *FLAGS, f"-I{suite / 'include'}", f"-I{source.parent}", str(source),
                           *bootstrap, "-o", str(program), *LIBRARIES],
                          capture_output=True, check=False)
    return program if done.returncode == 0 else None


def run_natively(program, folder):
    with open(folder / "native.out", "wb") as output:
        process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   cwd=folder, start_new_session=True)
        try:
            status = process.wait(NATIVE_S)
        except subprocess.TimeoutExpired:
            return "hang"
        finally:
            end_group(process)
    return f"signal {-status}" if status < 0 else VERDICTS.get(status, f"status {status}")


def end_of(text):
    """What crane-run said of the server's end."""
    if found := re.search(r"the server exited with status (\d+)", text):
        return VERDICTS.get(int(found[1]), f"status {found[1]}")
    if found := re.search(r"replica 1: (.*)", text):
        return found[1]
    return f"crane-run: {text[-300:]}"


def run_under_crane(program, folder, slot, limit_s):
    """What it found; "hang", or how it ended else. What was said is kept in `folder`."""
    state = folder / "state"
    command = [str(ROOT / "scripts" / "crane-run"), "--state-dir", str(state), "--fresh", "--mode", "dmt", "--isolation",
               "none", "--restart", "no", "--client-address", f"127.0.{100 + slot}.1", "--", str(program)]
    with open(folder / "crane.out", "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   cwd=folder, env={**os.environ, "BUILD": str(BUILD)})
        try:
            process.wait(limit_s)
            hung = False
        except subprocess.TimeoutExpired:
            hung = True
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    text = (folder / "crane.out").read_text(errors="replace")
    for name in ("craned.log", "stdout", "stderr"):
        if (state / "r1" / name).exists():
            shutil.copy(state / "r1" / name, folder / f"crane-{name}")
    shutil.rmtree(state, ignore_errors=True)
    return "hang" if hung else end_of(text)


class Suite:
    def __init__(self, options, suite):
        self.options, self.suite = options, suite
        self.where = BUILD / "conformance"
        self.slots = list(range(options.jobs))

    def fresh_folder(self, name):
        folder = self.where / "runs" / name.replace("/", "_")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def one(self, name, source):
        program = build(self.suite, name, source, self.where / "programs")
        if program is None:
            return {"name": name, "native": "not built"}
        slot = self.slots.pop()
        try:
            folder = self.fresh_folder(name)
            began = time.monotonic()
            native = run_natively(program, folder)
            limit_s = max(HANG_S, 5 * (time.monotonic() - began))
            row = {"name": name, "native": native}
            if native != "pass":
                return row
            began = time.monotonic()
            row["crane"] = run_under_crane(program, folder, slot, limit_s)
            row["seconds"] = round(time.monotonic() - began, 2)
            for _ in range(self.options.again):
                if row["crane"] == "pass":
                    break
                if (native := run_natively(program, folder)) != "pass":
                    row["native"] = f"{native} now and then"
                    break
                row.setdefault("before", []).append(row["crane"])
                row["crane"] = run_under_crane(program, folder, slot, limit_s)
            if row["crane"] == "pass":
                shutil.rmtree(folder)
            return row
        finally:
            self.slots.append(slot)

    def run(self):
        rows = []
        chosen = list(programs(self.suite, self.options.words))
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for row in pool.map(lambda program: self.one(*program), chosen):
                rows.append(row)
                if row["native"] == "pass" and row["crane"] != "pass":
                    print(f"{row['name']}: {row['crane']}", flush=True)
                elif "before" in row:
                    print(f"{row['name']}: passes, but was once: {row['before'][0]}", flush=True)
                if len(rows) % 100 == 0:
                    print(f"... {len(rows)} of {len(chosen)}", flush=True)
        return rows


def suite_in(folder):
    for suite in (folder, folder / "testcases" / "open_posix_testsuite"):
        if (suite / "conformance" / "interfaces").is_dir():
            return suite.resolve()
    return None


def main():
    parser = argparse.ArgumentParser(description="The Open POSIX Test Suite, natively and under Crane.")
    parser.add_argument("--ltp", metavar="DIR", type=pathlib.Path, required=True, help="a checkout of the Linux Test Project")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time (default 2)")
    parser.add_argument("--again", type=int, default=1, help="how often what failed is run again (default 1)")
    parser.add_argument("--results", metavar="FILE", help="write all results as JSON")
    parser.add_argument("words", metavar="WORD", nargs="*")
    options = parser.parse_args()
    suite = suite_in(options.ltp)
    if suite is None:
        print(f"conformance: {options.ltp} is no checkout of LTP: it has no testcases/open_posix_testsuite", file=sys.stderr)
        return 2
    known = tomllib.loads((HERE / "known.toml").read_text())
    began = time.monotonic()
    rows = Suite(options, suite).run()
    if options.results:
        pathlib.Path(options.results).write_text(json.dumps(rows, indent=1) + "\n")
    tried = [row for row in rows if row["native"] == "pass"]
    failed = {row["name"] for row in tried if row["crane"] != "pass"}
    excused = {name for name in failed if name in known}
    for name in sorted(set(known) & {row["name"] for row in tried} - failed):
        print(f"{name}: passes, although known.toml says that it cannot: take it out")
    print(f"conformance: {len(rows)} programs, {len(tried)} pass natively; {len(excused)} of these cannot pass, as known.toml "
          f"says; {time.monotonic() - began:.0f} s")
    print(f"{len(tried) - len(failed)} passed, {len(failed) - len(excused)} failed")
    return 0 if failed == excused else 1


if __name__ == "__main__":
    sys.exit(main())
