"""`suggest.onnx`: the whole constrained beam search as one Loop; `mtn_edge.decoding.beam_search` is its reference.

Contract: inputs `memory_keys` and `memory_values` float32 [Ld, h, m, e], `next_state` int32 [S, V] (-1 where a token
is forbidden), `start_state` int64 [], `beam` int64 [1], `max_steps` int64 []. Outputs `tokens` int64 [beam, steps]
(with `<eos>`, then `<pad>`) and `scores` float32 [beam], best first.

Outside the loop stands what all steps share: the memory of each decoder layer, the table as a bound on
log-probabilities, the scores of a finished hypothesis' slots. One pass of the loop is one step of all hypotheses; the
memory's keys and values are shared by them (hypotheses are folded into the query axis) and never reordered.

Shapes: n hypotheses of a step (1, then the beam), k = beam tokens tried for each, p tokens so far, m tokens of the
memory, d width, h heads, e = d/h, S states, V vocabulary, Ld decoder layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from export.graph_builder import BOOL, FLOAT, INT32, INT64, Carry, GraphBuilder, Shape
from export.graph_layers import Layers, zeros
from mtn_edge.config import ModelConfig
from mtn_edge.runtime.engine import DEAD
from mtn_edge.tokenizer import BOS, EOS, PAD
from quantize.plan import Weights

IMPOSSIBLE = -1e9
"""Log-probability of a forbidden token."""


@dataclass(frozen=True)
class _Shared:
    """Tensors outside the loop that every step reads."""

    memory: list[tuple[str, str]]
    """Keys and values [1, h, m, e] of each decoder layer."""
    ceiling: str
    """float32 [S, V]: -1e9 where a token is forbidden, 0 or more where it is allowed."""
    flat_states: str
    """int32 [S * V]: the next state."""
    beam: str
    """int64 [1]."""
    slots: str
    """float32 [1, 1, k]: 0, then -1e9: how a finished hypothesis fills its slots."""


def build_suggest(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The graph of the beam search over `MTN.step`.

    Args:
        config: the model.
        weights: its tensors, see `export.weights.graph_tensors` and `quantize.plan.apply_plan`.
    """
    graph = GraphBuilder("suggest")
    h, e = config.heads, config.d_model // config.heads
    memory_shape: Shape = [config.decoder_layers, h, "m", e]
    keys = graph.input("memory_keys", FLOAT, memory_shape)
    values = graph.input("memory_values", FLOAT, memory_shape)
    next_state = graph.input("next_state", INT32, ["S", config.vocab_size])
    start_state = graph.input("start_state", INT64, [])
    beam = graph.input("beam", INT64, [1])
    max_steps = graph.input("max_steps", INT64, [])
    shared = _share(graph, config, keys, values, next_state, beam)

    carries = [
        Carry("alive", BOOL, ["n", 1, 1], graph.constant(np.array([[[True]]]))),
        Carry("last", INT64, ["n"], graph.integers(BOS)),
        Carry("score", FLOAT, ["n", 1, 1], zeros(graph, 1, 1, 1)),
        Carry("state", INT64, ["n", 1], graph.node("Reshape", start_state, graph.integers(1, 1))),
        Carry("history", INT64, ["n", "p"], graph.constant(np.zeros((1, 0), dtype=np.int64))),
    ]
    empty = zeros(graph, 1, h, 0, e)
    for number in range(config.decoder_layers):
        carries += [Carry(f"{part}_{number}", FLOAT, ["n", h, "p", e], empty) for part in ("keys", "values")]

    body = GraphBuilder("step", parent=graph)
    updates, go_on = _step(Layers(body, weights, heads=h, norm=config.norm), config, shared)
    final = graph.loop(body, carries, updates, trips=max_steps, go_on=go_on)
    graph.output(final[4], "tokens", INT64, ["beam", "steps"])
    graph.output(graph.node("Reshape", final[2], graph.integers(-1)), "scores", FLOAT, ["beam"])
    return graph.model()


def _share(graph: GraphBuilder, config: ModelConfig, keys: str, values: str, next_state: str, beam: str) -> _Shared:
    # A state is 0 or more and a log-probability 0 or less: their minimum forbids without a comparison, and the table
    # is turned into bounds once a search instead of once a step.
    ceiling = graph.node(
        "Mul", graph.node("Cast", next_state, to=FLOAT), graph.constant(np.array(-IMPOSSIBLE, dtype=np.float32))
    )
    others = graph.node("Sub", beam, graph.integers(1))
    filler = graph.node("Expand", graph.constant(np.array([IMPOSSIBLE], dtype=np.float32)), others)
    slots = graph.node("Concat", zeros(graph, 1), filler, axis=0)
    return _Shared(
        memory=list(
            zip(
                graph.split(keys, config.decoder_layers, axis=0),
                graph.split(values, config.decoder_layers, axis=0),
                strict=True,
            )
        ),
        ceiling=ceiling,
        flat_states=graph.node("Reshape", next_state, graph.integers(-1)),
        beam=beam,
        slots=graph.node("Reshape", slots, graph.integers(1, 1, -1)),
    )


