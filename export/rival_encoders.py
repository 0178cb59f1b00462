"""`encode.onnx` of the rivals: what one more query does to a session.

Shapes: t tokens, m tokens of the memory, n tokens that are encoded anew, d width, U units, h heads, e width of a head,
Ld decoder layers, p passes done.
"""

from __future__ import annotations

import numpy as np

from export.graph_builder import FLOAT, Carry, GraphBuilder, Shape
from export.graph_layers import Layers, zeros
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width, memory_heads
from mtn_edge.tokenizer import EOS
from quantize.int4 import Int4Weight
from quantize.int8 import Int8Weight
from quantize.plan import Weights


def encode_transformer(layers: Layers, config: ModelConfig, weights: Weights) -> None:
    """The flat Transformer reads its session anew, the last `max_session_tokens` of it."""
    graph, longest, d = layers.graph, config.max_session_tokens, config.d_model
    before = graph.input("session_embedded", FLOAT, ["m", d])
    joined = graph.node("Concat", before, _with_separator(graph, weights, d), axis=0)
    end = graph.integers(np.iinfo(np.int64).max)
    embedded = graph.node("Slice", joined, graph.integers(-longest), end, graph.integers(0))  # [n, d]
    count = graph.node("Shape", embedded, start=0, end=1)
    # The newest token has the last position.
    first = graph.node("Sub", graph.integers(longest), count)
    positions = graph.node("Slice", layers.tensor("encoder_positions.weight"), first, end, graph.integers(0))
    names = [f"encoder_layers.{number}" for number in range(config.query_layers + config.session_layers)]
    stream = layers.begin(graph.node("Unsqueeze", embedded, graph.integers(0)), positions, f"{names[0]}.attention_norm")
    for name, following in zip(names, [*(f"{n}.attention_norm" for n in names[1:]), "encoder_norm"], strict=True):
        stream, _, _ = layers.encoder_layer(stream, name, following)
    shape: Shape = [config.decoder_layers, memory_heads(config), "n", head_width(config)]
    for name, part in zip(("keys", "values"), layers.memory(stream.normed, config.decoder_layers), strict=True):
        graph.output(part, f"new_memory_{name}", FLOAT, shape)
    graph.output(embedded, "new_session_embedded", FLOAT, ["n", d])


def encode_seq2seq(layers: Layers, config: ModelConfig, weights: Weights) -> None:
    """The GRU with attention reads the query and its separator; its outputs join the memory."""
    graph, units = layers.graph, config.units
    hidden = graph.node("Unsqueeze", graph.input("session_hidden", FLOAT, [units]), graph.integers(0))
    last, outputs = _run(layers, "encoder", _with_separator(graph, weights, config.d_model), hidden, units)
    keys = graph.node("Concat", graph.input("memory_keys", FLOAT, ["m", units]), outputs, axis=0)
    graph.output(keys, "new_memory_keys", FLOAT, ["m + t + 1", units])
    _output_row(graph, graph.node("Tanh", layers.product(last, "bridge")), "new_memory_hidden", units)
    _output_row(graph, last, "new_session_hidden", units)


def encode_hred(layers: Layers, config: ModelConfig) -> None:
    """One GRU reads the query, another takes what is left of it into the session."""
    graph, units = layers.graph, config.units
    query, _ = _run(layers, "query_encoder", "embedded", zeros(graph, 1, units), units)
    before = graph.node("Unsqueeze", graph.input("session_hidden", FLOAT, [units]), graph.integers(0))
    session = layers.gru(query, before, "session_encoder")
    _output_row(graph, graph.node("Tanh", layers.product(session, "bridge")), "new_memory_hidden", units)
    _output_row(graph, layers.product(session, "output_session"), "new_memory_context", config.d_model)
    _output_row(graph, session, "new_session_hidden", units)


def encode_tail_lstm(layers: Layers, config: ModelConfig) -> None:
    """The mean of the query's embeddings through one layer, in place of what was there."""
    graph = layers.graph
    mean = graph.node("ReduceMean", "embedded", graph.integers(0), keepdims=1)
    context = graph.node("Tanh", layers.product(mean, "context"))
    _output_row(graph, context, "new_memory_context", config.d_model)


def _with_separator(graph: GraphBuilder, weights: Weights, d: int) -> str:
    """The query's tokens and the separator `<eos>`, embedded: [t + 1, d]."""
    table = weights["embedding.weight"]  # [d, v], or [r, v] of low rank
    assert not isinstance(table, Int4Weight)  # `quantize.plan.WIDE`
    if isinstance(table, Int8Weight):
        column = table.values[:, EOS].astype(np.float32) * table.scale[EOS]
    else:
        column = table[:, EOS]
    up = weights.get("embedding_up.weight")
    if up is not None:
        assert not isinstance(up, Int4Weight)
        column = column @ (up.dequantize() if isinstance(up, Int8Weight) else up)
    return graph.node("Concat", "embedded", graph.constant(column.reshape(1, d), "separator"), axis=0)


def _run(layers: Layers, name: str, x: str, start: str, units: int) -> tuple[str, str]:
    """A GRU along `x` [t, w] from `start` [1, U]: its last state [1, U] and all of them [t, U]."""
    graph = layers.graph
    body = GraphBuilder("read", parent=graph)
    place = body.node("Unsqueeze", "position", body.integers(0))
    hidden = layers.inside(body).gru(body.node("Gather", x, place), "hidden", name)
    outputs = body.node("Concat", "outputs", hidden, axis=0)
    carries = [
        Carry("hidden", FLOAT, [1, units], start),
        Carry("outputs", FLOAT, ["p", units], zeros(graph, 0, units)),
    ]
    trips = graph.node("Squeeze", graph.node("Shape", x, start=0, end=1))
    last, all_of_them = graph.loop(
        body, carries, [hidden, outputs], trips=trips, go_on=body.node("Identity", "went_on")
    )
    return last, all_of_them


def _output_row(graph: GraphBuilder, row: str, name: str, width: int) -> None:
    """Declares the row [1, width] as the output `name` [width]."""
    graph.output(graph.node("Squeeze", row, graph.integers(0)), name, FLOAT, [width])
