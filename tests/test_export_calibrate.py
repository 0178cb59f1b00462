"""Floors and length normalisation are those that cost nothing on held-out pairs, computed by hand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from export.calibrate import Lists, calibrate
from export.held_out import Pair
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import Hypotheses
from mtn_edge.runtime.lists import NO_MIXING, pair_entries
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.tokenizer import EOS, PAD, Tokenizer

TOKENIZER = Tokenizer.train(["newspaper", "net"] * 9, 300)
NOBODY = Completions(())
PAIRS = [Pair((), "newspaper", ""), Pair((), "newspaper", "new")] * 5


class AlwaysTheSame:
    """An engine that finds the same words whatever was typed; each row is a word's tokens and its probability."""

    vocab_size, max_tokens, max_queries = len(TOKENIZER), 12, 4

    def __init__(self, *rows: tuple[list[int], float]) -> None:
        longest = max(len(tokens) for tokens, _ in rows)
        tokens = np.array([[*tokens, EOS] + [PAD] * (longest - len(tokens)) for tokens, _ in rows])
        scores = np.array([math.log(probability) for _, probability in rows], dtype=np.float32)
        self._found = Hypotheses(tokens, scores, 0.0)

    def start(self) -> None:
        return None

    def append(self, *_: Any) -> None:
        return None

    def search(self, *_: Any, **__: Any) -> Hypotheses:
        return self._found


def whole(word: str) -> list[int]:
    return [TOKENIZER.token_bytes.index(word.encode())]


def spelt(word: str) -> list[int]:
    return [TOKENIZER.token_bytes.index(bytes([letter])) for letter in word.encode()]


def tuned(
    *rows: tuple[list[int], float],
    pairs: Sequence[Pair] = PAIRS,
    popular: Completions = NOBODY,
    followers: Completions = NOBODY,
) -> Decoding:
    suggester = Suggester(
        engine=AlwaysTheSame(*rows),  # type: ignore[arg-type]
        tokenizer=TOKENIZER,
        completions=NOBODY,
        blocklist=Blocklist(),
        decoding=Decoding(beam=2, max_steps=9),
    )
    return calibrate(suggester, Lists(popular, followers), pairs, seed=1)


def test_the_highest_floor_that_keeps_what_is_taken() -> None:
    assert tuned((whole("newspaper"), 0.3), (whole("net"), 0.05)) == Decoding(2, 9, 0.2, 0.2, 0.0)


def test_what_is_taken_now_and_then_holds_the_floor_down() -> None:
    pairs = [*PAIRS, Pair((), "net", "")]
    assert tuned((whole("newspaper"), 0.3), (whole("net"), 0.06), pairs=pairs) == Decoding(2, 9, 0.05, 0.05, 0.0)


def test_each_task_has_its_own_floor() -> None:
    # With one letter there is no typed text but the whole query: only the empty one is asked about.
    pairs = [Pair((), "newspaper", "")] * 9 + [Pair((), "n", "")]
    found = tuned((whole("newspaper"), 0.3), (spelt("n"), 0.04), pairs=pairs)
    assert (found.min_probability_complete, found.min_probability_suggest) == (0.2, 0.03)


def test_a_list_that_popular_queries_fill_better_is_left_to_them() -> None:
    found = tuned((whole("net"), 0.09), popular=Completions([("newspaper", 3)]))
    assert (found.min_probability_complete, found.min_probability_suggest) == (0.2, 0.2)


@pytest.mark.parametrize(("probability", "exponent"), [(0.4, 0.0), (0.3, 0.2), (0.2, 0.4), (math.exp(-2), 0.6)])
def test_the_smallest_length_normalization_that_ranks_best(probability: float, exponent: float) -> None:
    """Against `net` with e^-1 in 2 tokens: ln p / 10^a must pass -1 / 2^a, so a > log(-ln p) / log 5."""
    rows = [(whole("net"), math.exp(-1)), (spelt("newspaper"), probability)]
    rows.sort(key=lambda row: -row[1])
    assert tuned(*rows).length_normalization == exponent
    assert exponent == 0 or math.log(-math.log(probability)) / math.log(5) < exponent


def test_without_pairs_nothing_changes() -> None:
    assert tuned((whole("net"), 0.5), pairs=[]) == Decoding(2, 9)


def test_where_nothing_is_ever_found_there_is_no_floor() -> None:
    pairs = [Pair((), "york", ""), Pair((), "york", "yo")] * 3
    assert tuned((whole("newspaper"), 0.3), pairs=pairs) == Decoding(2, 9, 0.0, 0.0, 0.0)


def test_lists_count_where_they_rank_better_than_the_model() -> None:
    """Every session asks `newspaper` after `york`; the model prefers `net`, and one list knows better."""
    pairs = [Pair(("york",), "newspaper", ""), Pair(("york",), "newspaper", "new")] * 5
    rows = (whole("net"), 0.5), (whole("newspaper"), 0.1)
    plain = tuned(*rows, pairs=pairs)
    assert plain.mix_suggest == plain.mix_complete == NO_MIXING
    followed = tuned(*rows, pairs=pairs, followers=Completions(pair_entries([("york", "newspaper", 4)])))
    assert followed.mix_suggest.followers > 0
    assert followed.mix_complete.followers > 0
    asked = tuned(*rows, pairs=pairs, popular=Completions([("newspaper", 3)]))
    assert asked.mix_complete.popular > 0
    assert asked.mix_suggest == NO_MIXING  # with nothing typed, popular queries are no answer to a session
    elsewhere = tuned(*rows, pairs=pairs, followers=Completions(pair_entries([("york", "net", 4)])))
    assert elsewhere.mix_suggest == NO_MIXING
