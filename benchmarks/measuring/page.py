"""The page beside the figures: for each preset its times as tables and plots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mtn_edge.pages import plots
from mtn_edge.pages.page import write_page

SHARES = ("p50", "p95", "p99")
SESSION_LENGTH = re.compile(r", \d+ earlier$")
"""How a goal of one session length ends."""
Row = dict[str, Any]


def write_report(path: Path, document: dict[str, Any]) -> None:
    """Writes the HTML file `path` from the document of the benchmark."""
    machine, protocol, presets = document["machine"], document["protocol"], document["presets"]
    sections, pictures = [], []
    with plots.style():
        for name, preset in presets.items():
            rows = [row for row in document["rows"] if row["preset"] == name]
            sections.append({"name": name, "tiles": _tiles(name, document), "times": _times(rows)})
            pictures += [_by_length(name, rows), _spread_of_times(name, rows), _threads(name, preset["threads"])]
    about = (
        f"A key press on one thread, {protocol['suggestions']} suggestions, beam {protocol['beam']},"
        f" {protocol['sessions']} held-out sessions whose earlier queries are repeated to reach each length;"
        " all systems take turns. mtn-edge is the product with its confidence floor; with no floor it looks for eight"
        " texts however improbable. The larger limit is the longer of two times: the decoder's bytes read once a step"
        " at the rate measured here, and its multiplications at the int8 rate measured here. A ratio of 0.50 to"
        " CTranslate2 is half its time."
        f" {machine['cpu']}, {machine['cores']} cores, onnxruntime {document['versions']['onnxruntime']},"
        f" CTranslate2 {document['versions']['ctranslate2']}."
    )
    write_page(path, "profile.html", {"about": about, "bundles": sections, "plots": pictures})


def _tiles(name: str, document: dict[str, Any]) -> list[tuple[str, str]]:
    """The goals of the preset, all session lengths of one kind together: values, bound, how many are kept."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in document["goals"]:
        preset, _, words = each["name"].partition(": ")
        if preset == name:
            kinds.setdefault(SESSION_LENGTH.sub("", words), []).append(each)
    return [_tile(kind, goals) for kind, goals in kinds.items()]


def _tile(kind: str, goals: list[dict[str, Any]]) -> tuple[str, str]:
    values = sorted(each["value"] for each in goals)
    kept = sum(each["ok"] for each in goals)
    if len(goals) > 1:
        return (
            f"{values[0]:.2f} to {values[-1]:.2f}",
            f"{kind}: bound {goals[0]['bound']:g}, {kept} of {len(goals)} kept",
        )
    return f"{values[0]:.2f}", f"{kind}: bound {goals[0]['bound']:g}, {'kept' if kept else 'missed'}"


def _times(rows: list[Row]) -> list[list[str]]:
    table = []
    for row in sorted(rows, key=lambda row: row["earlier_queries"]):
        label = f"{row['system']}, {row['earlier_queries']} earlier"
        if row["steps"] is not None:
            label += f" ({row['steps']:.1f} steps)"
        times = row["keystroke_ms"]
        table.append([label, *(f"{times[share]:.2f} ms" for share in SHARES), f"{times['count']:,}"])
    return table


def _by_length(name: str, rows: list[Row]) -> dict[str, Any]:
    """p50 over session length, with the larger limit of ours."""
    figure, plot = plots.axes(5.4, 3.4)
    lengths = sorted({row["earlier_queries"] for row in rows})
    for number, system in enumerate(_systems(rows)):
        points = _of(rows, system)
        values = [row["keystroke_ms"]["p50"] for row in points]
        plot.plot(range(len(values)), values, "o-", color=plots.COLOURS[number % len(plots.COLOURS)], label=system)
    ours = _of(rows, "mtn-edge")
    limits = [max(row["memory_limit_ms"], row["arithmetic_limit_ms"]) for row in ours]
    plot.plot(range(len(limits)), limits, "--", color=plots.GREY, label="the larger limit")
    plot.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    plot.set_ylim(bottom=0)
    plot.set_xlabel("earlier queries")
    plot.set_ylabel("milliseconds, p50")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    title = f"{name}: a key press by session length"
    return {"title": title, "svg": plots.svg(figure, label=title)}


def _spread_of_times(name: str, rows: list[Row]) -> dict[str, Any]:
    """p50 to p99 of each system at each length."""
    lengths = sorted({row["earlier_queries"] for row in rows})
    systems = _systems(rows)
    figure, plot = plots.axes(5.4, 1.4 + 0.55 * len(systems))
    series = []
    for number, length in enumerate(lengths):
        points = []
        for system in systems:
            (times,) = (row["keystroke_ms"] for row in _of(rows, system) if row["earlier_queries"] == length)
            points.append((times["p50"], times["p50"], times["p99"]))
        series.append((f"{length} earlier", plots.COLOURS[number % len(plots.COLOURS)], points))
    plots.dots(plot, systems, series)
    plot.set_xlim(left=0)
    plot.set_xlabel("milliseconds: point p50, line to p99")
    figure.legend(loc="outside lower center", ncols=len(lengths), fontsize=8.5)
    title = f"{name}: from p50 to p99"
    return {"title": title, "svg": plots.svg(figure, label=title)}


def _threads(name: str, rates: dict[str, dict[str, float]]) -> dict[str, Any]:
    figure, plot = plots.axes(5.4, 2.6)
    plot.bar(list(rates), [each["per_s"] for each in rates.values()], width=0.6, color=plots.COLOURS[0])
    plot.grid(visible=False, axis="x")
    plot.set_xlabel("threads on one open bundle")
    plot.set_ylabel("key presses a second")
    title = f"{name}: threads"
    return {"title": title, "svg": plots.svg(figure, label=title)}


def _systems(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["system"] for row in rows))


def _of(rows: list[Row], system: str) -> list[Row]:
    return sorted((row for row in rows if row["system"] == system), key=lambda row: row["earlier_queries"])
