"""Fusion inside the search's loop; `mtn_edge.decoding.mixture` is its reference.

The n-gram lies in the graph as flat arrays (`FlatNgram`). A hypothesis' contexts are three rows of it, one for each
order; the entries of a row are read as `offset + 0 ... 63`. Only the tokens that the n-gram or the session offers are
looked at one by one: their shares, in units of the network's weight, are added up in a scatter and mixed; all V tokens
then get the network's weight.

Shapes: n tips of a pass, f start tokens, t tokens of the session's text, o = 3 orders, F entries of a row at most,
l = 3 lengths of a match, V vocabulary, w width of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.graph_builder import FLOAT, INT64, Carry, GraphBuilder
from export.graph_layers import Layers
from mtn_edge.config import ModelConfig
from mtn_edge.models.fusion import COPIES, ORDERS
from mtn_edge.ngram.model import NGram
from mtn_edge.runtime.engine import IMPOSSIBLE
from mtn_edge.tokenizer import BOS, EOS, PAD

_NONE = -1
"""No token: what stands before `<bos>`."""


class FlatNgram(NamedTuple):
    """The n-gram as arrays: the rows of all orders one after the other, a row without entries last.

    The gram of entry e of the lower orders is the context of row V + e.
    """

    sizes: NDArray[np.uint8]
    """[R] entries of each row."""
    tokens: NDArray[np.uint16]
    """[E] the token of each entry, one more at the end for places that hold none."""
    codes: NDArray[np.uint8]
    """[E] its share, a number of its order's `values`."""
    values: NDArray[np.float32]
    """[o * 256]."""


def flatten(ngram: NGram) -> FlatNgram:
    """The arrays of an n-gram."""
    sizes = np.concatenate([*(level.sizes for level in ngram.levels), [0]]).astype(np.uint8)
    tokens = np.concatenate([*(level.tokens for level in ngram.levels), [PAD]]).astype(np.uint16)
    codes = np.concatenate([*(level.codes for level in ngram.levels), [0]]).astype(np.uint8)
    return FlatNgram(sizes, tokens, codes, np.concatenate([level.values for level in ngram.levels]))


