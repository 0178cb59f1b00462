"""What the log knows by heart, mixed into the model's list: popular queries, and what followed the last query.

A list is a distribution over whole queries too: that of a popular query is its share of all popular ones under the
typed text, that of a follower its share of all that followed the session's last query and begin with it. Of n followers
that were counted, as much is believed as n / (n + doubt). So for a whole query q, with f = followers * n / (n + doubt),

    p(q) = f * follower's share + (1 - f) * [popular * popular share + (1 - popular) * the model's p(q)]

and what several of them offer stands in the list once, with the sum. Mixed token by token instead, a list spreads its
mass over what nobody ever searched.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mtn_edge.runtime.choice import Source
from mtn_edge.runtime.completions import Completions

FOLLOWERS = "followers.list"
"""What a bundle calls its list of followers."""
_BETWEEN = "\t"
"""Stands between a query and its follower; no query in normal form holds one."""


class Mixing(NamedTuple):
    """How much the lists count."""

    popular: float = 0.0
    followers: float = 0.0
    doubt: float = 1.0
    """In queries counted."""

    def is_sound(self) -> bool:
        """Whether the shares are shares."""
        return 0 <= self.popular < 1 and 0 <= self.followers < 1 and 0 < self.doubt < math.inf


NO_MIXING = Mixing()


class Offer(NamedTuple):
    """What a list offers under a typed text."""

    counts: Sequence[tuple[str, int]]
    """The most frequent whole queries, best first."""
    total: int
    """The sum of the counts of all that it holds there."""


def pair_entries(pairs: Iterable[tuple[str, str, int]]) -> list[tuple[str, int]]:
    """Queries, their followers and how often they followed, as entries of a `Completions`."""
    return [(f"{query}{_BETWEEN}{follower}", count) for query, follower, count in pairs]


def offered(completions: Completions, prefix: str, k: int) -> Offer:
    """The best `k` popular queries under a typed text in normal form, but for that text itself."""
    return _longer(completions, prefix, prefix, k)


def followers_of(followers: Completions, last: str, prefix: str, k: int) -> Offer:
    """The best `k` followers of the query `last` that begin with `prefix`, both in normal form."""
    begins = f"{last}{_BETWEEN}"
    found = _longer(followers, begins + prefix, begins + prefix, k)
    return Offer([(text[len(begins) :], count) for text, count in found.counts], found.total)


def _longer(completions: Completions, prefix: str, echo: str, k: int) -> Offer:
    counts, total = completions.top(prefix, k + 1), completions.weight(prefix)
    same = sum(count for text, count in counts if text == echo)
    return Offer([entry for entry in counts if entry[0] != echo][:k], total - same)


def mix(
    model: Iterable[tuple[str, float]], popular: Offer, followers: Offer, mixing: Mixing
) -> list[tuple[str, float, Source]]:
    """All that is offered, best first, equal ones by their texts: text, log-probability, and who gave most of it.

    Args:
        model: the model's whole queries with their log-probabilities.
        popular: of the list of popular queries.
        followers: of what followed the last query.
        mixing: how much the lists count.
    """
    trust = mixing.followers * followers.total / (followers.total + mixing.doubt) if followers.total else 0.0
    share = mixing.popular if popular.total else 0.0
    own = {text: (1 - trust) * (1 - share) * math.exp(log_probability) for text, log_probability in model}
    listed: dict[str, float] = defaultdict(float)
    for offer, weight in ((popular, (1 - trust) * share), (followers, trust)):
        for text, count in offer.counts if weight else ():
            listed[text] += weight * count / offer.total
    whole: list[tuple[str, float, Source]] = []
    for text in own | listed:
        mine, theirs = own.get(text, 0.0), listed.get(text, 0.0)
        if mine + theirs:
            whole.append((text, math.log(mine + theirs), "model" if mine >= theirs else "completions"))
    return sorted(whole, key=lambda entry: (-entry[1], entry[0]))
