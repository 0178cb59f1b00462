"""From a typed text to the endings that the model gives it: constraint, search, and strings in place of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.runtime.call import Call
from mtn_edge.runtime.engine import DEAD, NO_FLOOR, Engine, Hypotheses, SessionState
from mtn_edge.text import normalize
from mtn_edge.tokenizer import EOS, Tokenizer

WIDEST_BEAM = 64
"""Hypotheses at most, however many suggestions are asked for."""


@dataclass(frozen=True)
class Decoding:
    """How a bundle searches; the `decoding` section of its manifest."""

    beam: int = 8
    """Hypotheses of a search; more when more suggestions are asked for."""
    max_steps: int = 33
    """Tokens that a search writes at most, with `<eos>`."""
    min_probability: float = 0.0
    """Confidence floor: endings less probable than this, given the session and the typed text, are left out."""
    length_normalization: float = 0.0
    """Endings are ranked by log-probability / tokens ** this (Wu et al. 2016, section 7, without their constant)."""

    @classmethod
    def from_manifest(cls, section: dict[str, Any]) -> Decoding:
        """Reads the section; keys that this version does not know are left alone."""
        return cls(
            beam=int(section["beam"]),
            max_steps=int(section["max_steps"]),
            min_probability=float(section["min_probability"]),
            length_normalization=float(section["length_normalization"]),
        )


class Ending(NamedTuple):
    """What the model adds to a typed text."""

    text: str
    log_probability: float
    """Given the session and the typed text, summed over the segmentations that were found."""


class Found(NamedTuple):
    """The endings of one typed text, best first."""

    endings: list[Ending]
    doubtful: bool
    """Whether the confidence floor left something out."""


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
        self._floor = math.log(decoding.min_probability) if decoding.min_probability else NO_FLOOR

    def endings(self, state: SessionState, prefix: str, k: int, call: Call | None) -> Found | None:
        """What the model adds to `prefix` (in normal form) after the session `state`, for a list of `k`.

        Returns:
            The endings, or None when `prefix` is longer than the model can write.

        Raises:
            CallEndedError: `call` was ended.
        """
        hypotheses = self.hypotheses(state, prefix, k, call)
        return None if hypotheses is None else self._read(hypotheses, prefix)

    def hypotheses(self, state: SessionState, prefix: str, k: int, call: Call | None = None) -> Hypotheses | None:
        """The search behind `endings`: the same, as tokens."""
        engine, decoding = self.engine, self.decoding
        constraint = self.constraint.typed(prefix, engine.max_tokens)
        if constraint is None:
            return None
        return engine.search(
            state,
            constraint,
            beam=min(max(decoding.beam, min(k, WIDEST_BEAM)), engine.vocab_size),
            max_steps=min(decoding.max_steps, engine.max_tokens + 2 - len(constraint.start_tokens)),
            floor=self._floor,
            call=call,
        )

    def log_probability(self, state: SessionState, tokens: list[int], steps: int) -> float:
        """Log-probability of the first `steps` tokens of `tokens` and `<eos>`."""
        found = self.engine.search(state, self.constraint.exact(tokens), beam=1, max_steps=steps)
        return float(found.scores[0])

    def _read(self, hypotheses: Hypotheses, prefix: str) -> Found:
        settled = self.constraint.settled(prefix).encode()
        merged: dict[str, tuple[float, float]] = {}  # log-probability and rank of each text
        doubtful = False
        power = self.decoding.length_normalization
        for tokens, score in zip(hypotheses.tokens.tolist(), hypotheses.scores.tolist(), strict=True):
            if score <= DEAD:
                continue
            if EOS not in tokens:
                doubtful = True
                continue
            text = (settled + self.tokenizer.decode_bytes(tokens)).decode()
            # A combining mark would change what was typed, and some marks and blanks are no normal form.
            if normalize(text) != text:
                continue
            known, rank = merged.get(text, (None, 0.0))
            if known is None:
                # The first segmentation is the most probable one: its length counts.
                rank = (tokens.index(EOS) + 1) ** -power
                merged[text] = (score, rank)
            else:
                merged[text] = (known + math.log1p(math.exp(score - known)), rank)
        endings = [
            (rank * (score - hypotheses.mass), Ending(text[len(prefix) :], score - hypotheses.mass))
            for text, (score, rank) in merged.items()
        ]
        kept = [(rank, ending) for rank, ending in endings if ending.log_probability > self._floor]
        kept.sort(key=lambda entry: (-entry[0], entry[1].text))
        return Found([ending for _, ending in kept], doubtful or len(kept) < len(endings))