class Fusion:
    """The sources of one model in one graph.

    Args:
        layers: of the graph around the loop.
        config: the model.
        start_tokens: int64 [f].
        ngram: with that source.
    """

    def __init__(self, layers: Layers, config: ModelConfig, start_tokens: str, ngram: NGram | None) -> None:
        graph = layers.graph
        self._table = _Table(graph, flatten(ngram), config.vocab_size) if ngram is not None else None
        self._text = _Text(graph) if config.fusion in ("copy", "all") else None
        self._start_tokens = start_tokens
        self._graph = graph

    def carries(self) -> list[Carry]:
        """What passes hand on: the last two tokens of each tip, and its contexts."""
        graph = self._graph
        none = graph.integers(_NONE)
        # The last three start tokens, after as many places without one.
        padded = graph.node("Concat", none, none, none, self._start_tokens, axis=0)
        size = graph.node("Shape", padded)
        places = [graph.node("Sub", size, graph.integers(back)) for back in (3, 2, 1)]
        third, before, last = (graph.node("Gather", padded, place) for place in places)  # [1] each
        ends = graph.node("Unsqueeze", graph.node("Concat", last, before, axis=0), graph.integers(0))
        carries = [Carry("ends", INT64, ["n", 2], ends)]
        if self._table is not None:
            table = self._table
            two = table.find(graph, table.row_of(graph, before), last)
            three = table.find(graph, table.find(graph, table.row_of(graph, third), before), last)
            rows = graph.node("Concat", table.row_of(graph, last), two, three, axis=0)
            contexts = graph.node("Unsqueeze", rows, graph.integers(0))
            carries.append(Carry("contexts", INT64, ["n", ORDERS - 1], contexts))
        return carries

    def mix(self, layers: Layers, states: str, log_probs: str) -> str:
        """The mixture's log-probabilities [n, V] for the tips.

        Args:
            layers: of the loop's body.
            states: [n, w] of the decoder.
            log_probs: [n, V] of the network.
        """
        graph = layers.graph
        top = graph.node("ReduceMax", log_probs, graph.integers(1))  # [n, 1]
        features = [states, top, graph.node("Exp", top)]
        offered: list[tuple[str, str]] = []
        ngram = copies = None
        if self._table is not None:
            ngram = self._table.look_up(graph, "contexts")
            features += [ngram.matched, ngram.left, graph.node("ReduceMax", ngram.shares, graph.integers(1))]
        if self._text is not None:
            copies = self._text.match(graph, "ends")
            features.append(graph.node("Log", graph.node("Add", copies.places, _scalar(graph, 1.0))))
        scores = layers.product(graph.node("Concat", *features, axis=1), "gate.linear")  # [n, s]
        if copies is not None:
            nothing = graph.node("Equal", copies.places, _scalar(graph, 0.0))
            bound = graph.node("Where", nothing, _scalar(graph, IMPOSSIBLE), _scalar(graph, 0.0))
            always = 1 + (ngram is not None)
            scores = graph.node("Add", scores, graph.node("Pad", bound, graph.integers(0, always, 0, 0)))
        weights = graph.node("Softmax", scores, axis=1)
        parts = _columns(graph, weights, [1] * (1 + (ngram is not None)) + ([COPIES] if copies is not None else []))
        network = parts.pop(0)
        if ngram is not None:
            weight = parts.pop(0)
            network = graph.node("Add", network, graph.node("Mul", weight, ngram.left))
            offered.append((ngram.tokens, graph.node("Mul", ngram.shares, weight)))
        if copies is not None:
            weight = graph.node("Unsqueeze", parts.pop(0), graph.integers(1))  # [n, 1, l]
            value = graph.node("Squeeze", graph.node("MatMul", weight, copies.shares), graph.integers(1))  # [n, t]
            assert self._text is not None
            offered.append((graph.node("Expand", self._text.tokens, graph.node("Shape", value)), value))
        tokens = _joined(graph, [each for each, _ in offered])
        values = graph.node("Div", _joined(graph, [each for _, each in offered]), network)
        nothing_yet = graph.node("Expand", _scalar(graph, 0.0), graph.node("Shape", log_probs))
        extra = graph.node("ScatterElements", nothing_yet, tokens, values, axis=1, reduction="add")
        own = graph.node("Exp", graph.node("GatherElements", log_probs, tokens, axis=1))
        mixed = graph.node("Log", graph.node("Add", own, graph.node("GatherElements", extra, tokens, axis=1)))
        relative = graph.node("ScatterElements", log_probs, tokens, mixed, axis=1)
        return graph.node("Add", relative, graph.node("Log", network))

    def carry_on(self, graph: GraphBuilder, *, tip: str, token: str) -> list[str]:
        """The next values of `carries`: children, `token` int64 [n'], of the tips number `tip` [n']."""
        last = graph.node("Gather", "ends", tip)  # [n', 2]
        newest = graph.node("Unsqueeze", token, graph.integers(1))
        before = graph.node("Slice", last, graph.integers(0), graph.integers(1), graph.integers(1))
        updates = [graph.node("Concat", newest, before, axis=1)]
        if self._table is not None:
            updates.append(self._table.advance(graph, tip, token))
        return updates


class _Found(NamedTuple):
    """What the n-gram says after some contexts."""

    tokens: str
    """int64 [n, o * F]."""
    shares: str
    """[n, o * F], 0 where there is no entry."""
    left: str
    """[n, 1] what it leaves to the network."""
    matched: str
    """[n, 4] one for the number of orders that know the context."""


