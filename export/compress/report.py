"""What `compress` came to, for people: words, a section of the model card, a page with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from export.compress.measure import BUNDLE, KEY_PRESSES, QUERIES, TEACHER
from mtn_edge.pages.tables import aligned

_BUDGETS = {"size_mb": "size", "p95_ms": "key press, p95", "max_quality_drop": "MRR@10 lost, validation"}
_TASKS = {"suggest": "nothing typed", "complete": "some characters typed"}


def plan_in_words(plan: list[dict[str, Any]]) -> str:
    """What there is to do, before any of it."""
    table = [["point", "parameters", "about", "stages (done before: +)"]]
    for each in plan:
        stages = ", ".join(("+" if stage["done"] else "") + stage["stage"] for stage in each["stages"])
        size = f"{each['expected_bytes'] / 1e6:.2f} MB" + ("" if each["fits"] else ", too large")
        table.append([each["point"], f"{each['parameters']:,}", size, stages])
    return aligned(table)


def words(facts: dict[str, Any]) -> str:
    """The outcome as tables of plain text."""
    budgets = aligned([["budget", "allowed", "measured", ""], *_budget_rows(facts)])
    points = aligned(
        [["point", "size", "p50", "p95", "MRR@10", "lost", "beyond"], *(row for row, _ in _point_rows(facts))]
    )
    return f"{_about(facts)}\n\n{budgets}\n\n{points}"


def card_section(facts: dict[str, Any]) -> str:
    """The section of `MODEL_CARD.md`."""
    lines = [
        "## Compression",
        "",
        _about(facts),
        "",
        f"Teacher: manifest sha256 `{facts['teacher']['manifest_sha256']}`.",
        "",
        "| stage | settings |",
        "|---|---|",
        *(f"| {stage} | {settings} |" for stage, settings in _stage_rows(facts)),
        "",
        "| budget | allowed | measured | |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _budget_rows(facts)),
        "",
        "| point | size | key press p50 | p95 | MRR@10, validation | lost | beyond |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row, _ in _point_rows(facts)),
    ]
    return "\n".join(lines) + "\n"


def write_report(
    path: Path, facts: dict[str, Any], comparison: dict[str, Any], examples: list[dict[str, Any]], *, teacher: str
) -> None:
    """Writes the page.

    Args:
        path: the HTML file.
        facts: see `run.Compression`.
        comparison: likewise.
        examples: likewise.
        teacher: its name.
    """
    from mtn_edge.pages.page import write_page
    from mtn_edge.pages.plots import style

    tasks = comparison["tasks"]
    with style():
        values = {
            "front": _front(facts),
            "bytes": [_parts(facts), _groups(facts)],
            "slices": [_slices(task, found) for task, found in tasks.items()],
        }
    bundle = facts["bundle"]
    write_page(
        path,
        "compression.html",
        values
        | {
            "teacher": teacher,
            "title": f"{teacher}, compressed" if not facts["over"] else f"{teacher}: no bundle within the budgets",
            "about": _about(facts),
            "tiles": [
                (
                    f"{bundle['bytes'] / 1e6:.2f} MB",
                    f"in all; teacher {facts['teacher']['bytes'] / 1e6:.2f} MB",
                ),
                (f"{facts['graphs_smaller']:.1f} times", "smaller graphs"),
                (f"{facts['faster']:.1f} times", "faster key press, p50"),
                (f"{bundle['keystroke_ms']['p95']:.1f} ms", "key press, p95"),
                (f"{bundle['mrr@10']:.3f}", "MRR@10, validation"),
                (f"{-bundle['drop']:+.1%}", "beside the teacher"),
            ],
            "notes": _notes(facts),
            "budgets": _budget_rows(facts),
            "stages": _stage_rows(facts),
            "points": _point_rows(facts),
            "groups": _group_rows(facts),
            "quality": [_quality_row(task, found, facts) for task, found in tasks.items()],
            "examples": examples,
        },
    )


def _about(facts: dict[str, Any]) -> str:
    machine = facts["bundle"]["machine"]
    return (
        f"Recipe {facts['recipe']['name']}, points made whole: {len(facts['points'])}, chosen: {facts['chosen']}. "
        f"Quality is MRR@10 as the bundle shows its suggestions, mean of both tasks, up to {QUERIES:,} queries each. "
        f"Key presses: about {KEY_PRESSES:,} of the validation split, one thread of {machine['cpu']}."
    )


def _notes(facts: dict[str, Any]) -> list[str]:
    found = facts["network_divergence"]
    if found is None:
        return ["The student has other tokens than the teacher, so that their distributions do not compare."]
    distance = (
        f"Before quantization the student's distribution over the next token is {found['kl']:.3f} nats from the "
        f"teacher's, and both find the same token most probable in {found['top1']:.1%} of {found['tokens']:,} places "
        "of the validation split."
    )
    return [distance]


def _budget_rows(facts: dict[str, Any]) -> list[list[str]]:
    bundle = facts["bundle"]
    measured = {
        "size_mb": (bundle["bytes"] / 1e6, "{:.2f} MB"),
        "p95_ms": (bundle["keystroke_ms"]["p95"], "{:.1f} ms"),
        "max_quality_drop": (bundle["drop"], "{:.1%}"),
    }
    rows = []
    for name, (value, form) in measured.items():
        allowed = facts["budgets"][name]
        held = "" if not allowed else "held" if name not in facts["over"] else "BROKEN"
        rows.append([_BUDGETS[name], form.format(allowed) if allowed else "-", form.format(value), held])
    return rows


def _point_rows(facts: dict[str, Any]) -> list[tuple[list[str], bool]]:
    teacher = {"point": "teacher, fp32", "drop": 0.0, "over": {}, **facts["teacher"]}
    return [
        (
            [
                f"{number}  {each['point']}" if number else each["point"],
                f"{each['bytes'] / 1e6:.2f} MB",
                f"{each['keystroke_ms']['p50']:.1f} ms",
                f"{each['keystroke_ms']['p95']:.1f} ms",
                f"{each['mrr@10']:.4f}",
                f"{each['drop']:.1%}",
                ", ".join(_BUDGETS[name] for name in each["over"]) or "-",
            ],
            each["point"] == facts["chosen"],
        )
        for number, each in enumerate((teacher, *facts["points"]))
    ]


def _stage_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["stage"], _settings(each["settings"])) for each in facts["stages"]]


def _settings(settings: dict[str, Any]) -> str:
    shown = []
    for key, value in settings.items():
        if isinstance(value, list | tuple):
            shown += list(value)
        elif value not in (None, 0, 0.0, ""):
            shown.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return ", ".join(shown)


def _group_rows(facts: dict[str, Any]) -> list[list[str]]:
    before, after = facts["teacher"]["groups"], facts["bundle"]["groups"]
    rows = []
    for name in before | after:
        own, precision = after.get(name, 0), facts["bundle"]["precision"].get(name, "-")
        smaller = f"{before.get(name, 0) / own:.1f} x" if own else "-"
        rows.append([name.replace("_", " "), f"{before.get(name, 0):,}", f"{own:,}", precision, smaller])
    total = [sum(each.values()) for each in (before, after)]
    return [*rows, ["all", *(f"{size:,}" for size in total), "", f"{total[0] / total[1]:.1f} x"]]


def _quality_row(task: str, found: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    difference = found[BUNDLE]["against"]["mrr@10"]
    low, high = difference["ci95"]
    scores = [f"{found[name]['mrr@10']:.4f}" for name in (TEACHER, BUNDLE)]
    change = f"{difference['difference']:+.4f} [{low:+.4f}, {high:+.4f}]"
    return [_TASKS[task], *scores, change, f"{facts['same_first'][task]:.1%}"]


def _slices(task: str, found: dict[str, Any]) -> dict[str, Any]:
    from mtn_edge.evaluation.report import SLICE_LABELS
    from mtn_edge.pages import plots

    whole = {name: {"all": found[name]} | found[name]["slices"] for name in (TEACHER, BUNDLE)}
    rows = [part for part, figure in whole[TEACHER].items() if figure["mrr@10"] is not None]
    series = []
    for name, colour in ((TEACHER, plots.GREY), (BUNDLE, plots.COLOURS[0])):
        points = [(whole[name][part]["mrr@10"], *whole[name][part]["ci95"]["mrr@10"]) for part in rows]
        series.append((name, colour, points))
    figure, plot = plots.axes(5.4, 1.0 + 0.36 * len(rows))
    plots.dots(plot, ["all questions", *(SLICE_LABELS[part] for part in rows[1:])], series)
    plot.set_xlim(left=0)
    plot.set_xlabel("MRR@10")
    figure.legend(loc="outside lower center", ncols=2)
    title = f"MRR@10, {_TASKS[task]}"
    return {"title": title, "svg": plots.svg(figure, label=f"{title}: teacher and bundle")}


def _front(facts: dict[str, Any]) -> Any:
    """Every point by its number in the table: size across, quality up, time of a key press as the area of the dot."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    from mtn_edge.pages import plots

    figure, plot = plots.axes(9.6, 4.2)
    shown = [facts["teacher"] | {"point": None}, *facts["points"]]
    slowest = max(each["keystroke_ms"]["p95"] for each in shown)
    for number, each in enumerate(shown):
        colour = plots.GREY if not number else plots.COLOURS[each["point"] != facts["chosen"]]
        place = each["bytes"] / 1e6, each["mrr@10"]
        plot.scatter(*place, s=420 * each["keystroke_ms"]["p95"] / slowest, color=colour, alpha=0.55, linewidths=0)
        plot.annotate(str(number) if number else "teacher", place, ha="center", va="center", fontsize=9)
    budgets, reference = facts["budgets"], facts["teacher"]["mrr@10"]
    if budgets["size_mb"]:
        plot.axvline(budgets["size_mb"], color=plots.COLOURS[4], linestyle="--", linewidth=1)
    if budgets["max_quality_drop"]:
        plot.axhline(reference * (1 - budgets["max_quality_drop"]), color=plots.COLOURS[4], linestyle="--", linewidth=1)
    plot.set_xscale("log")
    plot.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plot.xaxis.set_major_formatter(ScalarFormatter())
    plot.xaxis.set_minor_formatter(NullFormatter())
    plot.margins(x=0.1, y=0.2)
    plot.set_xlabel("MB, all files (dashed: budgets; area: p95 of a key press)")
    plot.set_ylabel("MRR@10, validation")
    return plots.svg(figure, label="Quality against size of every point; the area of a dot is its p95 of a key press")


