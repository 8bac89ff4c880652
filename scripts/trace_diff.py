#!/usr/bin/env python3
"""Compares two schedule traces (docs/debugging.md) and prints the first place where they part."""
import argparse
import itertools
import os
import re
import struct
import sys

# TraceRecord: clock, slot, operation, caller, virtual time in ns, first and second object
RECORD = struct.Struct("<QIIQQQQ")
CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interpose", "core")
KIND_SHIFT = 60


def names_of(enum, text):
    """The enumerators of `enum class enum`, without their k, by number."""
    body = re.search(rf"enum class {enum} : \w+ \{{(.*?)\}};", text, re.DOTALL)
    names, number = {}, -1
    for line in body[1].splitlines() if body else []:
        if entry := re.match(r"\s*k(\w+)(?: = (\d+))?,", line):
            number = int(entry[2]) if entry[2] else number + 1
            names[number] = entry[1]
    return names


def read_names(folder=CORE):
    """Names of operations and of kinds of objects; none where the sources are not at hand."""
    named = []
    for enum, header in (("Op", "operation.hpp"), ("ObjectKind", "objects.hpp")):
        try:
            with open(os.path.join(folder, header), encoding="utf-8") as file:
                named.append(names_of(enum, file.read()))
        except OSError:
            named.append({})
    return tuple(named)


def records(path):
    with open(path, "rb") as file:
        while len(piece := file.read(RECORD.size)) == RECORD.size:
            yield RECORD.unpack(piece)


def without_hole(path):
    """A restored server's trace begins with zeros, where its image had what another replica wrote."""
    return itertools.dropwhile(lambda record: not any(record), records(path))


def from_the_same_clock(first, second):
    """Both from where the later one begins."""
    a, b = next(first, None), next(second, None)
    while a and b and a[0] != b[0]:
        if a[0] < b[0]:
            a = next(first, None)
        else:
            b = next(second, None)
    heads = [[one] if one else [] for one in (a, b)]
    return itertools.chain(heads[0], first), itertools.chain(heads[1], second)


def show_object(key, kinds):
    kind, number = key >> KIND_SHIFT, key & ((1 << KIND_SHIFT) - 1)
    return f"{kinds.get(kind, f'kind {kind}')} {number:#x}"


def show(record, operations, kinds):
    if record is None:
        return "(ends here)"
    clock, slot, operation, caller, now_ns, *objects = record
    worked_on = ", ".join(show_object(key, kinds) for key in objects if key) or "nothing shared"
    return (f"clock {clock} slot {slot} {operations.get(operation, f'operation {operation}')} ({worked_on}) "
            f"caller {caller:#x} time {now_ns}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second", nargs="?", help="without it, the first is printed")
    parser.add_argument("--context", type=int, default=5, help="records to print before the difference")
    options = parser.parse_args()
    names = read_names()
    if options.second is None:
        for record in without_hole(options.first):
            print(show(record, *names))
        return 0
    before = []
    count = 0
    both = from_the_same_clock(without_hole(options.first), without_hole(options.second))
    for a, b in itertools.zip_longest(*both):
        if a is None or b is None:
            print(f"equal for {count} records; then one trace ends")
            return 3
        if a != b:
            print(f"record {count} differs; before it:")
            for record in before[-options.context:]:
                print("   ", show(record, *names))
            print("  1:", show(a, *names))
            print("  2:", show(b, *names))
            return 1
        before = (before + [a])[-options.context:] if options.context else []
        count += 1
    print(f"equal: {count} records")
    return 0 if count else 2


if __name__ == "__main__":
    sys.exit(main())
