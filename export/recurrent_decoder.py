"""Decoders that keep a few vectors of the tokens before, inside the search's loop: one row a hypothesis.

A cell turns the newest token of each row and the vectors that the row keeps into a state to be scored and the vectors
to keep. The settled tokens go through it one by one in a loop of their own before the search begins.

Shapes: r rows of a pass, n' rows of the next, f start tokens, m tokens of the memory, d width, U units, h heads,
e = d/h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from export.graph_builder import FLOAT, Carry, GraphBuilder
from export.graph_layers import Layers
from export.tree_decoder import Decoded


@dataclass(frozen=True)
class Cell:
    """One step of a recurrent decoder.

    Attributes:
        initial: name and width of each vector that a row keeps, and its value [1, width] before the first token.
        step: adds the nodes of one step: from the layers, embedded tokens [r, d], their position (int64 [1]) and the
            vectors [r, width] to states [r, d] to be scored and the new vectors.
    """

    initial: dict[str, tuple[int, str]]
    step: Callable[[Layers, str, str, list[str]], tuple[str, list[str]]]


class RecurrentDecoder:
    """A cell as a decoder; see `Decoder` in `export.suggest_graph`.

    Args:
        layers: of the graph around the loop.
        cell: the step.
        embedded: [f, d] of the start tokens.
        count: int64 [1]: f.
        max_steps: int64 []: of the search; with 0 nothing but embeddings is asked for.
    """

    def __init__(self, layers: Layers, cell: Cell, *, embedded: str, count: str, max_steps: str) -> None:
        self._layers, self._graph, self._cell = layers, layers.graph, cell
        self._tip = self._graph.node("Sub", count, self._graph.integers(1))
        self._settled = self._settle(embedded, max_steps)

    def _settle(self, embedded: str, max_steps: str) -> list[str]:
        """The vectors [1, width] after all start tokens but the last."""
        graph = self._graph
        body = GraphBuilder("settle", parent=graph)
        carries = [Carry(name, FLOAT, [1, width], start) for name, (width, start) in self._cell.initial.items()]
        place = body.node("Unsqueeze", "position", body.integers(0))
        row = body.node("Gather", embedded, place)  # [1, d]
        _, kept = self._cell.step(self._layers.inside(body), row, place, list(self._cell.initial))
        wanted = graph.node("Min", max_steps, graph.integer(1))
        trips = graph.node("Mul", graph.node("Squeeze", self._tip), wanted)
        return graph.loop(body, carries, kept, trips=trips, go_on=body.node("Identity", "went_on"))

    def first_rows(self, embedded: str) -> str:
        """What the first pass decodes: the last start token."""
        return self._graph.node("Gather", embedded, self._tip)

    def carries(self) -> list[Carry]:
        """What passes hand on: the vectors of each row."""
        return [
            Carry(name, FLOAT, ["r", width], settled)
            for (name, (width, _)), settled in zip(self._cell.initial.items(), self._settled, strict=True)
        ]

    def decode(self, layers: Layers) -> Decoded:
        """The cell on the newest token of each row."""
        place = layers.graph.node("Add", self._tip, "position")
        return Decoded(*self._cell.step(layers, "embedded", place, list(self._cell.initial)))

    def carry_on(self, layers: Layers, kept: list[str], *, row: str, count: str) -> list[str]:  # noqa: ARG002
        """The next values of `carries`, for children of `row` int64 [n']."""
        return [layers.graph.node("Gather", vectors, row) for vectors in kept]