def _parts(facts: dict[str, Any]) -> dict[str, Any]:
    return _bars("Files", {TEACHER: facts["teacher"]["parts"], BUNDLE: facts["bundle"]["parts"]})


def _groups(facts: dict[str, Any]) -> dict[str, Any]:
    return _bars("Tensors of the graphs", {TEACHER: facts["teacher"]["groups"], BUNDLE: facts["bundle"]["groups"]})


def _bars(title: str, sizes: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Stacked bars, the largest parts first."""
    from mtn_edge.pages import plots

    largest = {part: max(each.get(part, 0) for each in sizes.values()) for each in sizes.values() for part in each}
    order = sorted(largest, key=lambda part: -largest[part])
    figure, plot = plots.axes(5.4, 2.6)
    left = np.zeros(len(sizes))
    for part, colour in zip(order, (*plots.COLOURS, *(plots.GREY for _ in order)), strict=False):
        width = np.array([each.get(part, 0) for each in sizes.values()]) / 1e6
        plot.barh(list(sizes), width, left=left, height=0.55, color=colour, label=part.replace("_", " "))
        left += width
    plot.invert_yaxis()
    plot.grid(visible=False, axis="y")
    plot.set_xlabel("MB")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return {"title": title, "svg": plots.svg(figure, label=f"{title} of teacher and bundle, bytes")}
