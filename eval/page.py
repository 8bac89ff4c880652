"""The figures of a run as one page: a plot and a table for each load. Needs matplotlib, which draws."""

import html
import io

from report import COLUMNS, cells

STYLE = """\
body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child { text-align: left; } .missed { color: #b00; } svg { max-width: 100%; height: auto; }"""
BAR = "#4878a8"


def plot(results, titles):
    """A panel for each load: operations a second of each setup, with the spread over the rounds. As SVG."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    figure, panels = pyplot.subplots(len(results), 1, squeeze=False, figsize=(9, 0.6 + sum(
        0.5 + 0.32 * len(rows) for rows in results.values())), constrained_layout=True,
        height_ratios=[2 + len(rows) for rows in results.values()])
    for axes, (load, rows) in zip(panels[:, 0], results.items()):
        names = list(rows)
        values = [rows[name]["per_second"] for name in names]
        errors = [rows[name].get("spread", 0) * value for name, value in zip(names, values)]
        bars = axes.barh(names, values, xerr=errors, color=[BAR if name != "ceiling" else "#ccc" for name in names])
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(titles.get(load, load), loc="left", fontsize=10)
        axes.margins(x=0.12)
    panels[-1, 0].set_xlabel("operations a second: median; the line is the spread over the rounds")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    pyplot.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg"):]


def page(results, titles, about, aims):
    """`about` and `aims`: lines for people. A whole HTML page that needs nothing else."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>Crane's evaluation</title>", f"<style>{STYLE}</style>",
             "<h1>Crane's evaluation</h1>", *(f"<p>{html.escape(line)}</p>" for line in about), plot(results, titles)]
    if aims:
        parts.append("<h2>Aims</h2><ul>" + "".join(
            f"<li{' class=missed' if line.startswith('MISSED') else ''}>{html.escape(line)}" for line in aims) + "</ul>")
    head = "".join(f"<th>{html.escape(title)}" for title in ["", *(title for _, title, _ in COLUMNS)])
    for load, rows in results.items():
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in [name, *cells(row)]) for name, row in rows.items())
        parts.append(f"<h2>{html.escape(titles.get(load, load))}</h2><table><tr>{head}{body}</table>")
    return "\n".join(parts) + "</html>\n"
