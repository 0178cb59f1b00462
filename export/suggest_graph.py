"""`suggest.onnx`: the whole constrained beam search as one Loop; `mtn_edge.decoding.beam_search` is its reference.

Contract: inputs `memory_...` float32 (what the model's decoder reads of the session, from `encode.onnx`),
`start_tokens` int64 [f] (`<bos>` and the tokens that are settled), `next_state` uint8 [S, V] (the next state and 1; 0
where a token is forbidden), `start_state` int64 [1], `beam` int64 [1], `max_steps` int64 [] and `floor` float32 []
(relative to the mass). Outputs `tokens` int64 [beam, steps] (with `<eos>`, then `<pad>`), `scores` float32 [beam],
`mass` float32 [] (log of the probability that the first step allows) and `embedded` float32 [f, d] (of `start_tokens`,
for `encode.onnx`; ask with `max_steps` 0).

Only hypotheses that are still alive cost anything: a pass decodes the tokens that were added last, in the way of the
model's decoder (`Decoder`), and mixes in the way of `export.fusion_graph`.

Shapes: r rows decoded in a pass, n of them tips (all but in the first pass), B = k = beam, p tokens written, d width,
S states, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx

from export.cells import recurrent_cell, ssru_cell
from export.fusion_graph import Fusion
from export.graph_builder import FLOAT, INT64, UINT8, Carry, GraphBuilder
from export.graph_layers import Layers, filled, numbers, zeros
from export.recurrent_decoder import RecurrentDecoder
from export.session_memory import SessionMemory
from export.tree_decoder import Decoded, TreeDecoder
from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import head_width
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.engine import IMPOSSIBLE
from mtn_edge.tokenizer import EOS
from quantize.plan import Weights

STEP = "step"
"""Name of the search's loop body."""


class Decoder(Protocol):
    """What the search asks of a model's decoder; it reads the carried `embedded` [r, d] and what it carries itself."""

    def first_rows(self, embedded: str) -> str:
        """Rows [r, d] of the first pass, from the embedded start tokens; the last one is the tip."""

    def carries(self) -> list[Carry]:
        """Values of its own that passes hand on."""

    def decode(self, layers: Layers) -> Decoded:
        """States of the rows, and what is kept of them."""

    def carry_on(self, layers: Layers, kept: list[str], *, row: str, count: str) -> list[str]:
        """What its carried values become: the next pass decodes children of the rows `row`, `count` of them."""


@dataclass(frozen=True)
class _Shared:
    """Tensors outside the loop that every pass reads."""

    next_state: str
    """uint8 [S, V]."""
    flat_states: str
    """uint8 [S * V]."""
    entry_scale: tuple[str, str]
    """What turns an entry of the table into a bound: a billion, and the entry of state 0."""
    floor: str
    """float32 []."""
    beam: str
    """int64 [1]."""
    rows: str
    """int64 [B]: 0, 1, ..."""
    slots: str
    """int64 [B, 1]: the same."""
    offsets: str
    """int64 [B, 1]: 0, V, ..."""
    filler: str
    """float32 [1, k]: 0, then -1e9: the candidates of a slot that does not go on."""
    no_codes: str
    """int64 [B, k] of zeros."""


