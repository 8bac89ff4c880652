"""Traces of the schedule (docs/debugging.md): reading, comparing, and saying in words what a record means."""

import bisect
import itertools
import pathlib
import re
import struct
import subprocess

# TraceRecord: clock, slot, operation, caller, virtual time in ns, first and second object
RECORD = struct.Struct("<QIIQQQQ")
HERE = pathlib.Path(__file__).resolve().parent.parent  # scripts/ in the tree, PREFIX/lib/crane installed
KIND_SHIFT = 60
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+\s+(/.*)")


def names_of(enum, text):
    """The enumerators of `enum class enum`, without their k, by number."""
    body = re.search(rf"enum class {enum} : \w+ \{{(.*?)\}};", text, re.DOTALL)
    names, number = {}, -1
    for line in body[1].splitlines() if body else []:
        if entry := re.match(r"\s*k(\w+)(?: = (\d+))?,", line):
            number = int(entry[2]) if entry[2] else number + 1
            names[number] = entry[1]
    return names


def sources():
    """Where the shim's headers are that name things."""
    installed = HERE / "core"
    return installed if installed.is_dir() else HERE.parent / "interpose" / "core"


def read_names(folder=None):
    """Names of operations and of kinds of objects; none where the headers are not at hand."""
    named = []
    for enum, header in (("Op", "operation.hpp"), ("ObjectKind", "objects.hpp")):
        try:
            named.append(names_of(enum, (pathlib.Path(folder or sources()) / header).read_text(encoding="utf-8")))
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


class Comparison:
    """Two traces as far as they are equal: `count` records, the last of them `before`, then `first` and `second`, of which
    one may be None, where its trace ends. `seen`: what of a record counts."""

    def __init__(self, one, other, context=5, seen=lambda record: record):
        self.count, self.before, self.first, self.second = 0, [], None, None
        for a, b in itertools.zip_longest(*from_the_same_clock(without_hole(one), without_hole(other))):
            if (a and seen(a)) != (b and seen(b)):
                self.first, self.second = a, b
                return
            self.before = (self.before + [a])[-context:] if context else []
            self.count += 1

    def equal(self):
        return self.first is None and self.second is None

    def one_ended(self):
        return not self.equal() and None in (self.first, self.second)


class Symbols:
    """Names of places in the code, by what a process had mapped (a trace's .maps)."""

    def __init__(self, path=None):
        self.mappings, self.known = [], {}
        try:
            lines = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines() if path else []
        except OSError:
            lines = []
        for line in lines:
            if (row := MAPPING.match(line)) and "x" in row[3]:
                self.mappings.append((int(row[1], 16), int(row[2], 16), int(row[4], 16), row[5]))
        self.mappings.sort()

    def name(self, address):
        """As "function+0x12 in libx.so", or what is known of it; "" for nothing."""
        if address not in self.known:
            self.known[address] = self._look_up(address)
        return self.known[address]

    def _look_up(self, address):
        at = bisect.bisect_right(self.mappings, (address, float("inf"))) - 1
        if at < 0 or address >= self.mappings[at][1]:
            return ""
        begin, _, offset, path = self.mappings[at]
        place = address - begin + offset
        if function := self._function(path, place):
            return f"{function} in {pathlib.Path(path).name}"
        return f"{pathlib.Path(path).name}+{place:#x}"

    @staticmethod
    def _function(path, place):
        # One before, for what is called last in a function: the address is the call's return.
        try:
            told = subprocess.run(["addr2line", "-f", "-C", "-e", path, hex(place - 1)], capture_output=True, text=True,
                                  timeout=20, check=False).stdout.splitlines()
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if not told or told[0] == "??":
            return ""
        line = told[1] if len(told) > 1 and not told[1].startswith("??") else ""
        return f"{told[0]} ({line})" if line else told[0]


def without_pids(kinds):
    """For runs whose processes' numbers are the host's: what of a record counts all the same."""
    processes = {kind for kind, name in kinds.items() if name == "Process"}
    return lambda record: record[:5] + tuple(key >> KIND_SHIFT if key >> KIND_SHIFT in processes else key for key in record[5:])


def show_object(key, kinds):
    kind, number = key >> KIND_SHIFT, key & ((1 << KIND_SHIFT) - 1)
    return f"{kinds.get(kind, f'kind {kind}')} {number:#x}"


def show(record, operations, kinds, symbols=None):
    if record is None:
        return "(ends here)"
    clock, slot, operation, caller, now_ns, *objects = record
    worked_on = ", ".join(show_object(key, kinds) for key in objects if key) or "nothing shared"
    where = symbols.name(caller) if symbols else ""
    return (f"clock {clock} slot {slot} {operations.get(operation, f'operation {operation}')} ({worked_on}) "
            f"caller {where or hex(caller)} time {now_ns}")
