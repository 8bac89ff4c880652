#!/usr/bin/env python3
"""Style that a formatter does not know: file length, headers guarded, Python that compiles, no leftovers of editing."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 1000
SOURCE = {".cpp", ".hpp", ".c", ".h", ".py", ".sh"}
MARKERS = re.compile(r"^(<{7} |>{7} |={7}$)|\bFIXME\b|\bXXX:")


def problems(path):
    text = path.read_text(errors="replace")
    lines = text.splitlines()
    name = path.relative_to(ROOT)
    if len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines; at most {MAX_LINES}: split it by reason to change"
    if path.suffix in {".hpp", ".h"} and "#pragma once" not in text:
        yield f"{name}: no `#pragma once`"
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