def _step(layers: Layers, config: ModelConfig, shared: _Shared) -> tuple[list[str], str]:
    """One pass: what each carried value becomes, and whether any hypothesis goes on."""
    graph = layers.graph
    decoded, present = _decode(layers, config, shared)  # [n, 1, d]
    log_probs = _log_probabilities(layers, decoded)  # [n, 1, V]
    allowed = graph.node("Min", log_probs, graph.node("Gather", shared.ceiling, "state"))
    best, choice = graph.nodes("TopK", allowed, shared.beam, outputs=2)  # [n, 1, k]

    # A finished or dead hypothesis keeps its score in one slot, with <pad>.
    candidates = graph.node(
        "Where",
        "alive",
        graph.node("Add", "score", best),
        graph.node("Add", "score", shared.slots),
    )
    choice = graph.node("Where", "alive", choice, graph.integer(PAD))
    flat = graph.node("Reshape", candidates, graph.integers(-1, 1, 1))
    score, place = graph.nodes("TopK", flat, shared.beam, outputs=2, axis=0)  # [beam, 1, 1] of [n * k, 1, 1]
    place = graph.node("Reshape", place, graph.integers(-1))
    parent = graph.node("Div", place, shared.beam)  # [beam]
    last = graph.node("Gather", graph.node("Reshape", choice, graph.integers(-1)), place)  # [beam]
    column = graph.node("Unsqueeze", last, graph.integers(1))  # [beam, 1]

    cell = graph.node("Mul", graph.node("Gather", "state", parent), graph.integer(config.vocab_size))
    state = graph.node("Gather", shared.flat_states, graph.node("Add", cell, column))
    alive = graph.node(
        "And",
        graph.node("Greater", graph.node("Reshape", last, graph.integers(-1, 1, 1)), graph.integer(EOS)),
        graph.node("Greater", score, graph.constant(np.array(DEAD, dtype=np.float32))),
    )
    history = graph.node("Concat", graph.node("Gather", "history", parent), column, axis=1)
    caches = [graph.node("Gather", cache, parent) for cache in present]
    go_on = graph.node("ReduceMax", alive, keepdims=0)
    return [alive, last, score, graph.node("Cast", state, to=INT64), history, *caches], go_on


def _decode(layers: Layers, config: ModelConfig, shared: _Shared) -> tuple[str, list[str]]:
    """The decoder on the last token of each hypothesis: [n, 1, d], and each layer's keys and values in turn."""
    graph = layers.graph
    positions = np.asarray(layers.weights["decoder_positions.weight"])[:, None]  # the fused sum wants [1, d]
    position = graph.node("Gather", graph.constant(positions, "decoder_positions.weight"), "position")
    names = [f"decoder_layers.{number}" for number in range(config.decoder_layers)]
    stream = layers.begin(layers.embedding_columns("last"), position, f"{names[0]}.attention_norm")
    present: list[str] = []
    followings = [*(f"{name}.attention_norm" for name in names[1:]), "decoder_norm"]
    for number, (name, following) in enumerate(zip(names, followings, strict=True)):
        past = (f"keys_{number}", f"values_{number}")
        attended, keys, values = layers.self_attention(stream.normed, f"{name}.attention", past)
        present += [keys, values]
        stream = layers.join(attended, stream, f"{name}.attention_norm", f"{name}.cross_attention_norm")
        folded = graph.node("Reshape", stream.normed, graph.integers(1, -1, config.d_model))  # [1, n, d]
        attended = layers.cross_attention(folded, f"{name}.cross_attention", *shared.memory[number])
        attended = graph.node("Reshape", attended, graph.integers(-1, 1, config.d_model))
        stream = layers.join(attended, stream, f"{name}.cross_attention_norm", f"{name}.feed_forward_norm")
        changed = layers.feed_forward(stream.normed, f"{name}.feed_forward")
        stream = layers.join(changed, stream, f"{name}.feed_forward_norm", following)
    return stream.normed, present


def _log_probabilities(layers: Layers, decoded: str) -> str:
    """Log p(token | hypothesis, session) [n, 1, V] from the decoder's state [n, 1, d].

    The one place where next-token distributions come from: others are mixed in here.
    """
    return layers.graph.node("LogSoftmax", layers.product(decoded, "embedding"), axis=-1)
