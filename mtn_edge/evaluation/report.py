"""The figures of `evaluate` for people: a table of words, and a page with plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtn_edge.evaluation.baselines import BASELINES
from mtn_edge.evaluation.metrics import RESAMPLES
from mtn_edge.evaluation.summary import MEASURES, NOTES
from mtn_edge.evaluation.systems import CEILING
from mtn_edge.pages.tables import aligned

Figures = dict[str, dict[str, dict[str, Any]]]
"""Task to system to the system's summary."""

_TITLES = {"suggest": "Suggestion: nothing typed yet", "complete": "Completion: some characters typed"}
_LABELS = {
    "mrr@10": "MRR@10",
    "pmrr@10": "pMRR@10",
    "calibration_error": "calibration error",
    "bleu": "BLEU",
    "nats_per_character": "nats/character",
    "keystrokes_saved": "keys saved",
    "mrl": "MRL",
}
_PERCENT = {"success@1", "success@10", "keystrokes_saved"}
_LOWER_IS_BETTER = {"calibration_error", "perplexity", "nats_per_character"}
SLICE_LABELS = {
    "position_0": "first query",
    "position_1": "second query",
    "position_2+": "third or later",
    "position_1+": "with a session before",
    "prefix_1-3": "1-3 characters typed",
    "prefix_4-7": "4-7 characters typed",
    "prefix_8+": "8 or more typed",
    "seen": "seen in training",
    "unseen": "never seen",
    "seen_prefix": "prefix seen in training",
    "unseen_prefix": "prefix never seen",
    "navigational": "navigational",
    "repeat_free": "not a repeat",
}


@dataclass(frozen=True)
class _Cell:
    value: str
    interval: str
    best: bool


def words(figures: Figures) -> str:
    """The figures as one table of plain text for each task: measures, then MRR@10 on parts of the questions."""
    blocks = []
    for task, systems in figures.items():
        first = next(iter(systems.values()))
        table = [["", "questions", *systems]]
        table.append(["bytes", "", *(_bytes(summary["bytes"]) for summary in systems.values())])
        for measure in _measures(systems):
            table.append([_label(measure), "", *(_words_of(summary, measure) for summary in systems.values())])
            if measure == "bleu":
                table.append(["  its precisions", "", *(_precisions(summary) for summary in systems.values())])
        for part, figure in first["slices"].items():
            parts = [summary["slices"][part] for summary in systems.values()]
            cells = [_words_of(summary, "mrr@10") for summary in parts]
            table.append([f"MRR@10, {SLICE_LABELS[part]}", f"{figure['n']:,}", *cells])
            if task == "suggest" and part == "repeat_free":
                table.append([f"BLEU, {SLICE_LABELS[part]}", "", *(_words_of(each, "bleu") for each in parts)])
                table.append(["  its precisions", "", *(_precisions(each) for each in parts)])
        reference, compared = _compared(systems)
        for measure in compared:
            differences = [_difference(summary, measure) for summary in systems.values()]
            row = [f"{cell.value} {cell.interval}".strip() for cell in differences]
            table.append([f"{_label(measure)} - {reference}", "", *row])
        blocks.append(f"{_TITLES[task]}\n{_about(first)}\n{aligned(table)}")
    return "\n\n".join(blocks)


def _compared(systems: dict[str, dict[str, Any]]) -> tuple[str, list[str]]:
    """The name of the reference, and the measures that were compared with it."""
    against = next((summary["against"] for summary in systems.values() if summary["against"] is not None), None)
    return ("", []) if against is None else (against["system"], [measure for measure in against if measure != "system"])


def _difference(summary: dict[str, Any], measure: str) -> _Cell:
    """The difference from the reference; nothing for the reference itself."""
    if summary["against"] is None:
        return _Cell("", "", best=False)
    found = summary["against"][measure]
    low, high = (_number(measure, value) for value in found["ci95"])
    return _Cell(_number(measure, found["difference"]), f"[{low}, {high}] p={_number('p', found['p'])}", best=False)


def _precisions(summary: dict[str, Any]) -> str:
    four = summary["bleu_precisions"]
    return "-" if four is None else " ".join(f"{precision:.1f}" for precision in four)


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size:,}"


@dataclass(frozen=True)
class Section:
    """One task's part of a page."""

    task: str
    systems: dict[str, dict[str, Any]]
    """System to its summary."""
    title: str
    plots: tuple[dict[str, Any], ...] = ()
    """More plots, each a `title` and an `svg`."""


def sections_of(figures: Figures, *, prefix: str = "") -> list[Section]:
    """A section for each task."""
    return [Section(task, systems, prefix + _TITLES[task]) for task, systems in figures.items()]


def write_report(path: Path, sections: Sequence[Section], *, about: str, notes: Sequence[str]) -> None:
    """Writes the page.

    Args:
        path: the HTML file.
        sections: in their order.
        about: what was measured on what, one sentence or two.
        notes: warnings worth a line each.
    """
    from mtn_edge.pages.page import write_page
    from mtn_edge.pages.plots import style

    with style():
        tasks = [_task_values(section) for section in sections]
    shown = [measure for measure in MEASURES if any(measure in _measures(section.systems) for section in sections)]
    write_page(
        path,
        "evaluation.html",
        {
            "models": [name for name in sections[0].systems if name not in (*BASELINES, CEILING)] or ["baselines"],
            "about": about,
            "notes": list(notes),
            "tasks": tasks,
            "resamples": f"{RESAMPLES:,}",
            "meanings": [(_label(measure), NOTES[measure]) for measure in shown],
        },
    )