def build_suggest(config: ModelConfig, weights: Weights, sources: Sources | None) -> onnx.ModelProto:
    """The graph of the beam search over a network's `step`.

    Args:
        config: the model.
        weights: its tensors, see `export.weights.graph_tensors` and `quantize.plan.apply_plan`.
        sources: what the model is mixed with.
    """
    graph = GraphBuilder("suggest")
    start_tokens = graph.input("start_tokens", INT64, ["f"])
    next_state = graph.input("next_state", UINT8, ["S", config.vocab_size])
    start_state = graph.input("start_state", INT64, [1])
    beam = graph.input("beam", INT64, [1])
    max_steps = graph.input("max_steps", INT64, [])
    floor = graph.input("floor", FLOAT, [])

    count = graph.node("Shape", start_tokens)  # [1]
    layers = Layers(graph, weights, head_width=head_width(config), norm=config.norm)
    embedded = layers.embedding(start_tokens)  # [f, d]
    decoder = _decoder(layers, config, embedded=embedded, count=count, beam=beam, max_steps=max_steps)
    fusion = Fusion(layers, config, start_tokens, sources.ngram) if sources is not None else None
    shared = _share(graph, config, next_state=next_state, floor=floor, beam=beam)
    rows = decoder.first_rows(embedded)
    size = graph.node("Shape", rows, start=0, end=1)  # [1]
    tip = graph.node("Sub", size, graph.integers(1))
    offset = graph.node("Mul", graph.node("Unsqueeze", tip, graph.integers(1)), graph.integer(config.vocab_size))
    no_column = graph.node("Concat", beam, graph.integers(0), axis=0)
    carries = [
        Carry("embedded", FLOAT, ["r", config.d_model], rows),
        Carry("states", INT64, ["r"], graph.node("Expand", start_state, size)),
        Carry("tips", INT64, ["n"], tip),
        Carry("tip_offsets", INT64, ["n", 1], offset),
        Carry("live", INT64, ["n", 1], graph.constant(np.zeros((1, 1), dtype=np.int64))),
        Carry("live_scores", FLOAT, ["n", 1], zeros(graph, 1, 1)),
        Carry("scores", FLOAT, ["B", 1], filled(graph, IMPOSSIBLE, beam, graph.integers(1))),
        Carry("history", INT64, ["B", "p"], graph.node("Expand", graph.integer(0), no_column)),
        Carry("mass", FLOAT, [], zeros(graph)),
        *(fusion.carries() if fusion is not None else []),
        *decoder.carries(),
    ]
    body = GraphBuilder(STEP, parent=graph)
    updates, go_on = _step(layers.inside(body), config, shared, decoder, fusion)
    results = graph.loop(body, carries, updates, trips=max_steps, go_on=go_on)
    final = dict(zip((carry.name for carry in carries), results, strict=True))
    graph.output(final["history"], "tokens", INT64, ["beam", "steps"])
    graph.output(graph.node("Reshape", final["scores"], graph.integers(-1)), "scores", FLOAT, ["beam"])
    graph.output(final["mass"], "mass", FLOAT, [])
    graph.output(graph.node("Identity", embedded), "embedded", FLOAT, ["f", config.d_model])
    return graph.model()


def _decoder(layers: Layers, config: ModelConfig, *, embedded: str, count: str, beam: str, max_steps: str) -> Decoder:
    graph = layers.graph
    if config.arch not in ("mtn", "transformer"):
        cell = recurrent_cell(graph, config)
        return RecurrentDecoder(layers, cell, embedded=embedded, count=count, max_steps=max_steps)
    memory, positions = SessionMemory(layers, config), layers.tensor("decoder_positions.weight")
    if config.arch == "mtn":  # the session's state is added to every token: once here, and not in each pass
        positions = graph.node("Add", positions, graph.input("memory_state", FLOAT, [config.d_model]))
        if config.mixer == "ssru":
            cell = ssru_cell(graph, config, memory, positions)
            return RecurrentDecoder(layers, cell, embedded=embedded, count=count, max_steps=max_steps)
    return TreeDecoder(graph, config, memory, positions=positions, embedded=embedded, count=count, beam=beam)


def _share(graph: GraphBuilder, config: ModelConfig, *, next_state: str, floor: str, beam: str) -> _Shared:
    rows = numbers(graph, beam)
    slots = graph.node("Unsqueeze", rows, graph.integers(1))
    others = graph.node("Sub", beam, graph.integers(1))
    filler = graph.node("Concat", zeros(graph, 1), filled(graph, IMPOSSIBLE, others), axis=0)
    return _Shared(
        next_state=next_state,
        flat_states=graph.node("Reshape", next_state, graph.integers(-1)),
        entry_scale=(
            graph.constant(np.array(-IMPOSSIBLE, dtype=np.float32)),
            graph.constant(np.array(1, dtype=np.uint8)),
        ),
        floor=floor,
        beam=beam,
        rows=rows,
        slots=slots,
        offsets=graph.node("Mul", slots, graph.integer(config.vocab_size)),
        filler=graph.node("Unsqueeze", filler, graph.integers(0)),
        no_codes=graph.node("Expand", graph.integer(0), graph.node("Concat", beam, beam, axis=0)),
    )


