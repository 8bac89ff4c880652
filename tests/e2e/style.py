#!/usr/bin/env python3
"""Style that a formatter does not know (docs/style.md): file length, headers guarded, directions of includes, names of
constants, comments in shape, Python that compiles, no leftovers of editing."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 1000
SOURCE = {".cpp", ".hpp", ".c", ".h", ".py", ".sh"}
MARKERS = re.compile(r"^(<{7} |>{7} |={7}$)|\bFIXME\b|\bXXX:")

INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)/[^"/]+"')

# What each folder may include beside itself and base/: what it is not told of here it does not know. A folder that is not named
# has no say in C++ (tests and measurements may include all).
INCLUDES = {
    "base": set(),
    "dmt_scheduler": set(),
    "timebubble": set(),
    "checkpoint": set(),
    "paxos/core": set(),
    "paxos/store": {"paxos/core"},
    "paxos/link": {"paxos/core"},
    "paxos": {"paxos/core", "paxos/store", "paxos/link"},
    # What craned shows of itself: it is given the status, and knows nothing of replicas.
    "proxy/metrics": {"paxos/link"},
    "proxy": {"proxy/metrics", "checkpoint", "paxos", "paxos/core", "paxos/store", "paxos/link", "timebubble"},
    "proxy/tool": {"proxy", "proxy/metrics", "checkpoint", "paxos", "paxos/core", "paxos/store", "paxos/link", "timebubble"},
    "interpose/core": {"dmt_scheduler", "timebubble"},
    "interpose": {"interpose/core", "dmt_scheduler", "timebubble"},
}
FREE_TO_INCLUDE = ("tests/", "eval/")
# A pure folder has no sockets, threads or event loop, and so nothing to include them for.
PURE = {"dmt_scheduler", "paxos/core"}
IMPURE = re.compile(r"^\s*#\s*include <(event2?/|openssl/|db\.h|sys/socket|sys/epoll|netinet/|arpa/|netdb|thread|mutex)")

DECLARATION = re.compile(r"^[a-zA-Z_:][^=/{]*\)( noexcept)?;")


CONSTANT = re.compile(r"^\s*(?:static |inline )*constexpr (?:[\w:<>, ]+?)[ *&]+(\w+)(?:\[\w*\])?\s*[={(;]")
ENUM = re.compile(r"\benum class \w+[^;{]*\{")
ENUMERATOR = re.compile(r"(?:^|[,{])\s*([A-Za-z]\w*)")
UNIT_AFTER_UNDERSCORE = re.compile(r"\bk[A-Z]\w*_(?:ns|us|ms|s|bytes)\b")
MEMBER_COMMENT = re.compile(r"^ {0,4}[^/\s#].*[;,{}] +// (?!NOLINT|namespace)")
COMMENT = re.compile(r"^(\s*///?)(?: (.*))?$")
# Up to here a line of a paragraph could have taken in the next word, and the formatter has broken it.
FULL_LINE, BROKEN_LINE = 85, 90


def constant_problems(name, lines):
    if name.suffix not in {".cpp", ".hpp"}:
        return
    in_enum = False
    for number, line in enumerate(lines, 1):
        code = line.partition("//")[0].rstrip()
        found = CONSTANT.match(code)
        if found and "(" not in code[: found.end(1)] and code.endswith((";", "{", ",", "=")):
            is_function = code[found.end(1) :].startswith("(")
            if not is_function and not re.match(r"k[A-Z0-9]", found[1]):
                yield f"{name}:{number}: the constant {found[1]} is to be named like kThis (docs/style.md)"
        opens = ENUM.search(code)
        in_enum = in_enum or bool(opens)
        if in_enum:
            for one in ENUMERATOR.findall(code[opens.end() :] if opens else code):
                if not re.match(r"k[A-Z0-9]", one):
                    yield f"{name}:{number}: the enumerator {one} is to be named like kThis (docs/style.md)"
            in_enum = "}" not in code
        found = UNIT_AFTER_UNDERSCORE.search(line)
        if found:
            yield f"{name}:{number}: {found[0]}: a constant ends in its unit as in kPatienceMs (docs/style.md)"


def paragraphs(lines):
    """Runs of comment lines that belong together: (first number, [line], the bullet's indentation or None)."""
    current = None
    for number, line in enumerate(lines, 1):
        found = COMMENT.match(line)
        text = found[2] if found else None
        if not text or not text.strip() or text.startswith("---") or "clang-format" in text or line.lstrip()[:4] == "///<":
            current = None
            continue
        indent = len(text) - len(text.lstrip())
        bullet = text.lstrip().startswith("- ")
        if bullet or current is None or current[3] != found[1]:
            current = (number, [line], indent if bullet else None, found[1])
            if bullet or indent == 0:
                yield current
            else:
                current = None  # a picture, a table, an example
        elif indent == 0 or (current[2] is not None and current[2] <= indent <= current[2] + 2):
            current[1].append(line)
        else:
            current = None


def comment_problems(name, lines):
    if name.suffix not in {".cpp", ".hpp"}:
        return
    for first, block, bullet, mark in list(paragraphs(lines)):
        for place in range(1, len(block)):
            indent = len(block[place]) - len(mark) - 1 - len(block[place][len(mark) :].lstrip())
            if bullet is not None and indent == bullet:
                yield f"{name}:{first + place}: a point's next line stands below its text: wrap the comment anew"
            if place + 1 == len(block) or block[place].rstrip().endswith((".", ":", ";")):
                continue
            could = len(block[place]) + 1 + len(block[place + 1][len(mark) :].split()[0])
            if len(block[place - 1]) > FULL_LINE and could <= BROKEN_LINE:
                yield f"{name}:{first + place}: broken in the midst of a paragraph: wrap the comment anew"
    for number, line in enumerate(lines, 1):
        if re.match(r"^\s*// -{20,}$", line):
            yield f"{name}:{number}: a rule without words: `// --- what follows`"
        if name.suffix == ".hpp" and MEMBER_COMMENT.match(line):
            yield f"{name}:{number}: a declaration is explained behind `///<` (docs/style.md)"


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
    allowed = INCLUDES[folder] | {folder, "base"}
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
    yield from constant_problems(name, lines)
    yield from comment_problems(name, lines)
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
