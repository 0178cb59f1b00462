"""The page beside the figures: tables and plots of every corpus and task, learning curves, sizes, sessions, ceiling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from comparing.corpora import FUSIONS, LISTS, NETWORKS, WORN
from comparing.figures import PRODUCT
from mtn_edge.evaluation.report import sections_of
from mtn_edge.evaluation.report import write_report as write_evaluation
from mtn_edge.evaluation.systems import CEILING
from mtn_edge.pages import plots

Plot = dict[str, Any]


def write_report(path: Path, document: dict[str, Any]) -> None:
    """Writes the HTML file `path` from the document of the benchmark."""
    sections = []
    front = document["front"]
    for name, corpus in document["corpora"].items():
        found = sections_of(corpus["tasks"], prefix=f"{corpus['title']}. ")
        with plots.style():
            for section in found:
                more = [_by_position(section.task, section.systems), _by_bytes(section.task, section.systems)]
                if section.task == "suggest":
                    more.append(_curves(corpus["systems"]))
                if front and name == front[0]["corpus"]:
                    more.append(_front(section.task, front))
                if any(name in WORN for name in section.systems):
                    more.append(_fusion(section.task, section.systems))
                if CEILING in section.systems:
                    more.append(_share(section.task, section.systems))
                sections.append(replace(section, plots=tuple(more)))
    machine = document["machine"]
    corpora = "; ".join(f"{corpus['title']}: {corpus['about']}" for corpus in document["corpora"].values())
    about = (
        f"{corpora}. Networks have equal numbers of parameters and are measured alone, or with what stands after the"
        " plus: an n-gram, copying from the session, all of that, or the lists of a bundle (as int8, tuned on the"
        " validation split). Figures are over all seeds. N-grams may take as many bytes as the MTN has parameters,"
        f" which is its size as int8. {machine['cpu']}, {machine['cores']} cores."
    )
    write_evaluation(path, sections, about=about, notes=[])


def _by_position(task: str, systems: dict[str, dict[str, Any]]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    shown = {name: summary for name, summary in systems.items() if name not in WORN or name == PRODUCT}
    for number, (name, summary) in enumerate(shown.items()):
        points = summary["by_position"]
        style = {"color": plots.COLOURS[number % len(plots.COLOURS)], "linestyle": "-" if name in NETWORKS else "--"}
        plot.plot([int(place) for place in points], list(points.values()), "o", markersize=4, label=name, **style)
    plot.set_xlabel("earlier queries of the session (the last point: so many or more)")
    plot.set_ylabel("MRR@10")
    plot.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return {"title": "MRR@10 by session", "svg": plots.svg(figure, label=f"{task}: MRR@10 by earlier queries")}


def _by_bytes(task: str, systems: dict[str, dict[str, Any]]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    for number, (name, summary) in enumerate(systems.items()):
        if summary["bytes"]:
            place = summary["bytes"] / 1e6, summary["mrr@10"]
            plot.plot(*place, "o", color=plots.COLOURS[number % len(plots.COLOURS)])
            plot.annotate(name, place, textcoords="offset points", xytext=(5, 4), fontsize=8)
    plot.set_xscale("log")
    plot.set_xlabel("megabytes (networks as int8)")
    plot.set_ylabel("MRR@10")
    plot.set_ylim(bottom=0)
    return {"title": "Quality and size", "svg": plots.svg(figure, label=f"{task}: MRR@10 by size")}


def _fusion(task: str, systems: dict[str, dict[str, Any]]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    settings = ("alone", *FUSIONS, LISTS)
    for number, arch in enumerate(dict.fromkeys(name.partition("+")[0] for name in WORN)):
        names = [arch if what == "alone" else f"{arch}+{what}" for what in settings]
        places = [place + 0.4 * number for place, name in enumerate(names) if name in systems]
        bars = [systems[name]["mrr@10"] for name in names if name in systems]
        plot.bar(places, bars, width=0.38, color=plots.COLOURS[number], label=arch)
    plot.set_xticks([place + 0.2 for place in range(len(settings))], settings)
    plot.set_ylabel("MRR@10")
    plot.grid(visible=False, axis="x")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return {"title": "What is mixed in", "svg": plots.svg(figure, label=f"{task}: MRR@10 by what is mixed in")}


def _curves(systems: dict[str, list[dict[str, Any]]]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    for number, name in enumerate(name for name in NETWORKS if name in systems):
        for seed, about in enumerate(systems[name]):
            steps = [row["step"] for row in about["curve"]]
            losses = [row["valid_loss"] for row in about["curve"]]
            plot.plot(steps, losses, color=plots.COLOURS[number], alpha=0.8, label=None if seed else name)
    plot.set_xlabel("steps")
    plot.set_ylabel("validation, nats a token")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    return {"title": "Learning curves", "svg": plots.svg(figure, label="validation loss by step, all seeds")}


def _front(task: str, front: list[dict[str, Any]]) -> Plot:
    figure, plot = plots.axes(5.4, 3.4)
    for number, row in enumerate(front):
        name = row["system"] if number == 0 or row["system"] != front[0]["system"] else row["corpus"]
        plot.plot(row["keystroke"], row[task], "o", color=plots.COLOURS[number % len(plots.COLOURS)])
        plot.annotate(name, (row["keystroke"], row[task]), textcoords="offset points", xytext=(5, 4), fontsize=8)
    plot.set_xlabel("time of a key press, that of the default being 1")
    plot.set_ylabel("MRR@10, first seed")
    return {"title": "Choices of the MTN", "svg": plots.svg(figure, label=f"{task}: quality and time of variants")}


def _share(task: str, systems: dict[str, dict[str, Any]]) -> Plot:
    names = [name for name in systems if name != CEILING]
    figure, plot = plots.axes(5.4, 1.0 + 0.3 * len(names))
    top = systems[CEILING]["mrr@10"]
    shares = [100 * systems[name]["mrr@10"] / top for name in names]
    plot.barh(names[::-1], shares[::-1], color=plots.COLOURS[0], height=0.6)
    plot.axvline(95, color=plots.GREY, linestyle="--")
    plot.set_xlabel("percent of the highest possible MRR@10")
    plot.grid(visible=False, axis="y")
    return {"title": "Share of the ceiling", "svg": plots.svg(figure, label=f"{task}: share of the ceiling")}
