"""What a bundle's decoding is tuned to on held-out pairs: the confidence floors and the length normalisation.

Every pair is searched once, without a floor; then lists are made as the runtime makes them, for each candidate value.
The exponent of the length normalisation is the one with the best MRR, none when nothing gains `MIN_GAIN`. The floor
is the highest that costs at most `MAX_LOSS` of the best MRR: what it cuts are suggestions that nobody would have taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from export.held_out import LIST, Pair
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.search import Decoding, Ending, rank
from mtn_edge.runtime.suggester import Session, Suggester
from mtn_edge.text import normalize_prefix

FLOORS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2)
"""Probabilities tried as floors."""
EXPONENTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Exponents of the number of tokens tried as length normalisation."""
MIN_GAIN = 0.005
"""Relative gain of MRR that a length normalisation must bring."""
MAX_LOSS = 0.002
"""Relative loss of MRR that a floor may cost."""
PREFIXES = 4
"""Typed texts of each pair."""


@dataclass(frozen=True)
class _Asked:
    """One typed text: what the model and the popular queries offer, and what was wanted."""

    typed: str
    wanted: str
    endings: list[Ending]
    popular: list[str]

    def reciprocal_rank(self, exponent: float, floor: float) -> float:
        """1 / rank of the query that came, in the list that these settings give; 0 when it is not in it."""
        least = math.log(floor) if floor else -math.inf
        kept = [ending for ending in self.endings if ending.log_probability > least]
        texts = [self.typed + ending.text for ending in rank(kept, exponent)]
        texts = [*texts, *(text for text in self.popular if text not in texts)][:LIST]
        return 1 / (1 + texts.index(self.wanted)) if self.wanted in texts else 0.0


def calibrate(suggester: Suggester, completions: Completions, pairs: Sequence[Pair], seed: int) -> Decoding:
    """The decoding of `suggester` with floors and length normalisation tuned on `pairs`.

    Args:
        suggester: the model that will be shipped.
        completions: the popular queries that fill its lists.
        pairs: held-out sessions and next queries; with none of them the decoding stays as it is.
        seed: of the typed texts.
    """
    rng = np.random.default_rng(seed)
    complete, suggest = [], []
    for pair in pairs:
        session = suggester.session(pair.session)
        suggest += _ask(suggester, completions, session, "", pair.query)
        lengths = rng.permutation(np.arange(1, len(pair.query)))[:PREFIXES].tolist()
        for length in sorted(lengths):
            complete += _ask(suggester, completions, session, pair.query[:length], pair.query)
    if not complete or not suggest:
        return suggester.search.decoding
    exponent = _best_exponent([*complete, *suggest])
    return replace(
        suggester.search.decoding,
        length_normalization=exponent,
        min_probability_complete=_highest_floor(complete, exponent),
        min_probability_suggest=_highest_floor(suggest, exponent),
    )


def _ask(suggester: Suggester, completions: Completions, session: Session, typed: str, wanted: str) -> list[_Asked]:
    prefix = normalize_prefix(typed)
    found = suggester.search.endings(session.state, prefix, LIST, min_probability=0.0)
    popular = [text for text, _ in completions.top(prefix, LIST + 1) if text != prefix]
    return [] if found is None else [_Asked(prefix, wanted, found.endings, popular)]


def _mrr(asked: Sequence[_Asked], exponent: float, floor: float) -> float:
    return sum(one.reciprocal_rank(exponent, floor) for one in asked) / len(asked)


def _best_exponent(asked: Sequence[_Asked]) -> float:
    mrr = {exponent: _mrr(asked, exponent, 0.0) for exponent in EXPONENTS}
    best = max(EXPONENTS, key=lambda exponent: (mrr[exponent], -exponent))
    return best if mrr[best] > (1 + MIN_GAIN) * mrr[0.0] else 0.0


def _highest_floor(asked: Sequence[_Asked], exponent: float) -> float:
    mrr = {floor: _mrr(asked, exponent, floor) for floor in FLOORS}
    if not max(mrr.values()):
        return 0.0  # nothing was found with any floor: that speaks for none
    enough = (1 - MAX_LOSS) * max(mrr.values())
    return max(floor for floor in FLOORS if mrr[floor] >= enough)
