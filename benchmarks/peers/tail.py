"""The shape of the tail model that a large browser ships for on-device suggestions, re-created on ONNX Runtime in int8.

As its published sources describe it: the previous query (one only) becomes 64 numbers; the typed text is tokenized by
greedy longest match and its last token healed (every token that begins with it stays possible, and the probabilities
of these are brought to a sum of 1); then a beam search with one call of the LSTM for each hypothesis, at most 20 steps
and 5 suggestions, hypotheses below a probability of 0.01 dropped. The last 10 encodings and 20 steps of typed text are
kept. Its input is trimmed, so a typed blank at the end is lost, and nothing is suggested before the first letter.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import BOS, EOS, PAD, Tokenizer
from peers import distinct_continuations
from peers.python_beam import open_graph
from peers.tail_network import UNITS, Words

WIDTH, MAX_STEPS, LEAST = 5, 20, 0.01
"""Hypotheses and suggestions; steps at most; probability below which a hypothesis is dropped."""
KEPT_ENCODINGS, KEPT_STEPS = 10, 20


class State(NamedTuple):
    """The LSTM after some tokens."""

    hidden: Any
    cell: Any


class Node(NamedTuple):
    """A hypothesis: its probability, its tokens, and the state before the last of them."""

    probability: float
    tokens: tuple[int, ...]
    state: State


class TailModel:
    """The executor of that model.

    Args:
        folder: what `tail_network.make_tail` wrote.
    """

    name = "LSTM tail model"
    steps: int | None

    def __init__(self, folder: Path) -> None:
        self._words = Words(Tokenizer.load(folder / "tokenizer.json"))
        self._encode = open_graph(onnx.load(folder / "encode.onnx"))
        self._step = open_graph(onnx.load(folder / "step.onnx"))
        self._encodings: OrderedDict[str, Any] = OrderedDict()
        self._typed_states: OrderedDict[tuple[int, ...], State] = OrderedDict()
        self._previous = ""
        self.steps = None

    def start(self, queries: list[str]) -> None:
        """Notes the previous query: nothing else of the session is used."""
        self._previous = queries[-1]
        self._typed_states.clear()

    def suggest(self, typed: str) -> list[str]:
        """Up to five texts."""
        self.steps = 0
        tokens = self._words.encode(normalize(typed))
        if not tokens:
            return []
        context = self._context()
        *certain, last = tokens
        healed = np.array([spelt.startswith(self._words.spelt[last]) for spelt in self._words.spelt])
        beam = [Node(1.0, (BOS, *certain), self._state_before((BOS, *certain), context))]
        finished: list[Node] = []
        while beam and self.steps < MAX_STEPS and len(finished) < WIDTH:
            grown: list[Node] = []
            for node in beam:
                probabilities, state = self._run(node.tokens[-1], context, node.state)
                if self.steps == 0:
                    probabilities = np.where(healed, probabilities, 0)
                    probabilities /= max(probabilities.sum(), 1e-30)
                probabilities[[PAD, BOS]] = 0
                grown += [
                    Node(node.probability * float(probabilities[token]), (*node.tokens, token), state)
                    for token in np.argpartition(probabilities, -WIDTH)[-WIDTH:].tolist()
                ]
            self.steps += 1
            grown = sorted((each for each in grown if each.probability >= LEAST), key=lambda each: -each.probability)
            finished += [each for each in grown if each.tokens[-1] == EOS]
            beam = [each for each in grown if each.tokens[-1] != EOS][:WIDTH]
        finished = sorted(finished, key=lambda each: -each.probability)[:WIDTH]
        spelt = [b"".join(self._words.spelt[token] for token in each.tokens) for each in finished]
        return distinct_continuations([text.decode(errors="replace") for text in spelt], normalize_prefix(typed))

    def _context(self) -> Any:
        """The encoding [1, 64] of the previous query."""
        if self._previous not in self._encodings:
            tokens = np.array(self._words.encode(self._previous), dtype=np.int64)
            self._encodings[self._previous] = self._encode.run(None, {"tokens": tokens})[0]
            if len(self._encodings) > KEPT_ENCODINGS:
                self._encodings.popitem(last=False)
        self._encodings.move_to_end(self._previous)
        return self._encodings[self._previous]

    def _state_before(self, tokens: tuple[int, ...], context: Any) -> State:
        """The state after all of `tokens` but the last, from the longest beginning that is kept."""
        done = next((n for n in range(len(tokens) - 1, 0, -1) if tokens[:n] in self._typed_states), 0)
        nothing = np.zeros((1, UNITS), dtype=np.float32)
        state = self._typed_states[tokens[:done]] if done else State(nothing, nothing)
        if done:
            self._typed_states.move_to_end(tokens[:done])
        for place in range(done, len(tokens) - 1):
            _, state = self._run(tokens[place], context, state)
            self._typed_states[tokens[: place + 1]] = state
            if len(self._typed_states) > KEPT_STEPS:
                self._typed_states.popitem(last=False)
        return state

    def _run(self, token: int, context: Any, state: State) -> tuple[Any, State]:
        """Probabilities [V] of the token after `token`, and the state after it."""
        probabilities, hidden, cell = self._step.run(
            None, {"token": np.array([token]), "context": context, "hidden": state.hidden, "cell": state.cell}
        )
        return probabilities[0], State(hidden, cell)
