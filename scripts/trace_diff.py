#!/usr/bin/env python3
"""Compares two schedule traces (docs/debugging.md) and prints the first place where they part."""
import argparse
import itertools
import struct
import sys

RECORD = struct.Struct("<QIIQQ")  # clock, slot, operation, caller, virtual time in ns


def records(path):
    with open(path, "rb") as file:
        while len(piece := file.read(RECORD.size)) == RECORD.size:
            yield RECORD.unpack(piece)


def show(record):
    if record is None:
        return "(ends here)"
    clock, slot, operation, caller, now_ns = record
    return f"clock {clock} slot {slot} op {operation} caller {caller:#x} time {now_ns}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--context", type=int, default=5, help="records to print before the difference")
    options = parser.parse_args()
    before = []
    count = 0
    for a, b in itertools.zip_longest(records(options.first), records(options.second)):
        if a is None or b is None:
            print(f"equal for {count} records; then one trace ends")
            return 3
        if a != b:
            print(f"record {count} differs; before it:")
            for record in before[-options.context:]:
                print("   ", show(record))
            print("  1:", show(a))
            print("  2:", show(b))
            return 1
        before = (before + [a])[-options.context:] if options.context else []
        count += 1
    print(f"equal: {count} records")
    return 0 if count else 2


if __name__ == "__main__":
    sys.exit(main())
