"""A Transformer decoder inside the search's loop: all hypotheses in one tree.

Each pass decodes the nodes that were added last. Keys and values of every node are kept once, in the order of their
birth, and a bound on attention shows each node its ancestors alone: nothing is ever reordered, and all products are
over one sequence. The first pass decodes the whole chain of settled tokens. To each node its two nearest ancestors add
what a convolution makes of them.

Shapes: r nodes decoded in a pass, n' nodes of the next, N nodes decoded before, m tokens of the memory, f start tokens,
T token positions, d width, h heads of a layer, e width of a head, B hypotheses.
"""

from __future__ import annotations

from typing import NamedTuple

from export.graph_builder import FLOAT, INT64, Carry, GraphBuilder
from export.graph_layers import Layers, filled, numbers, zeros
from export.session_memory import SessionMemory
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, stacks
from mtn_edge.runtime.engine import IMPOSSIBLE


class Decoded(NamedTuple):
    """What a pass computed."""

    states: str
    """[r, d], to be scored."""
    kept: list[str]
    """What the decoder keeps of these rows, in its own form."""


class TreeDecoder:
    """The decoder of an MTN or a flat Transformer; see `Decoder` in `export.suggest_graph`.

    Args:
        graph: the graph around the loop.
        config: the model.
        memory: of the session.
        positions: [T, d], added to the tokens at each place.
        embedded: the start tokens [f, d].
        count: int64 [1]: f.
        beam: int64 [1]: B.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        config: ModelConfig,
        memory: SessionMemory,
        *,
        positions: str,
        embedded: str,
        count: str,
        beam: str,
    ) -> None:
        self._graph, self._config, self._memory = graph, config, memory
        self._positions, self._chain, self._count = positions, embedded, count
        # What the nodes of one pass may not attend to among themselves [B, B]: all but themselves.
        nothing = filled(graph, IMPOSSIBLE, beam, beam)
        above = graph.node("Trilu", nothing, graph.integer(1), upper=1)
        self._others = graph.node("Add", above, graph.node("Trilu", nothing, graph.integer(-1), upper=0))

    def first_rows(self, embedded: str) -> str:
        """What the first pass decodes: the whole chain."""
        return embedded

    def carries(self) -> list[Carry]:
        """What passes hand on: places of the rows, what is hidden from each, keys and values of all nodes so far."""
        graph, config = self._graph, self._config
        sizes, e = stacks(config)["decoder"], head_width(config)
        # In the chain each token sees itself and those before it.
        causal = graph.node("Trilu", filled(graph, IMPOSSIBLE, self._count, self._count), graph.integer(1), upper=1)
        carries = [
            Carry("places", INT64, ["r"], numbers(graph, self._count)),
            Carry("before", FLOAT, ["r", 2 * config.d_model], self._before_chain()),
            Carry("hidden", FLOAT, ["r", "N + r"], causal),
        ]
        for number in range(config.decoder_layers):
            h = sizes[number % len(sizes)].heads
            empty = zeros(graph, 1, h, 0, e)
            carries += [Carry(f"{part}_{number}", FLOAT, [1, h, "N", e], empty) for part in ("keys", "values")]
        return carries

    def _before_chain(self) -> str:
        """Embeddings of the two tokens before each start token [f, 2 d]."""
        graph = self._graph
        padded = graph.node("Concat", zeros(graph, 2, self._config.d_model), self._chain, axis=0)
        end = graph.node("Add", self._count, graph.integers(1))
        parts = [
            graph.node("Slice", padded, graph.integers(1), end),
            graph.node("Slice", padded, graph.integers(0), self._count),
        ]
        return graph.node("Concat", *parts, axis=1)

    def decode(self, layers: Layers) -> Decoded:
        """The decoder on the newest nodes; `kept` are keys and values of all nodes for each layer."""
        graph, config = layers.graph, self._config
        which = [run % config.decoder_weights for run in range(config.decoder_layers)]
        names = [f"decoder_layers.{number}" for number in which]
        hidden = graph.node("Unsqueeze", "hidden", graph.integers(0, 1))
        embedded = graph.node("Unsqueeze", "embedded", graph.integers(0))
        positions = graph.node("Gather", self._positions, "places")
        positions = graph.node("Add", positions, layers.product("before", "decoder_convolution"))
        stream = layers.begin(embedded, positions, f"{names[0]}.attention_norm")  # [1, r, d]
        bias = self._memory.bias(graph, "embedded")
        kept: list[str] = []
        followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]
        for run, (number, name, following) in enumerate(zip(which, names, followings, strict=True)):
            past = (f"keys_{run}", f"values_{run}")
            attended, keys, values = layers.self_attention(stream.normed, f"{name}.attention", past, hidden)
            kept += [keys, values]
            stream = layers.decoder_rest(attended, stream, name, following, self._memory.layers[number], bias)
        return Decoded(graph.node("Reshape", stream.normed, graph.integers(-1, config.d_model)), kept)

    def carry_on(self, layers: Layers, kept: list[str], *, row: str, count: str) -> list[str]:
        """The next values of `carries`, for children of `row` int64 [n'], which are `count` [1] many."""
        graph = layers.graph
        places = graph.node("Expand", graph.node("Add", "position", self._count), count)
        nearest = graph.node(
            "Slice", "before", graph.integers(0), graph.integers(self._config.d_model), graph.integers(1)
        )
        before = graph.node("Gather", graph.node("Concat", "embedded", nearest, axis=1), row)
        square = graph.node("Concat", count, count, axis=0)
        # New nodes see what their parents saw, and themselves.
        own = graph.node("Slice", self._others, graph.integers(0, 0), square)
        hidden = graph.node("Concat", graph.node("Gather", "hidden", row), own, axis=1)
        return [places, before, hidden, *kept]
