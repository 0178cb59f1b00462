"""Lists in the mix: shares that sum to one, followers of the last query, one line for what several offer."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.lists import Mixing, Offer, followers_of, mix, offered, pair_entries

POPULAR = Completions([("new york", 6), ("new", 3), ("newark", 1), ("boston", 10)])
PAIRS = Completions(
    pair_entries(
        [("boston", "new york", 3), ("boston", "new york hotels", 1), ("boston", "maine", 4), ("bosto", "n", 9)]
    )
)
NOTHING = Offer([], 0)
a_query = st.text("ab ", min_size=1, max_size=4)


def test_a_list_offers_what_is_longer_than_what_was_typed() -> None:
    assert offered(POPULAR, "new", 5) == Offer([("new york", 6), ("newark", 1)], 7)
    assert offered(POPULAR, "new", 1) == Offer([("new york", 6)], 7)
    assert offered(POPULAR, "x", 5) == NOTHING


def test_followers_are_those_of_the_last_query_alone() -> None:
    assert followers_of(PAIRS, "boston", "", 5) == Offer([("maine", 4), ("new york", 3), ("new york hotels", 1)], 8)
    assert followers_of(PAIRS, "boston", "new york", 5) == Offer([("new york hotels", 1)], 1)
    assert followers_of(PAIRS, "", "", 5) == NOTHING
    assert followers_of(PAIRS, "bost", "", 5) == NOTHING


def test_the_sum_of_what_each_gives() -> None:
    model = [("new york", math.log(0.5)), ("new jersey", math.log(0.2))]
    popular, followed = Offer([("new york", 3), ("newark", 1)], 4), Offer([("new jersey", 2)], 2)
    found = mix(model, popular, followed, Mixing(popular=0.2, followers=0.6, doubt=1.0))
    trust = 0.6 * 2 / 3
    assert [(text, source) for text, _, source in found] == [
        ("new jersey", "completions"),
        ("new york", "model"),
        ("newark", "completions"),
    ]
    chances = [math.exp(score) for _, score, _ in found]
    assert chances[0] == pytest.approx(trust + (1 - trust) * 0.8 * 0.2)
    assert chances[1] == pytest.approx((1 - trust) * (0.2 * 0.75 + 0.8 * 0.5))
    assert chances[2] == pytest.approx((1 - trust) * 0.2 * 0.25)


def test_a_list_that_has_nothing_takes_nothing_from_the_model() -> None:
    model = [("a", -0.3), ("b", -2.0)]
    found = mix(model, NOTHING, NOTHING, Mixing(0.5, 0.5, 1.0))
    assert [(text, pytest.approx(score)) for text, score, _ in found] == model


@given(
    model=st.dictionaries(a_query, st.floats(0.01, 1.0), max_size=5),
    popular=st.dictionaries(a_query, st.integers(1, 9), max_size=5),
    followed=st.dictionaries(a_query, st.integers(1, 9), max_size=5),
    mixing=st.builds(Mixing, st.floats(0, 0.9), st.floats(0, 0.9), st.floats(0.1, 9)),
)
def test_a_mixture_of_distributions_is_one(
    model: dict[str, float], popular: dict[str, int], followed: dict[str, int], mixing: Mixing
) -> None:
    whole = sum(model.values()) or 1.0
    given_model = [(text, math.log(chance / whole)) for text, chance in model.items()]
    offers = [Offer(Counter(counts).most_common(), sum(counts.values())) for counts in (popular, followed)]
    found = mix(given_model, *offers, mixing)
    texts = [text for text, *_ in found]
    assert len(texts) == len(set(texts))
    scores = [score for _, score, _ in found]
    assert scores == sorted(scores, reverse=True)
    if model:
        assert sum(map(math.exp, scores)) == pytest.approx(1)
