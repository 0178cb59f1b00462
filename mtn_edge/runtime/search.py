"""From a typed text to the endings that the model gives it: constraint, search, and strings in place of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mtn_edge.decoding.prefix_constraint import Constraint, PrefixConstraint
from mtn_edge.decoding.query_trie import fitting, query_table
from mtn_edge.errors import UserError
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import DEAD, NO_FLOOR, Engine, Hypotheses, SessionState
from mtn_edge.runtime.lists import NO_MIXING, Mixing
from mtn_edge.text import normalize
from mtn_edge.tokenizer import EOS, Tokenizer

WIDEST_BEAM = 64
"""Hypotheses at most, however many suggestions are asked for."""
_HIGHEST_EXPONENT = 8
"""Largest exponent of the length normalisation; the usual ones are below 1."""


@dataclass(frozen=True)
class Decoding:
    """How a bundle searches; the `decoding` section of its manifest."""

    beam: int = 8
    """Hypotheses of a search; more when more suggestions are asked for."""
    max_steps: int = 33
    """Tokens that a search writes at most, with `<eos>`."""
    min_probability_complete: float = 0.0
    """Confidence floor with something typed: endings less probable, given session and typed text, are left out."""
    min_probability_suggest: float = 0.0
    """Confidence floor with nothing typed."""
    length_normalization: float = 0.0
    """Endings are ranked by log-probability / tokens ** this (Wu et al. 2016, section 7, without their constant); only
    where no list is mixed in."""
    mix_complete: Mixing = NO_MIXING
    """How much the lists count with something typed (`runtime.lists`)."""
    mix_suggest: Mixing = NO_MIXING
    """The same with nothing typed."""

    @classmethod
    def from_manifest(cls, section: Any) -> Decoding:
        """Reads the section; keys that this version does not know are left alone.

        Raises:
            UserError: a setting is missing or out of range.
        """
        try:
            read = cls(
                beam=int(section["beam"]),
                max_steps=int(section["max_steps"]),
                min_probability_complete=float(section["min_probability_complete"]),
                min_probability_suggest=float(section["min_probability_suggest"]),
                length_normalization=float(section["length_normalization"]),
                mix_complete=_mixing(section["mix_complete"]),
                mix_suggest=_mixing(section["mix_suggest"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            read = None
        if read is None or not read._is_sound():
            raise UserError(
                "the `decoding` section of a manifest lacks a setting, or one is out of range",
                code="bad-manifest",
                hint="make the bundle again",
            )
        return read

    def _is_sound(self) -> bool:
        floors = (self.min_probability_complete, self.min_probability_suggest)
        return (
            min(self.beam, self.max_steps) >= 1
            and all(0 <= floor < 1 for floor in floors)
            and 0 <= self.length_normalization <= _HIGHEST_EXPONENT
            and all(mixing.is_sound() for mixing in (self.mix_complete, self.mix_suggest))
        )

    def min_probability(self, prefix: str) -> float:
        """The confidence floor for a typed text."""
        return self.min_probability_complete if prefix else self.min_probability_suggest

    def mixing(self, prefix: str) -> Mixing:
        """How much the lists count for a typed text."""
        return self.mix_complete if prefix else self.mix_suggest


def _mixing(section: Any) -> Mixing:
    popular, followers, doubt = map(float, section)
    return Mixing(popular, followers, doubt)


class Ending(NamedTuple):
    """What the model adds to a typed text."""

    text: str
    log_probability: float
    """Given the session and the typed text, summed over the segmentations that were found."""
    tokens: int
    """How many tokens the search wrote for it, with `<eos>`."""


class Found(NamedTuple):
    """The endings of one typed text, best first."""

    endings: list[Ending]
    doubtful: bool
    """Whether something was left out that was below the confidence floor."""


class Search:
    """Searches with one engine.

    Args:
        engine: runs the model.
        tokenizer: its tokenizer.
        decoding: how to search.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, decoding: Decoding) -> None:
        self.engine, self.tokenizer, self.decoding = engine, tokenizer, decoding
        self.constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode)

    def endings(
        self,
        state: SessionState,
        prefix: str,
        k: int,
        *,
        min_probability: float | None = None,
        call: Call | None = None,
    ) -> Found | None:
        """What the model adds to a typed text.

        Args:
            state: the session.
            prefix: the typed text in normal form.
            k: endings wanted; it makes the search wider when it is more than the beam.
            min_probability: the confidence floor; None takes the one of `decoding`.
            call: the request, which can be ended from outside.

        Returns:
            The endings, or None when `prefix` is longer than the model can write.

        Raises:
            CallEndedError: `call` was ended.
        """
        least = self.decoding.min_probability(prefix) if min_probability is None else min_probability
        floor = math.log(least) if least else NO_FLOOR
        hypotheses = self.hypotheses(state, prefix, k, floor=floor, call=call)
        return None if hypotheses is None else self._read(hypotheses, prefix, floor)

    def among(
        self,
        state: SessionState,
        prefix: str,
        queries: Sequence[str],
        k: int,
        *,
        min_probability: float,
        call: Call | None = None,
    ) -> Found:
        """What the model adds to a typed text so that one of `queries` comes out; the rest as in `endings`.

        Args:
            state: the session.
            prefix: the typed text in normal form.
            queries: in normal form, each longer than `prefix` and beginning with it, the most important first: of more
                than fit into one table the last are left out. Each is spelt as the tokenizer spells it.
            k: endings wanted.
            min_probability: the confidence floor, among the tokens that begin one of `queries`.
            call: the request, which can be ended from outside.

        Raises:
            CallEndedError: `call` was ended.
        """
        if not queries:
            return Found([], doubtful=False)
        start_tokens = self.constraint.start_tokens(prefix)
        settled = len(start_tokens) - 1
        spelt = [self.tokenizer.encode(query)[settled:] for query in queries]
        spelt = [tokens for tokens in spelt if settled + len(tokens) <= self.engine.max_tokens]
        if not spelt:
            return Found([], doubtful=False)
        floor = math.log(min_probability) if min_probability else NO_FLOOR
        table = query_table(fitting(spelt), self.engine.vocab_size)
        return self._read(self._search(state, Constraint(start_tokens, table, 0), k, floor, call), prefix, floor)

    def hypotheses(
        self, state: SessionState, prefix: str, k: int, *, floor: float = NO_FLOOR, call: Call | None = None
    ) -> Hypotheses | None:
        """The search behind `endings`: the same, as tokens; `floor` is a log-probability."""
        constraint = self.constraint.typed(prefix, self.engine.max_tokens)
        return None if constraint is None else self._search(state, constraint, k, floor, call)

    def _search(
        self, state: SessionState, constraint: Constraint, k: int, floor: float, call: Call | None
    ) -> Hypotheses:
        engine, decoding = self.engine, self.decoding
        return engine.search(
            state,
            constraint,
            beam=min(max(decoding.beam, min(k, WIDEST_BEAM)), engine.vocab_size),
            max_steps=min(decoding.max_steps, engine.max_tokens + 2 - len(constraint.start_tokens)),
            floor=floor,
            call=call,
        )

    def log_probability(self, state: SessionState, tokens: list[int], steps: int) -> float:
        """Log-probability of the first `steps` tokens of `tokens` and `<eos>`."""
        found = self.engine.search(state, self.constraint.exact(tokens), beam=1, max_steps=steps)
        return float(found.scores[0])

    def _read(self, hypotheses: Hypotheses, prefix: str, floor: float) -> Found:
        settled = self.constraint.settled(prefix).encode()
        merged: dict[str, Ending] = {}
        doubtful = False
        for tokens, score in zip(hypotheses.tokens.tolist(), hypotheses.scores.tolist(), strict=True):
            if score <= DEAD:
                break  # best first: what follows is dead too
            if EOS not in tokens:  # given up at the floor, or out of steps
                doubtful = doubtful or score <= hypotheses.mass + floor
                continue
            text = (settled + self.tokenizer.decode_bytes(tokens)).decode()
            # A combining mark would change what was typed, and some marks and blanks are no normal form.
            if text != (text.lower() if text.isascii() else normalize(text)):
                continue
            known = merged.get(text)
            score -= hypotheses.mass
            if known is None:
                merged[text] = Ending(text[len(prefix) :], score, tokens.index(EOS) + 1)
            else:  # the first segmentation is the most probable one, and its length counts
                total = known.log_probability + math.log1p(math.exp(score - known.log_probability))
                merged[text] = known._replace(log_probability=total)
        kept = [ending for ending in merged.values() if ending.log_probability > floor]
        return Found(rank(kept, self.decoding.length_normalization), doubtful or len(kept) < len(merged))


def rank(endings: Iterable[Ending], length_normalization: float) -> list[Ending]:
    """`endings`, best first: by log-probability / tokens ** `length_normalization`, equal ones by their texts."""
    return sorted(
        endings, key=lambda ending: (-ending.log_probability / ending.tokens**length_normalization, ending.text)
    )
