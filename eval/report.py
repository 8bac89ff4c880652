"""From measurements to a table: medians over rounds, the ceiling, and the aims with what was reached."""

import os
import statistics

COLUMNS = [("per_second", "ops/s", "{:,.0f}"), ("spread", "+-", "{:.0%}"), ("p50_us", "p50 us", "{:,.0f}"),
           ("p99_us", "p99 us", "{:,.0f}"),
           ("cpu_ms", "CPU ms/op", "{:.3f}"), ("client_cpu_ms", "client", "{:.3f}"), ("syscalls", "syscalls", "{:.1f}"),
           ("handovers", "handover", "{:.2f}"), ("wakeups", "wakeups", "{:.2f}"), ("doorbells", "bells", "{:.2f}"),
           ("syncs", "syncs", "{:.3f}"), ("bubble_share", "bubbles", "{:.2f}"), ("identical", "diff", "{}")]

# (load, setup, least share, of what).
AIMS = [
    ("redis-50", "dmt", 0.95, "native"), ("memcached", "dmt", 0.85, "native"), ("apache-static", "dmt", 0.85, "native"),
    ("apache-compute", "dmt", 0.5, "native"), ("apache-compute", "proxy", 0.8, "native"), ("apache-compute", "crane", 0.8, "ceiling"),
    ("postgres-8", "dmt", 0.7, "native"),
    *((f"mariadb-{test}-8", "dmt", 0.6, "native") for test in ("read-only", "read-write", "update-index")),
    *((load, "crane-1of3", 0.6, "dmt") for load in ("redis-50", "memcached", "apache-static", "mariadb-read-only-8",
                                                    "mariadb-read-write-8", "mariadb-update-index-8", "postgres-8")),
    *((load, "crane", 0.5, "ceiling") for load in ("redis-50", "memcached", "apache-static", "mariadb-read-only-8",
                                                   "mariadb-read-write-8", "mariadb-update-index-8")),
]
# Of one request alone: above native where each replica has a host of its own, and with three on this one.
ONE_LIMIT_US = 300
THREE_LIMIT_US = 1000


def medians(rows):
    """One row of medians; a figure that some round lacks is left out. `identical` must hold in every round.

    `spread`: half of what lies between the fastest and the slowest round, as a share of the median.
    """
    out = {}
    for key in set().union(*rows):
        values = [row[key] for row in rows if row.get(key) is not None]
        if key == "identical":
            out[key] = "same" if all(value == "same" for value in values) else "DIFFER"
        elif values and all(isinstance(value, (int, float)) for value in values):
            out[key] = statistics.median(values)
    rates = [row["per_second"] for row in rows]
    out["spread"] = (max(rates) - min(rates)) / 2 / out["per_second"]
    return out


def ceiling(native):
    """Requests per second if everything runs three times and coordination were free (per CPU: 1,000 ms/s)."""
    cost_ms = 3 * native["cpu_ms"] + native["client_cpu_ms"]
    return os.cpu_count() * 1000 / cost_ms if cost_ms > 0 else float("nan")


def cells(row):
    """As text, in the order of COLUMNS."""
    return [form.format(row[key]) if row.get(key) is not None else "" for key, _, form in COLUMNS]


def table(rows):
    head = ["", *(title for _, title, _ in COLUMNS)]
    body = [[name, *cells(row)] for name, row in rows.items()]
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
    return lines + one_request(results.get("redis-1", {}))


def one_request(rows):
    """Lines for the aims of latency."""
    lines = []
    for setup, above, limit_us in (("crane-1of3", "native", ONE_LIMIT_US), ("crane", None, THREE_LIMIT_US)):
        if setup not in rows or (above and above not in rows):
            continue
        took_us = rows[setup]["p50_us"] - (rows[above]["p50_us"] if above else 0)
        met = took_us < limit_us
        lines.append(f"{'met   ' if met else 'MISSED'} redis-1: {setup} answers in {took_us:.0f} us"
                     f"{f' more than {above}' if above else ''} (median), aim under {limit_us} us"
                     f"{'' if met else explain(rows[setup])}")
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
