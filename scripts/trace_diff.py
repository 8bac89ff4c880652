#!/usr/bin/env python3
"""Compares two schedule traces (docs/debugging.md) and prints the first place where they part."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from crane_launch.traces import RECORD, Comparison, Symbols, read_names, show, without_hole, without_pids  # noqa: E402

__all__ = ["RECORD", "main", "read_names", "show", "without_pids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second", nargs="?", help="without it, the first is printed")
    parser.add_argument("--context", type=int, default=5, help="records to print before the difference")
    options = parser.parse_args()
    names = read_names()
    symbols = [Symbols(f"{path}.maps") if path else None for path in (options.first, options.second)]
    if options.second is None:
        for record in without_hole(options.first):
            print(show(record, *names, symbols[0]))
        return 0
    compared = Comparison(options.first, options.second, options.context)
    if compared.equal():
        print(f"equal: {compared.count} records")
        return 0 if compared.count else 2
    if compared.one_ended():
        print(f"equal for {compared.count} records; then one trace ends")
        return 3
    print(f"record {compared.count} differs; before it:")
    for record in compared.before:
        print("   ", show(record, *names, symbols[0]))
    print("  1:", show(compared.first, *names, symbols[0]))
    print("  2:", show(compared.second, *names, symbols[1]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
