"""What a suite's tests came to natively and under Crane, and what that says of Crane.

A run is a dictionary: a test's name, and PASSED or what it said as it failed.
"""

import dataclasses

PASSED = ""


@dataclasses.dataclass
class Row:
    name: str
    verdict: str
    seen: str = PASSED  # under Crane
    native: str = PASSED


# What is held against Crane, unless known.toml says why it cannot be otherwise.
WRONG = ("fails", "fails otherwise", "not run")


def judge(natives, crane):
    """A row for each test of the native runs, in their order; `natives` are two runs or more."""
    rows = []
    names = list(dict.fromkeys(name for native in natives for name in native))
    for name in names:
        texts = [native.get(name) for native in natives]
        rows.append(Row(name, verdict(texts, crane.get(name)), crane.get(name) or PASSED, texts[0] or PASSED))
    return rows


def verdict(natives, crane):
    """None stands for a test that was not run."""
    if crane == PASSED:
        return "passes"
    if any(text != natives[0] for text in natives):
        return "not stable"
    if natives[0] == crane:
        return "fails alike"
    if crane is None:
        return "not run"
    return "fails" if natives[0] == PASSED else "fails otherwise"


def excused(rows, known):
    return [row for row in rows if row.verdict in WRONG and row.name in known]


def wrong(rows, known):
    return [row for row in rows if row.verdict in WRONG and row.name not in known]


def numbered(names):
    """Names that occur more than once, told from each other by their count."""
    seen = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


def summary(suite, rows, known):
    """The closing line."""
    counts = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    held, let = len(wrong(rows, known)), len(excused(rows, known))
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name != "passes")
    return f"{suite}: {len(rows)} tests, {counts.get('passes', 0)} pass under Crane{'; ' if told else ''}{told}; {let} excused, {held} wrong"
