"""What a bundle's decoding is tuned to on held-out pairs: how much the lists count, confidence floors, length.

Every pair is searched once, without a floor; then lists are made as the runtime makes them, for each candidate value.
The weights of popular queries and of followers are those with the best MRR, none when nothing gains `MIN_GAIN`. Where
no list is mixed in, so is the exponent of the length normalisation. The floor is the highest that costs at most
`MAX_LOSS` of the best MRR: what it cuts are suggestions that nobody would have taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from export.held_out import LIST, Pair
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.lists import NO_MIXING, Mixing, Offer, followers_of, mix, offered
from mtn_edge.runtime.search import Decoding, Ending, rank
from mtn_edge.runtime.suggester import Session, Suggester
from mtn_edge.text import normalize_prefix

FLOORS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2)
"""Probabilities tried as floors."""
EXPONENTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Exponents of the number of tokens tried as length normalisation."""
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Weights of the popular queries that are tried."""
TRUSTS = (0.2, 0.4, 0.6, 0.8)
"""Weights of the followers that are tried."""
DOUBTS = (0.5, 2.0, 8.0)
"""Counts at which half of that weight is given."""
MIN_GAIN = 0.005
"""Relative gain of MRR that mixing, or a length normalisation, must bring."""
MAX_LOSS = 0.002
"""Relative loss of MRR that a floor may cost."""
PREFIXES = 4
"""Typed texts of each pair."""


@dataclass(frozen=True)
class Lists:
    """The lists of a bundle."""

    popular: Completions
    followers: Completions


@dataclass(frozen=True)
class _Setting:
    """What is tuned, for one kind of typed text."""

    exponent: float = 0.0
    mixing: Mixing = NO_MIXING
    floor: float = 0.0


@dataclass(frozen=True)
class _Asked:
    """One typed text: what the model and the lists offer, and what was wanted."""

    typed: str
    wanted: str
    endings: list[Ending]
    popular: Offer
    followers: Offer

    def reciprocal_rank(self, setting: _Setting) -> float:
        """1 / rank of the query that came, in the list that these settings give; 0 when it is not in it."""
        least = math.log(setting.floor) if setting.floor else -math.inf
        kept = [ending for ending in self.endings if ending.log_probability > least]
        if setting.mixing.popular or setting.mixing.followers:
            model = [(self.typed + ending.text, ending.log_probability) for ending in kept]
            texts = [text for text, *_ in mix(model, self.popular, self.followers, setting.mixing)]
        else:
            texts = [self.typed + ending.text for ending in rank(kept, setting.exponent)]
        texts = [*texts, *(text for text, _ in self.popular.counts if text not in texts)][:LIST]
        return 1 / (1 + texts.index(self.wanted)) if self.wanted in texts else 0.0


def calibrate(suggester: Suggester, lists: Lists, pairs: Sequence[Pair], seed: int) -> Decoding:
    """The decoding of `suggester` with all of that tuned on `pairs`.

    Args:
        suggester: the model that will be shipped.
        lists: those that will be shipped with it.
        pairs: held-out sessions and next queries; with none of them the decoding stays as it is.
        seed: of the typed texts.
    """
    rng = np.random.default_rng(seed)
    complete, suggest = [], []
    for pair in pairs:
        session = suggester.session(pair.session)
        suggest += _ask(suggester, lists, session, "", pair.query)
        lengths = rng.permutation(np.arange(1, len(pair.query)))[:PREFIXES].tolist()
        for length in sorted(lengths):
            complete += _ask(suggester, lists, session, pair.query[:length], pair.query)
    if not complete or not suggest:
        return suggester.search.decoding
    exponent = _best([*complete, *suggest], [_Setting(exponent=each) for each in EXPONENTS]).exponent
    tuned = [_tune(asked, exponent) for asked in (complete, suggest)]
    return replace(
        suggester.search.decoding,
        length_normalization=exponent,
        min_probability_complete=tuned[0].floor,
        min_probability_suggest=tuned[1].floor,
        mix_complete=tuned[0].mixing,
        mix_suggest=tuned[1].mixing,
    )


def _ask(suggester: Suggester, lists: Lists, session: Session, typed: str, wanted: str) -> list[_Asked]:
    prefix = normalize_prefix(typed)
    found = suggester.search.endings(session.state, prefix, LIST, min_probability=0.0)
    last = session.queries[-1] if session.queries else ""
    popular, followers = offered(lists.popular, prefix, LIST), followers_of(lists.followers, last, prefix, LIST)
    return [] if found is None else [_Asked(prefix, wanted, found.endings, popular, followers)]


def _tune(asked: Sequence[_Asked], exponent: float) -> _Setting:
    """The weights of the lists, then the floor."""
    # With nothing typed the popular queries are no answer to the session.
    shares = SHARES if any(one.typed for one in asked) else SHARES[:1]
    grid = [Mixing(share) for share in shares]
    grid += [Mixing(*each) for each in itertools.product(shares, TRUSTS, DOUBTS)]
    best = _best(asked, [_Setting(exponent, each) for each in grid])
    mrr = {floor: _mrr(asked, replace(best, floor=floor)) for floor in FLOORS}
    if not max(mrr.values()):
        return best  # nothing was found with any floor: that speaks for none
    enough = (1 - MAX_LOSS) * max(mrr.values())
    return replace(best, floor=max(floor for floor in FLOORS if mrr[floor] >= enough))


def _mrr(asked: Sequence[_Asked], setting: _Setting) -> float:
    return sum(one.reciprocal_rank(setting) for one in asked) / len(asked)


def _best(asked: Sequence[_Asked], settings: Sequence[_Setting]) -> _Setting:
    """The setting with the highest MRR, or the first one, the plainest, when none gains `MIN_GAIN`."""
    mrr = [_mrr(asked, setting) for setting in settings]
    place = max(range(len(settings)), key=lambda number: (mrr[number], -number))
    return settings[place] if mrr[place] > (1 + MIN_GAIN) * mrr[0] else settings[0]
