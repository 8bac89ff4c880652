"""This run against an earlier one, so that a loss is seen.

Another day's machine is not the same machine: where both runs have the bare server, what is compared is the share of
native, and only else operations a second. What is within the spread of both runs, or within LEAST, is no change.
"""

import json

LEAST = 0.05


def shares(medians):
    """{setup: (figure, whether it is a share of native)} of one load."""
    native = medians.get("native", {}).get("per_second")
    return {setup: (row["per_second"] / native, True) if native and setup != "native" else (row["per_second"], False)
            for setup, row in medians.items() if setup != "ceiling" and row.get("per_second")}


def compare(before, now):
    """Lines for people, and the names of what was lost. Both are as bench.py writes them."""
    lines, losses = [], []
    for load, rows in now["medians"].items():
        old_rows = before["medians"].get(load, {})
        old, new = shares(old_rows), shares(rows)
        for setup in new:
            if setup not in old or setup == "native" or old[setup][1] != new[setup][1]:
                continue
            ratio = new[setup][0] / old[setup][0]
            slack = max(LEAST, *(one.get(setup, {}).get("spread", 0) + one.get("native", {}).get("spread", 0) * new[setup][1]
                                 for one in (old_rows, rows)))
            word = "LOSS" if ratio < 1 - slack else "gain" if ratio > 1 + slack else "same"
            of = "of native" if new[setup][1] else "ops/s"
            lines.append(f"{word}  {load}, {setup}: {new[setup][0]:,.2f} {of} instead of {old[setup][0]:,.2f} "
                         f"({ratio:.2f} times; spread {slack:.2f})")
            if word == "LOSS":
                losses.append(f"{load}, {setup}")
    return lines or ["nothing in it was measured this time"], losses


def read(path):
    """An earlier run. Raises ValueError with what is wrong."""
    try:
        run = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(run, dict) or not isinstance(run.get("medians"), dict):
        raise ValueError(f"{path} is no file of an earlier run: it has no medians")
    return run
