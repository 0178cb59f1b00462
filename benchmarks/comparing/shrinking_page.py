"""The page of the compression table: quality against bytes and against time, differences with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mtn_edge.pages import plots
from mtn_edge.pages.page import write_page

Plot = dict[str, Any]
_TASKS = {"suggest": "nothing typed", "complete": "some characters typed"}


def write_report(path: Path, document: dict[str, Any], titles: dict[str, str]) -> None:
    """Writes the page.

    Args:
        path: the HTML file.
        document: what `benchmarks/compression.py` writes as JSON.
        titles: of the corpora.
    """
    with plots.style():
        sections = [_section(titles[name], found) for name, found in document["corpora"].items() if found["rows"]]
    goals = [
        [goal["name"], f"{goal['value']:.4g}", f"{goal['bound']:g}", "held" if goal["ok"] else "MISSED"]
        for goal in document["goals"]
    ]
    machine = document["machine"]
    write_page(
        path,
        "shrinking.html",
        {"machine": f"{machine['cpu']}, {machine['cores']} cores", "goals": goals, "sections": sections},
        templates=Path(__file__).parent,
    )


def _section(title: str, found: dict[str, Any]) -> dict[str, Any]:
    head = ["", "parameters", "weights", *_TASKS.values(), "validation", "key press p50", "p95"]
    table = []
    for name, row in found["rows"].items():
        timed = found["race"].get(name)
        table.append(
            [
                name,
                f"{row['parameters']:,}",
                f"{row['bytes'] / 1e6:.2f} MB",
                *(f"{np.mean(row['mrr@10'][task]):.4f}" for task in _TASKS),
                f"{np.mean(row['valid_loss']):.3f} nats",
                *((f"{timed[share]:.2f} ms" for share in ("p50_ms", "p95_ms")) if timed else ("-", "-")),
            ]
        )
    figures = [_by_bytes(task, found["rows"]) for task in _TASKS] + [_differences(found["differences"])]
    return {"title": title, "head": head, "table": table, "plots": figures, "recipes": _recipes(found["recipes"])}


def _recipes(recipes: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, outcome in recipes.items():
        if "compression" not in outcome:
            rows.append([name, outcome["error"]["message"], "", "", ""])
            continue
        facts = outcome["compression"]
        bundle = facts["bundle"]
        size, time = f"{bundle['bytes'] / 1e6:.2f} MB", f"{bundle['keystroke_ms']['p95']:.1f} ms"
        rows.append([name, size, f"{facts['smaller']:.1f} times", time, f"{-bundle['drop']:+.1%}"])
    return rows


def _by_bytes(task: str, rows: dict[str, Any]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    for number, (name, row) in enumerate(rows.items()):
        scores, size = row["mrr@10"][task], row["bytes"] / 1e6
        colour = plots.COLOURS[number % len(plots.COLOURS)]
        plot.plot([size] * len(scores), scores, "o", color=colour, alpha=0.5, markersize=5)
        plot.annotate(name, (size, np.mean(scores)), textcoords="offset points", xytext=(6, 3), fontsize=8)
    plot.set_xscale("log")
    plot.margins(x=0.25)
    plot.set_xlabel("megabytes of weights (a dot for each training)")
    plot.set_ylabel("MRR@10")
    return {"title": f"Quality and size, {_TASKS[task]}", "svg": plots.svg(figure, label=f"{task}: MRR@10 by size")}


def _differences(differences: list[dict[str, Any]]) -> Plot:
    figure, plot = plots.axes(5.4, 1.0 + 0.32 * len(differences))
    rows = [f"{each['system']} - {each['against']}, {each['task']}" for each in differences]
    points = [(each["difference"], *each["ci95"]) for each in differences]
    plots.dots(plot, rows, [("difference", plots.COLOURS[0], points)])
    plot.axvline(0, color=plots.GREY, linewidth=1)
    plot.set_xlabel("MRR@10, 95 % interval over sessions")
    return {"title": "Paired differences", "svg": plots.svg(figure, label="Paired differences of MRR@10")}