class _Table:
    """The n-gram's arrays as constants, and how they are read."""

    def __init__(self, graph: GraphBuilder, flat: FlatNgram, vocab_size: int) -> None:
        self._vocab_size = graph.integer(vocab_size)
        self._sizes = graph.node("Cast", graph.constant(flat.sizes, "ngram.sizes"), to=INT64)
        self._offsets = graph.node("CumSum", self._sizes, graph.integer(0), exclusive=1)
        self._tokens = graph.constant(flat.tokens, "ngram.tokens")
        self._codes = graph.constant(flat.codes, "ngram.codes")
        self._values = graph.constant(flat.values, "ngram.values")
        self._no_row, self._no_entry = (graph.integer(len(part) - 1) for part in (flat.sizes, flat.tokens))
        self._steps = graph.constant(np.arange(max(1, int(flat.sizes.max())), dtype=np.int64))  # [F]
        self._bases = graph.constant(256 * np.arange(ORDERS - 1, dtype=np.int64)[None, :, None])  # [1, o, 1]
        self._unit = graph.constant(np.eye(ORDERS, dtype=np.float32))
        self._newest = ("", "")

    def row_of(self, graph: GraphBuilder, token: str) -> str:
        """The context that is one token [n]; none where there is no token."""
        return graph.node("Where", graph.node("Less", token, graph.integer(0)), self._no_row, token)

    def find(self, graph: GraphBuilder, rows: str, token: str) -> str:
        """The contexts [n] that are those of `rows` [n] and one more token [n]."""
        _, place, tokens = self._entries(graph, rows)
        return self._child(graph, place, tokens, graph.node("Unsqueeze", token, graph.integers(-1)))

    def look_up(self, graph: GraphBuilder, contexts: str) -> _Found:
        """What comes after contexts [n, o], all orders mixed: each gives way to the shorter one."""
        there, place, tokens = self._entries(graph, contexts)  # [n, o, F]
        self._newest = (place, tokens)
        codes = graph.node("Cast", graph.node("Gather", self._codes, place), to=INT64)
        value = graph.node("Gather", self._values, graph.node("Add", codes, self._bases))
        share = graph.node("Where", there, value, _scalar(graph, 0.0))
        mass = graph.node("ReduceSum", share, graph.integers(2), keepdims=0)  # [n, o]
        gamma = graph.node("Sub", _scalar(graph, 1.0), mass)
        two, three, four = _columns(graph, gamma, [1, 1, 1])
        below_three = graph.node("Mul", three, four)
        left = graph.node("Mul", two, below_three)
        ones = graph.node("Sub", four, four)
        factors = graph.node("Concat", below_three, four, graph.node("Add", ones, _scalar(graph, 1.0)), axis=1)
        weighted = graph.node("Mul", share, graph.node("Unsqueeze", factors, graph.integers(2)))
        known = graph.node("Cast", graph.node("Greater", mass, _scalar(graph, 0.0)), to=INT64)
        matched = graph.node("Gather", self._unit, graph.node("ReduceSum", known, graph.integers(1), keepdims=0))
        flat = graph.integers(0, -1)
        return _Found(graph.node("Reshape", tokens, flat), graph.node("Reshape", weighted, flat), left, matched)

    def advance(self, graph: GraphBuilder, tip: str, token: str) -> str:
        """The contexts [n', o] after `token` [n'] of the tips number `tip` [n'], whose entries were looked up last."""
        place, tokens = (graph.node("Gather", part, tip) for part in self._newest)
        wanted = graph.node("Unsqueeze", token, graph.integers(1, 2))
        longer = self._child(graph, place, tokens, wanted)  # [n', o]
        shorter = graph.node("Slice", longer, graph.integers(0), graph.integers(ORDERS - 2), graph.integers(1))
        return graph.node("Concat", graph.node("Unsqueeze", token, graph.integers(1)), shorter, axis=1)

    def _entries(self, graph: GraphBuilder, rows: str) -> tuple[str, str, str]:
        """For rows [...]: which of F entries there are, their places, and their tokens, [..., F] each."""
        last = graph.integers(-1)
        offset, size = (
            graph.node("Unsqueeze", graph.node("Gather", part, rows), last) for part in (self._offsets, self._sizes)
        )
        there = graph.node("Less", self._steps, size)
        place = graph.node("Where", there, graph.node("Add", offset, self._steps), self._no_entry)
        return there, place, graph.node("Cast", graph.node("Gather", self._tokens, place), to=INT64)

    def _child(self, graph: GraphBuilder, place: str, tokens: str, wanted: str) -> str:
        """The row [...] of the gram whose entry, of places and tokens [..., F], has the token `wanted` [..., 1]."""
        same = graph.node("Equal", tokens, wanted)
        entry = graph.node(
            "ReduceMax", graph.node("Where", same, place, graph.integer(-1)), graph.integers(-1), keepdims=0
        )
        row = graph.node("Add", entry, self._vocab_size)
        return graph.node("Where", graph.node("Less", entry, graph.integer(0)), self._no_row, row)


