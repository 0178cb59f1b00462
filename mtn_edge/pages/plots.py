"""The plots' common look, and their way into a page."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2457d6", "#e07b39", "#1b9e77", "#8e44ad", "#c0392b", "#0e8fa8", "#7f6000", "#d0569b")
GREY = "#8a93a3"
"""For baselines and for what stands in the background."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mtn-edge",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": "#1f2430",
    "axes.edgecolor": "#c5cad3",
    "axes.labelcolor": "#667085",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#eceef2",
    "xtick.color": "#667085",
    "ytick.color": "#667085",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}
_numbers = itertools.count()


class Svg(str):
    """SVG text that a template puts into the page as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@contextmanager
def style() -> Iterator[None]:
    """The common look, for everything that is drawn inside."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def axes(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty plot of `width` x `height` inches, without any window system."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def svg(figure: Figure, *, label: str) -> Svg:
    """`figure` as an SVG element for a page.

    Args:
        figure: what was drawn inside `style`.
        label: what the picture shows, for those who cannot see it.
    """
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = target.getvalue()
    text = text[text.index("<svg") :]
    # Several pictures share the page's one space of ids.
    own = f"plot{next(_numbers)}-"
    text = re.sub(r'\bid="', f'id="{own}', text)
    text = re.sub(r'href="#', f'href="#{own}', text)
    text = text.replace("url(#", f"url(#{own}")
    quoted = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return Svg(text.replace("<svg", f'<svg role="img" aria-label="{quoted}"', 1))


def dots(
    plot: Axes,
    rows: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[tuple[float, float, float] | None]]],
) -> None:
    """Points with intervals, rows from top to bottom, the series of a row beside each other.

    Args:
        plot: where to draw.
        rows: label of each row.
        series: name, colour and for each row (value, low, high), or None where there is nothing.
    """
    room = 0.62
    for number, (name, colour, points) in enumerate(series):
        offset = room * ((number + 0.5) / len(series) - 0.5) if len(series) > 1 else 0.0
        drawn = [(row + offset, *point) for row, point in enumerate(points) if point is not None]
        if not drawn:
            continue
        places, values, lows, highs = (list(column) for column in zip(*drawn, strict=True))
        plot.hlines(places, lows, highs, colors=colour, linewidth=2.2, alpha=0.45)
        plot.plot(values, places, "o", color=colour, markersize=6, label=name)
    plot.set_yticks(range(len(rows)), rows)
    plot.set_ylim(len(rows) - 0.4, -0.6)
    plot.grid(visible=False, axis="y")
    plot.tick_params(axis="y", length=0)
