"""BPE dropout: the same text in other tokens, the same ones for the same epoch."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.data.batches import Spelling
from mtn_edge.data.bpe_dropout import BpeDropout
from mtn_edge.tokenizer import Tokenizer

TEXTS = ["new york hotels", "new york weather", "hotels near me", "naïve café", "東京 天気", "don't", "v2.0 jobs 🎉"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 5 + ["weather", "near", "york"] * 5, 330)


def spelt(found: Spelling) -> list[list[int]]:
    return [
        found.tokens[a:b].tolist() for a, b in zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.one_of(st.sampled_from(TEXTS), st.text("newyorkhtls 'é東2.", max_size=20)), max_size=8))
def test_without_dropout_the_tokenizers_own_tokens_come_out(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert spelt(BpeDropout(tokenizer, texts, 0.0)(1, 0)) == tokenizer.encode_batch(texts)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.sampled_from(TEXTS), max_size=8), rate=st.floats(0, 0.99), epoch=st.integers(0, 9))
def test_the_text_stays_the_same(tokenizer: Tokenizer, texts: list[str], rate: float, epoch: int) -> None:
    found = BpeDropout(tokenizer, texts, rate)(3, epoch)
    assert [tokenizer.decode_bytes(tokens).decode() for tokens in spelt(found)] == texts
    assert found.tokens.dtype == np.int32


def test_an_epoch_is_a_function_of_seed_and_number(tokenizer: Tokenizer) -> None:
    texts = TEXTS * 20
    one, two = BpeDropout(tokenizer, texts, 0.3), BpeDropout(tokenizer, texts, 0.3)
    assert spelt(one(1, 4)) == spelt(two(1, 4))
    assert spelt(one(1, 4)) != spelt(two(1, 5))
    assert spelt(one(1, 4)) != spelt(two(2, 4))


def test_the_first_merge_is_left_out_as_often_as_asked() -> None:
    """A word of two letters has one merge, so it stays apart with just that probability."""
    tokenizer = Tokenizer.train(["ab"] * 9, 260)
    found = Counter(map(tuple, spelt(BpeDropout(tokenizer, ["ab"] * 20_000, 0.1)(1, 0))))
    assert set(found) == {tuple(tokenizer.encode("ab")), (*tokenizer.encode("a"), *tokenizer.encode("b"))}
    assert 0.09 < found[*tokenizer.encode("a"), *tokenizer.encode("b")] / 20_000 < 0.11


def test_occurrences_of_one_query_are_cut_independently(tokenizer: Tokenizer) -> None:
    found = Counter(map(tuple, spelt(BpeDropout(tokenizer, ["new york hotels"] * 500, 0.2)(1, 0))))
    assert len(found) > 20
    assert found.most_common(1)[0][0] == tuple(tokenizer.encode("new york hotels"))