class _Matches(NamedTuple):
    """Where the session can be copied from."""

    shares: str
    """[n, l, t] of the places, which sum to one where any matches."""
    places: str
    """[n, l] how many match."""


class _Text:
    """The session's text as an input, and what matches the end of a hypothesis."""

    def __init__(self, graph: GraphBuilder) -> None:
        none = graph.integers(PAD)
        # A place that offers nothing, as scatters of nothing at all leave their output undefined.
        self.tokens = graph.node("Concat", none, graph.input("memory_text", INT64, ["text"]), axis=0)
        length = graph.node("Shape", self.tokens)
        once = graph.node("Concat", none, self.tokens, axis=0)
        self._one_before = graph.node("Slice", once, graph.integers(0), length)
        twice = graph.node("Concat", none, none, self.tokens, axis=0)
        self._two_before = graph.node("Slice", twice, graph.integers(0), length)
        self._offered = graph.node("Greater", self.tokens, graph.integer(BOS))  # no <bos>, no <pad>

    def match(self, graph: GraphBuilder, ends: str) -> _Matches:
        """What matches 0, 1 and 2 of the last tokens `ends` [n, 2], the last one first."""
        last, before = _columns(graph, ends, [1, 1])
        any_place = graph.node("And", graph.node("Equal", last, last), self._offered)  # [n, t]
        one = graph.node("And", graph.node("Equal", self._one_before, last), self._offered)
        two = graph.node("And", graph.node("Equal", self._two_before, before), one)
        by_length = [graph.node("Unsqueeze", part, graph.integers(1)) for part in (any_place, one, two)]
        matches = graph.node("Cast", graph.node("Concat", *by_length, axis=1), to=FLOAT)  # [n, l, t]
        places = graph.node("ReduceSum", matches, graph.integers(2))  # [n, l, 1]
        shares = graph.node("Div", matches, graph.node("Max", places, _scalar(graph, 1.0)))
        return _Matches(shares, graph.node("Squeeze", places, graph.integers(2)))


def add_text(graph: GraphBuilder) -> None:
    """What `encode.onnx` does for copying: the session's text with one more query, or none after the start query."""
    tokens = graph.input("tokens", INT64, ["t"])
    text = graph.input("memory_text", INT64, ["text"])
    longer = graph.node("Concat", text, graph.integers(BOS), tokens, graph.integers(EOS), axis=0)
    first = graph.node("Gather", tokens, graph.integers(0))
    starts = graph.node("Equal", first, graph.integers(BOS))
    end = graph.node("Where", starts, graph.integers(0), graph.node("Shape", longer))
    graph.output(graph.node("Slice", longer, graph.integers(0), end), "new_memory_text", INT64, ["new_text"])


def _scalar(graph: GraphBuilder, value: float) -> str:
    return graph.constant(np.array(value, dtype=np.float32))


def _columns(graph: GraphBuilder, value: str, widths: list[int]) -> list[str]:
    """`value` [n, ...] cut along its second axis."""
    if len(widths) == 1:
        return [value]
    return graph.nodes("Split", value, graph.integers(*widths), outputs=len(widths), axis=1)


def _joined(graph: GraphBuilder, parts: list[str]) -> str:
    """Parts [n, ...] side by side."""
    return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=1)
