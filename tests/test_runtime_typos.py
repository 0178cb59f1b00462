"""Completions across one typo, against every text at distance 1 spelt out."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.typos import corrected


def distance(one: str, other: str) -> int:
    """Damerau-Levenshtein, each letter touched once at most, by its recurrence."""
    rows = [[at + place if 0 in (at, place) else 0 for place in range(len(other) + 1)] for at in range(len(one) + 1)]
    for at in range(1, len(one) + 1):
        for place in range(1, len(other) + 1):
            same = one[at - 1] == other[place - 1]
            costs = [rows[at - 1][place] + 1, rows[at][place - 1] + 1, rows[at - 1][place - 1] + (not same)]
            if at > 1 and place > 1 and one[at - 1] == other[place - 2] and one[at - 2] == other[place - 1]:
                costs.append(rows[at - 2][place - 2] + 1)
            rows[at][place] = min(costs)
    return rows[-1][-1]


def plainly_corrected(typed: str, entries: dict[str, int], k: int) -> list[tuple[str, int]]:
    """For texts without digits: looks at every beginning of every query."""
    if len(typed.replace(" ", "")) < 3:
        return []
    early, late = [], []
    for query, count in entries.items():
        if query.startswith(typed) or query[:1] != typed[0]:
            continue
        near = [query[:end] for end in range(1, len(query) + 1) if distance(query[:end], typed) == 1]
        if any(typed[:-1] not in (text, text[:-1]) for text in near):
            early.append((query, count))
        elif query.startswith(typed[:-1]):
            late.append((query, count))
    return [entry for part in (early, late) for entry in sorted(part, key=lambda x: (-x[1], x[0]))][:k]


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text("ab é", min_size=1, max_size=7), st.integers(1, 4), max_size=40),
    st.text("ab é", min_size=1, max_size=6),
    st.sampled_from([1, 3, 100]),
)
def test_corrected_is_what_a_plain_search_finds(entries: dict[str, int], typed: str, k: int) -> None:
    assert corrected(typed, Completions(entries.items()), k) == plainly_corrected(typed, entries, k)


def test_every_slip_in_every_letter_but_the_first_is_forgiven() -> None:
    generator = random.Random(1)
    word = "restaurants near 東京"
    completions = Completions([(word, 7), ("weather", 9)])
    for at in range(1, len(word) - 1):
        typed = word[: generator.randrange(max(at + 2, 4), len(word) + 1)]
        wrong = generator.choice("xyzжé")
        for slip in (
            typed[:at] + typed[at + 1 :],
            typed[:at] + wrong + typed[at:],
            typed[:at] + wrong + typed[at + 1 :],
            typed[:at] + typed[at + 1] + typed[at] + typed[at + 2 :],
        ):
            if not word.startswith(slip):
                assert corrected(slip, completions, 5) == [(word, 7)], slip


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("wether", ["weather today", "weather"]),
        ("waether", ["weather today", "weather"]),
        ("weathe", []),  # no typo at all
        ("we", []),
        ("w e", []),
        ("", []),
        ("xeather", []),  # the first letter is taken to be right
        ("iphone 15", []),  # another thing, not a typo
        ("iphone 1", []),
        ("ihpone 14", ["iphone 14"]),
        ("iphonee 14", ["iphone 14"]),
        ("newyork", ["new york"]),
        ("weatherx", ["weather today", "weather"]),
        ("aple", ["apple"]),
        ("caffe", ["cafe 9"]),
    ],
)
def test_what_counts_as_a_typo(typed: str, found: list[str]) -> None:
    completions = Completions(
        [("weather", 5), ("weather today", 9), ("iphone 14", 3), ("new york", 3), ("apple", 2), ("cafe 9", 1)]
    )
    assert [query for query, _ in corrected(typed, completions, 5)] == found


def test_a_slip_in_the_last_letter_comes_last() -> None:
    completions = Completions([("new balance", 90), ("newly", 2), ("ne w", 1), ("news", 50)])
    assert [query for query, _ in corrected("newy", completions, 9)] == ["newly", "new balance", "news"]
    assert [query for query, _ in corrected("new y", completions, 9)] == ["newly", "new balance"]
    assert [query for query, _ in corrected("new y", completions, 1)] == ["newly"]
