#!/usr/bin/python3
"""Writes docs/system-calls.md: what the shim does with each system call, out of its table (interpose/system_calls.cpp)."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "interpose" / "system_calls.cpp"
PAGE = ROOT / "docs" / "system-calls.md"
NUMBERS = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
LAST = 450  # Linux 6.1's; what came later is refused as unknown

HEAD = """# System calls, one by one

What the shim does with a system call of a scheduled thread that is made by `syscall()`, by an instruction of the program's own, or
by the C library inside itself (design.md, *Nothing escapes*). Made by `scripts/system_calls.py` out of
`interpose/system_calls.cpp`; `crane status --json` counts those that were trapped (`trapped_calls`).

- *served*: the same code as the wrapper of the C library's function. It takes turns, shows virtual time, and so on.
- *kernel*: concerns nobody but the process, or is the same on every replica as it is.
- *absent*: ENOSYS, so that programs do it by calls that are served.
- *refused*: ENOSYS, and the replica's log names the call. So are numbers that are not listed, and 32-bit calls.

| number | name | what is done |
|---|---|---|
"""


def numbers():
    found = re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text())
    return {name: int(number) for name, number in found if int(number) <= LAST}


def rows():
    text = TABLE.read_text()
    return text[text.index("constexpr Row kRows") : text.index("#define CRANE_KERNEL_CALLS")]


def served_by():
    """The functions that calls are led to by their names."""
    return sorted({*re.findall(r"\bSAME\((\w+)\)", rows()), *re.findall(r"::(\w+)\(", rows())})


def treatments():
    """[(name, treatment)] of the table, in its order."""
    text = TABLE.read_text()
    found = [(name, "served") for name in re.findall(r"\b(?:SAME|AS|BY)\((\w+)[,)]", rows())]
    for treatment in ("kernel", "absent", "refused"):
        block = re.search(rf"#define CRANE_{treatment.upper()}_CALLS\(X\)((?:.*\\\n)*.*)", text)[1]
        found += [(name, treatment) for name in re.findall(r"X\((\w+)\)", block)]
    return found


def page():
    known = numbers()
    lines = sorted((known[name], name, treatment) for name, treatment in treatments())
    return HEAD + "".join(f"| {number} | {name} | {treatment} |\n" for number, name, treatment in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
