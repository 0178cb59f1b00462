"""A smaller vocabulary still writes every text, and what is hardly used goes first."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.tokenizer import MIN_VOCAB, SPECIALS, Tokenizer
from quantize.vocabulary import choose_tokens, count_tokens, is_part_of

QUERIES = ["new york hotels", "new york weather", "restaurants near me", "東京 天気", "сколько стоит", "jobs 🎉"] * 5
WHOLE = Tokenizer.train(QUERIES, 340)
MERGED = len(WHOLE) - MIN_VOCAB
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
COMMON = ["new york hotels", "new york weather"] * 20 + ["jobs"]


@settings(max_examples=200, deadline=None)
@given(TEXT, st.integers(0, MERGED), st.lists(st.sampled_from(QUERIES), max_size=8), st.booleans())
def test_any_text_comes_back_from_a_smaller_vocabulary(text: str, remove: int, used: list[str], counted: bool) -> None:
    kept = choose_tokens(WHOLE, count_tokens(WHOLE, used) if counted else None, remove)
    smaller = WHOLE.restricted(kept)
    assert len(smaller) == len(WHOLE) - remove
    assert smaller.decode_bytes(smaller.encode(text)) == text.encode()
    assert smaller.token_bytes == [WHOLE.token_bytes[token] for token in kept]
    assert is_part_of(smaller, WHOLE)
    assert is_part_of(WHOLE, smaller) == (remove == 0)


def test_what_is_used_stays() -> None:
    counts = count_tokens(WHOLE, COMMON)
    smaller = WHOLE.restricted(choose_tokens(WHOLE, counts, MERGED // 2))
    assert smaller.encode("new york hotels") != []
    assert [smaller.token_bytes[token] for token in smaller.encode("new york hotels")] == [
        WHOLE.token_bytes[token] for token in WHOLE.encode("new york hotels")
    ]
    assert len(smaller.encode("restaurants near me")) > len(WHOLE.encode("restaurants near me"))


def test_every_kept_token_can_be_made() -> None:
    """Each merged token that stays is what its own spelling is cut into, as in the whole vocabulary."""
    for remove in (1, MERGED // 3, MERGED - 1):
        smaller = WHOLE.restricted(choose_tokens(WHOLE, count_tokens(WHOLE, COMMON), remove))
        made = {smaller.token_bytes[left] + smaller.token_bytes[right] for left, right in smaller.merges()}
        assert made == set(smaller.token_bytes[MIN_VOCAB:])


def test_without_counts_the_last_learnt_goes_first() -> None:
    kept = choose_tokens(WHOLE, None, 10)
    made = [WHOLE.token_bytes[token] for token in kept]
    assert set(kept) >= set(range(MIN_VOCAB))
    merges = [WHOLE.token_bytes[left] + WHOLE.token_bytes[right] for left, right in WHOLE.merges()]
    assert merges[-1] not in made
    assert merges[0] in made


def test_a_part_takes_over_the_count_of_what_was_made_from_it() -> None:
    tokenizer = Tokenizer.train(["aab"] * 9 + ["cd"] * 5, MIN_VOCAB + 3)
    spelt = {tokenizer.token_bytes[token]: token for token in range(MIN_VOCAB, len(tokenizer))}
    assert len(spelt) == 3
    longest = max(spelt, key=len)
    assert longest == b"aab"
    counts = Counter({spelt[b"aab"]: 3, spelt[b"cd"]: 5})
    # `aab` goes first; then its part is worth 3, less than `cd`.
    assert spelt[b"cd"] in choose_tokens(tokenizer, counts, 2)
    assert spelt[b"cd"] not in choose_tokens(tokenizer, Counter({spelt[b"aab"]: 7, spelt[b"cd"]: 5}), 2)


def test_specials_and_bytes_stay(tmp_path: Path) -> None:
    smallest = WHOLE.restricted(choose_tokens(WHOLE, None, MERGED))
    assert len(smallest) == MIN_VOCAB
    assert smallest.token_bytes[: len(SPECIALS)] == [b""] * len(SPECIALS)
    smallest.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("東京") == smallest.encode("東京")
    with pytest.raises(UserError, match=f"{MERGED + 1} of {len(WHOLE)} tokens were to be removed, and {MERGED} can go"):
        choose_tokens(WHOLE, None, MERGED + 1)