def _task_values(section: Section) -> dict[str, Any]:
    systems = section.systems
    measures = _measures(systems)
    first = next(iter(systems.values()))
    reference, compared = _compared(systems)
    parts = []
    for part, figure in first["slices"].items():
        of_part = {name: summary["slices"][part] for name, summary in systems.items()}
        cells = [_cell(summary, "mrr@10", of_part) for summary in of_part.values()]
        parts.append({"name": SLICE_LABELS[part], "n": f"{figure['n']:,}", "cells": cells})
    return {
        "title": section.title,
        "about": _about(first) + ".",
        "measures": [_label(measure) for measure in measures],
        "rows": [
            {
                "name": name,
                "bytes": _bytes(summary["bytes"]),
                "cells": [_cell(summary, measure, systems) for measure in measures],
            }
            for name, summary in systems.items()
        ],
        "reference": reference,
        "compared": [_label(measure) for measure in compared],
        "differences": [
            {"name": name, "cells": [_difference(summary, measure) for measure in compared]}
            for name, summary in systems.items()
            if summary["against"] is not None
        ],
        "plots": [*_plots(section.task, systems), *section.plots],
        "slices": parts,
    }


def _plots(task: str, systems: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    from mtn_edge.pages import plots

    colours = _colours(systems)
    ranked = ["mrr@10", "success@1", "success@10", "pmrr@10"]
    if task == "complete":
        ranked.append("keystrokes_saved")
    row = max(0.42, 0.11 * len(systems))  # inches; room for each system's point
    figure, plot = plots.axes(5.4, 0.9 + (row + 0.2) * len(ranked))
    series = [
        (name, colours[name], [_point(summary, measure) for measure in ranked]) for name, summary in systems.items()
    ]
    plots.dots(plot, [_label(measure) for measure in ranked], series)
    plot.set_xlim(left=0)
    figure.legend(loc="outside lower center", ncols=min(3, len(systems)))
    pictures = [{"title": "All questions", "svg": plots.svg(figure, label=f"{task}: measures with 95 % intervals")}]

    names = list(next(iter(systems.values()))["slices"])
    figure, plot = plots.axes(5.4, 0.9 + row * len(names))
    series = [
        (name, colours[name], [_point(summary["slices"][part], "mrr@10") for part in names])
        for name, summary in systems.items()
    ]
    plots.dots(plot, [SLICE_LABELS[part] for part in names], series)
    plot.set_xlim(left=0)
    plot.set_xlabel("MRR@10")
    pictures.append({"title": "MRR@10 by slice", "svg": plots.svg(figure, label=f"{task}: MRR@10 by slice")})

    if task == "suggest":
        figure, plot = plots.axes(5.4, 2.6)
        width = 0.8 / len(systems)
        for number, (name, summary) in enumerate(systems.items()):
            places = [order + width * (number - (len(systems) - 1) / 2) for order in range(1, 5)]
            plot.bar(places, summary["bleu_precisions"], width * 0.9, color=colours[name], label=name)
        plot.set_xticks(range(1, 5), [f"{order}-grams" for order in range(1, 5)])
        plot.grid(visible=False, axis="x")
        plot.set_ylabel("percent right")
        plot.legend()
        pictures.append({"title": "BLEU precisions", "svg": plots.svg(figure, label="BLEU precisions by system")})
    return pictures


def _colours(systems: dict[str, Any]) -> dict[str, str]:
    from mtn_edge.pages.plots import COLOURS, GREY

    # The list that everything is held against stays in the background; models come before baselines.
    ordered = sorted((name for name in systems if name != "mpc"), key=BASELINES.__contains__)
    return {"mpc": GREY} | {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(ordered)}


def _measures(systems: dict[str, dict[str, Any]]) -> list[str]:
    """The measures that at least one system has."""
    return [measure for measure in MEASURES if any(summary[measure] is not None for summary in systems.values())]


def _cell(summary: dict[str, Any], measure: str, systems: dict[str, dict[str, Any]]) -> _Cell:
    value = summary[measure]
    if value is None:
        return _Cell("-", "", best=False)
    known = [other[measure] for name, other in systems.items() if other[measure] is not None and name != CEILING]
    best = len(set(known)) > 1 and value == (min(known) if measure in _LOWER_IS_BETTER else max(known))
    low, high = summary["ci95"][measure]
    return _Cell(_number(measure, value), f"[{_number(measure, low)}, {_number(measure, high)}]", best=best)


def _words_of(summary: dict[str, Any], measure: str) -> str:
    value = summary[measure]
    if value is None:
        return "-"
    low, high = summary["ci95"][measure]
    return f"{_number(measure, value)} [{_number(measure, low)}, {_number(measure, high)}]"


def _point(summary: dict[str, Any], measure: str) -> tuple[float, float, float] | None:
    value = summary[measure]
    low, high = summary["ci95"].get(measure, (None, None))
    return None if value is None or low is None or high is None else (value, low, high)


def _number(measure: str, value: float | None) -> str:
    if value is None:
        return "-"
    if measure in _PERCENT:
        return f"{100 * value:.1f} %"
    if measure in ("bleu", "perplexity", "mrl"):
        return f"{value:,.1f}"
    return f"{value:.3f}"


def _label(measure: str) -> str:
    return _LABELS.get(measure, measure)


def _about(summary: dict[str, Any]) -> str:
    protocol = summary["protocol"]
    cut = ""
    if protocol["targets"] < protocol["available"]:
        cut = f", drawn from {protocol['available']:,} (cap {protocol['max_queries']:,})"
    return (
        f"{summary['n']:,} questions about {protocol['targets']:,} queries of {protocol['sessions']:,} sessions"
        f" of the {protocol['split']} split{cut}"
    )
