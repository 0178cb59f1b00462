"""The figures of `profile` for people: a table of words, and a page with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.protocol import LOADS, PREFIX_GROUPS, SESSION_GROUPS, Profile

Profiles = dict[str, Profile]
"""Name of each bundle to what was measured of it."""

_TIMES = {
    "encode_ms": "append a query",
    "suggest_ms": "suggest, nothing typed",
    "keystroke_ms": "suggest, a key pressed",
}


def words(profiles: Profiles) -> str:
    """The figures as tables of plain text, bundles beside each other."""
    figures = [profile.figures for profile in profiles.values()]
    table = [
        ["", *profiles],
        ["size", *(_megabytes(x["bytes"]) for x in figures)],
        ["load, hashes checked", *(f"{x['load_ms']:.0f} ms" for x in figures)],
        ["memory growth", *(f"{x['rss_mb']:.0f} MB" for x in figures)],
        ["  of it by opening", *(f"{x['open_rss_mb']:.0f} MB" for x in figures)],
    ]
    for key, label in _TIMES.items():
        table.append([f"{label}: p50 / p95 / p99", *(_times(x[key]) for x in figures)])
    for label, key, groups in _GROUPINGS:
        for group in groups:
            cells = [x["keystroke_ms"][key].get(group) for x in figures]
            if any(cells):
                table.append([f"  a key, {label}: {group}", *(_times(cell) if cell else "-" for cell in cells)])
    return aligned(table)


def about(profiles: Profiles, source: str) -> str:
    """What was measured on what, in sentences."""
    first = next(iter(profiles.values())).figures
    counts = {profile.figures["keystroke_ms"]["count"] for profile in profiles.values()}
    presses = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    return (
        f"{presses} key presses of {source}, {first['suggestions']} suggestions each, {first['threads']}"
        f" thread{'s' if first['threads'] > 1 else ''}, after a warm-up of {first['warm_up']} requests; loading is the"
        f" median of {LOADS} fresh processes, files cached, library imports ({first['import_ms']:.0f} ms) apart;"
        f" memory growth is that of opening and of all requests. {first['machine']['cpu']},"
        f" {first['machine']['cores']} cores, onnxruntime {first['versions']['onnxruntime']}."
    )


def write_report(path: Path, profiles: Profiles, *, about: str) -> None:
    """Writes the page.

    Args:
        path: the HTML file.
        profiles: what was measured.
        about: what was measured on what.
    """
    from mtn_edge.pages.page import write_page
    from mtn_edge.pages.plots import style

    with style():
        pictures = [_distribution(profiles), _bytes(profiles)]
        pictures += [_by_group(profiles, label, key, list(groups)) for label, key, groups in _GROUPINGS]
    write_page(
        path,
        "profile.html",
        {
            "about": about,
            "bundles": [
                {
                    "name": name,
                    "tiles": [
                        (_megabytes(profile.figures["bytes"]), "on disk"),
                        (f"{profile.figures['load_ms']:.0f} ms", "to load"),
                        (f"{profile.figures['rss_mb']:.0f} MB", "memory growth"),
                        (_milliseconds(profile.figures["encode_ms"]["p50"]), "append a query, p50"),
                        (_milliseconds(profile.figures["keystroke_ms"]["p50"]), "a key press, p50"),
                        (_milliseconds(profile.figures["keystroke_ms"]["p99"]), "a key press, p99"),
                    ],
                    "times": [
                        [
                            label,
                            *(_milliseconds(profile.figures[key][share]) for share in ("p50", "p95", "p99")),
                            f"{profile.figures[key]['count']:,}",
                        ]
                        for key, label in _TIMES.items()
                    ],
                }
                for name, profile in profiles.items()
            ],
            "plots": pictures,
        },
    )


_GROUPINGS: tuple[tuple[str, str, dict[str, tuple[int, int]]], ...] = (
    ("characters typed", "by_prefix_length", PREFIX_GROUPS),
    ("earlier queries", "by_session_length", SESSION_GROUPS),
)


def _distribution(profiles: Profiles) -> dict[str, Any]:
    from mtn_edge.pages import plots

    figure, plot = plots.axes(5.4, 3.0)
    everything = np.concatenate([np.array(profile.keystroke_ms) for profile in profiles.values()])
    # The slowest key presses are in the table; a plot that shows them all shows nothing else.
    edges = np.linspace(0, float(np.percentile(everything, 99.5)) * 1.05, 50).tolist()
    for number, (name, profile) in enumerate(profiles.items()):
        colour = plots.COLOURS[number % len(plots.COLOURS)]
        plot.hist(profile.keystroke_ms, bins=edges, histtype="stepfilled", color=colour, alpha=0.35, label=name)
        for share, line in (("p50", "-"), ("p95", "--")):
            plot.axvline(profile.figures["keystroke_ms"][share], color=colour, linestyle=line, linewidth=1.4)
    plot.set_xlim(left=0)
    plot.set_xlabel("milliseconds (full line p50, dashed p95)")
    plot.set_ylabel("key presses")
    plot.legend()
    return {"title": "A key press", "svg": plots.svg(figure, label="Distribution of key-press times")}


def _by_group(profiles: Profiles, label: str, key: str, groups: list[str]) -> dict[str, Any]:
    from mtn_edge.pages import plots

    present = [group for group in groups if any(group in x.figures["keystroke_ms"][key] for x in profiles.values())]
    figure, plot = plots.axes(5.4, 1.0 + 0.45 * len(present))
    series = []
    for number, (name, profile) in enumerate(profiles.items()):
        found = [profile.figures["keystroke_ms"][key].get(group) for group in present]
        points = [(x["p50"], x["p50"], x["p95"]) if x else None for x in found]
        series.append((name, plots.COLOURS[number % len(plots.COLOURS)], points))
    plots.dots(plot, present, series)
    plot.set_xlim(left=0)
    plot.set_xlabel("milliseconds: point p50, line to p95")
    plot.set_ylabel(label)
    return {"title": f"A key press by {label}", "svg": plots.svg(figure, label=f"Key-press times by {label}")}


def _bytes(profiles: Profiles) -> dict[str, Any]:
    from mtn_edge.pages import plots

    sizes = [profile.figures["files"] for profile in profiles.values()]
    largest = {name: max(files.get(name, 0) for files in sizes) for name in {name for files in sizes for name in files}}
    order = sorted(largest, key=lambda name: (-largest[name], name))
    shown, rest = order[:4], order[4:]
    parts = [(name, [files.get(name, 0) for files in sizes]) for name in shown]
    parts.append((f"{len(rest)} others", [sum(files.get(name, 0) for name in rest) for files in sizes]))
    figure, plot = plots.axes(5.4, 1.9 + 0.5 * len(profiles))
    left = np.zeros(len(profiles))
    for colour, (name, counts) in zip((*plots.COLOURS[:4], plots.GREY), parts, strict=False):
        width = np.array(counts) / 1e6
        plot.barh(list(profiles), width, left=left, height=0.55, color=colour, label=name)
        left += width
    plot.invert_yaxis()
    plot.grid(visible=False, axis="y")
    plot.set_xlabel("MB")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
    return {"title": "Bytes by file", "svg": plots.svg(figure, label="Size of each bundle by file")}


def _times(figure: dict[str, Any]) -> str:
    if not figure["count"]:
        return "-"
    return " / ".join(f"{figure[share]:.2f}" for share in ("p50", "p95", "p99")) + " ms"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"
