"""One step of each recurrent decoder as graph nodes (see `export.recurrent_decoder.Cell`).

Shapes: r rows, m tokens of the memory, T token positions, d width, U units.
"""

from __future__ import annotations

import numpy as np

from export.graph_builder import CONTRIB, FLOAT, GraphBuilder
from export.graph_layers import Layers, zeros
from export.recurrent_decoder import Cell
from export.session_memory import SessionMemory
from mtn_edge.config import ModelConfig


def recurrent_cell(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """The cell of a recurrent network's decoder; the memory becomes inputs of `graph`."""
    match config.arch:
        case "seq2seq":
            return _attending_gru(graph, config)
        case "hred":
            return _session_gru(graph, config)
        case "tail-lstm":
            return _tail_lstm(graph, config)
    raise ValueError(f"`{config.arch}` has no recurrent decoder")


def ssru_cell(graph: GraphBuilder, config: ModelConfig, memory: SessionMemory, positions: str) -> Cell:
    """A Transformer decoder with simple recurrent units: one vector [r, d] for each layer.

    Args:
        graph: the graph around the loop.
        config: the model.
        memory: of the session.
        positions: [T, d], added to the tokens at each place.
    """
    which = [run % config.decoder_weights for run in range(config.decoder_layers)]
    names = [f"decoder_layers.{number}" for number in which]
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]

    def step(layers: Layers, embedded: str, place: str, cells: list[str]) -> tuple[str, list[str]]:
        inner = layers.graph
        places = inner.node("Expand", place, inner.node("Shape", embedded, start=0, end=1))
        position = inner.node("Gather", positions, places)  # [r, d]
        rows = inner.node("Unsqueeze", embedded, inner.integers(0))
        stream = layers.begin(rows, position, f"{names[0]}.attention_norm")  # [1, r, d]
        bias = memory.bias(inner, embedded)
        kept = []
        for number, name, following, past in zip(which, names, followings, cells, strict=True):
            mixed, cell = layers.ssru(stream.normed, f"{name}.attention", past)
            kept.append(cell)
            stream = layers.decoder_rest(mixed, stream, name, following, memory.layers[number], bias)
        return inner.node("Reshape", stream.normed, inner.integers(-1, config.d_model)), kept

    start = (config.d_model, zeros(graph, 1, config.d_model))
    return Cell({f"cell_{run}": start for run in range(config.decoder_layers)}, step)


def _attending_gru(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """The GRU that attends to the session's tokens (`models.seq2seq`)."""
    units = config.units
    memory = graph.node("Unsqueeze", graph.input("memory_keys", FLOAT, ["m", units]), graph.integers(0, 1))
    start = _row(graph, "memory_hidden", units)

    def step(layers: Layers, embedded: str, place: str, kept: list[str]) -> tuple[str, list[str]]:  # noqa: ARG001
        inner = layers.graph
        hidden = layers.gru(embedded, kept[0], "decoder")
        query = inner.node("Unsqueeze", layers.product(hidden, "attention"), inner.integers(0))
        context = inner.node("MultiHeadAttention", query, memory, memory, domain=CONTRIB, num_heads=1, scale=1.0)
        context = inner.node("Squeeze", context, inner.integers(0))  # [r, U]
        joined = inner.node("Concat", context, hidden, axis=1)
        state = layers.product(inner.node("Tanh", layers.product(joined, "combine")), "output")
        return _for_table(inner, state, config), [hidden]

    return Cell({"hidden": (units, start)}, step)


def _session_gru(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """The GRU that starts from the session's state and sees it in every output (`models.hred`)."""
    start = _row(graph, "memory_hidden", config.units)
    context = _row(graph, "memory_context", config.d_model)

    def step(layers: Layers, embedded: str, place: str, kept: list[str]) -> tuple[str, list[str]]:  # noqa: ARG001
        inner = layers.graph
        hidden = layers.gru(embedded, kept[0], "decoder")
        state = inner.node("Add", layers.product(hidden, "output"), layers.product(embedded, "output_embedding"))
        return _for_table(inner, inner.node("Add", state, context), config), [hidden]

    return Cell({"hidden": (config.units, start)}, step)


def _tail_lstm(graph: GraphBuilder, config: ModelConfig) -> Cell:
    """The LSTM that reads the previous query's encoding at every step (`models.tail_lstm`)."""
    context = _row(graph, "memory_context", config.d_model)
    nothing = (config.units, zeros(graph, 1, config.units))

    def step(layers: Layers, embedded: str, place: str, kept: list[str]) -> tuple[str, list[str]]:  # noqa: ARG001
        inner = layers.graph
        beside = inner.node("Expand", context, inner.node("Shape", embedded))
        hidden, cell = layers.lstm(inner.node("Concat", embedded, beside, axis=1), kept[0], kept[1], "lstm")
        return hidden, [hidden, cell]

    return Cell({"hidden": nothing, "cell": nothing}, step)


def _row(graph: GraphBuilder, name: str, width: int) -> str:
    """The input `name` [width] as [1, width]."""
    return graph.node("Unsqueeze", graph.input(name, FLOAT, [width]), graph.integers(0))


def _for_table(graph: GraphBuilder, state: str, config: ModelConfig) -> str:
    """States [r, d] for an output table that is stored √d times too large."""
    return graph.node("Mul", state, graph.constant(np.array(config.d_model**-0.5, dtype=np.float32)))
