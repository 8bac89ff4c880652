"""From measurements to a table: medians over rounds, the ceiling, and the aims with what was reached."""

import os
import statistics

COLUMNS = [("per_second", "ops/s", "{:,.0f}"), ("p50_us", "p50 us", "{:,.0f}"), ("p99_us", "p99 us", "{:,.0f}"),
           ("cpu_ms", "CPU ms/op", "{:.3f}"), ("client_cpu_ms", "client", "{:.3f}"), ("syscalls", "syscalls", "{:.1f}"),
           ("handovers", "handover", "{:.2f}"), ("wakeups", "wakeups", "{:.2f}"), ("doorbells", "bells", "{:.2f}"),
           ("syncs", "syncs", "{:.3f}"), ("bubble_share", "bubbles", "{:.2f}"), ("identical", "diff", "{}")]

# Acceptance: (load, setup, least share, of what).
AIMS = [("apache-compute", "proxy", 0.8, "native"), ("apache-compute", "dmt", 0.8, "native"),
        ("apache-compute", "crane", 0.8, "ceiling"), ("apache-static", "crane", 0.3, "ceiling"),
        ("redis-50", "crane", 0.3, "ceiling")]
REDIS_ONE_LIMIT_US = 1000


def medians(rows):
    """One row of medians; a figure that some round lacks is left out. `identical` must hold in every round."""
    out = {}
    for key in set().union(*rows):
        values = [row[key] for row in rows if row.get(key) is not None]
        if key == "identical":
            out[key] = "same" if all(value == "same" for value in values) else "DIFFER"
        elif values and all(isinstance(value, (int, float)) for value in values):
            out[key] = statistics.median(values)
    return out


def ceiling(native):
    """Requests per second if everything runs three times and coordination were free (per CPU: 1,000 ms/s)."""
    cost_ms = 3 * native["cpu_ms"] + native["client_cpu_ms"]
    return os.cpu_count() * 1000 / cost_ms if cost_ms > 0 else float("nan")


def table(rows):
    head = ["", *(title for _, title, _ in COLUMNS)]
    body = [[name, *(form.format(row[key]) if row.get(key) is not None else "" for key, _, form in COLUMNS)]
            for name, row in rows.items()]
    widths = [max(len(line[n]) for line in [head, *body]) for n in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) if n else cell.ljust(width)
                               for n, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in [head, *body])


def aims(results):
    """A line per aim whose figures were measured."""
    lines = []
    for load, setup, share, base in AIMS:
        rows = results.get(load, {})
        if setup not in rows or base not in rows or not rows[base]["per_second"]:
            continue
        reached = rows[setup]["per_second"] / rows[base]["per_second"]
        lines.append(f"{'met   ' if reached >= share else 'MISSED'} {load}: {setup} is {reached:.2f} of {base}, "
                     f"aim {share}{explain(rows[setup]) if reached < share else ''}")
    one = results.get("redis-1", {}).get("crane")
    if one:
        met = one["p50_us"] < REDIS_ONE_LIMIT_US
        lines.append(f"{'met   ' if met else 'MISSED'} redis-1: crane answers in {one['p50_us']:.0f} us (median), "
                     f"aim under {REDIS_ONE_LIMIT_US} us{'' if met else explain(one)}")
    return lines


def explain(row):
    """What the time of an operation at the primary went to, as far as was counted."""
    parts = [f"{label} {row[key]:.2f}{unit}" for key, label, unit in (
        ("domain_cpu_ms", "server CPU", " ms"), ("craned_cpu_ms", "craned CPU", " ms"), ("handovers", "hand-overs", ""),
        ("wakeups", "wake-ups", ""), ("syscalls", "system calls", ""), ("syncs", "syncs", "")) if row.get(key) is not None]
    busy = row.get("domain_cpu_ms") and row["per_second"] * row["domain_cpu_ms"] / 1000
    if busy and 0.85 <= busy <= 1.15:
        parts.append(f"that is {busy:.2f} of one core: the schedule lets the server have no more than one")
    return "; per operation: " + ", ".join(parts) if parts else ""