def _mass(graph: GraphBuilder, allowed: str) -> str:
    """Log of the probability that the first step allows; known after the first pass, carried on by the others.

    By way of the largest entry, as `LogSoftmax` is ten times as fast as `ReduceLogSumExp`.
    """
    first, later = GraphBuilder("first", parent=graph), GraphBuilder("later", parent=graph)
    largest = first.node("ReduceMax", allowed, keepdims=0)
    normal = first.node("ReduceMax", first.node("LogSoftmax", allowed), keepdims=0)
    first.output(first.node("Sub", largest, normal), "first_mass", FLOAT, [])
    later.output(later.node("Identity", "mass"), "later_mass", FLOAT, [])
    return graph.branch(graph.node("Equal", "position", graph.integer(0)), first, later)


def _step(
    layers: Layers, config: ModelConfig, shared: _Shared, decoder: Decoder, fusion: Fusion | None
) -> tuple[list[str], str]:
    """One pass: what each carried value becomes, and whether any hypothesis goes on."""
    graph, v = layers.graph, layers.graph.integer(config.vocab_size)
    decoded, kept = decoder.decode(layers)  # [r, d]
    states = graph.node("Gather", decoded, "tips")  # [n, d]
    log_probs = graph.node("LogSoftmax", layers.scores(states), axis=-1)  # [n, V]
    if fusion is not None:
        log_probs = fusion.mix(layers, states, log_probs)
    # An entry of the table, 1 less and a billion times as large, is a bound on the log-probability of its token.
    entries = graph.node("Gather", shared.next_state, graph.node("Gather", "states", "tips"))
    bound = graph.node("DequantizeLinear", entries, *shared.entry_scale)
    allowed = graph.node("Min", log_probs, bound)
    mass = _mass(graph, allowed)
    best, choice = graph.nodes("TopK", allowed, shared.beam, outputs=2)  # [n, k]

    # A candidate is a row and a token in one number. Slots that do not go on keep their score in one candidate.
    candidates = graph.node(
        "ScatterND",
        graph.node("Add", "scores", shared.filler),
        "live",
        graph.node("Add", "live_scores", best),
    )
    codes = graph.node("ScatterND", shared.no_codes, "live", graph.node("Add", "tip_offsets", choice))  # [B, k]
    flat = graph.node("Reshape", candidates, graph.integers(-1, 1))
    scores, place = graph.nodes("TopK", flat, shared.beam, outputs=2, axis=0)  # [B, 1] of [B * k, 1]
    code = graph.node("Gather", graph.node("Reshape", codes, graph.integers(-1)), place)  # [B, 1]
    token = graph.node("Mod", code, v)
    parent = graph.node("Reshape", graph.node("Div", place, shared.beam), graph.integers(-1))  # [B]
    history = graph.node("Concat", graph.node("Gather", "history", parent), token, axis=1)

    # Only what has not ended and can still be shown goes on.
    going_on = graph.node("Greater", token, graph.integer(EOS))
    hopeful = graph.node("Greater", scores, graph.node("Add", mass, shared.floor))
    alive = graph.node("And", going_on, hopeful)  # [B, 1]
    chosen = graph.node("Reshape", alive, graph.integers(-1))
    live, live_scores = (graph.node("Compress", part, chosen, axis=0) for part in (shared.slots, scores))  # [n', 1]
    live_code = graph.node("Reshape", graph.node("Compress", code, chosen, axis=0), graph.integers(-1))  # [n']
    live_token, row = graph.node("Mod", live_code, v), graph.node("Div", live_code, v)
    cell = graph.node("Add", graph.node("Mul", graph.node("Gather", "states", row), v), live_token)
    entry = graph.node("Cast", graph.node("Gather", shared.flat_states, cell), to=INT64)
    next_states = graph.node("Sub", entry, graph.integer(1))

    count = graph.node("Shape", live_code)  # [1]
    tips = graph.node("Slice", shared.rows, graph.integers(0), count)
    tip_offsets = graph.node("Slice", shared.offsets, graph.integers(0), count)
    embedded = layers.embedding(live_token)
    go_on = graph.node("ReduceMax", chosen, keepdims=0)
    updates = [embedded, next_states, tips, tip_offsets, live, live_scores, scores, history, mass]
    if fusion is not None:
        tip = graph.node("Sub", row, graph.node("Gather", "tips", graph.integer(0)))
        updates += fusion.carry_on(graph, tip=tip, token=live_token)
    return [*updates, *decoder.carry_on(layers, kept, row=row, count=count)], go_on
