"""The tokenizer gives back every text it is given, whatever it was trained on."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.tokenizer import BOS, EOS, MIN_VOCAB, PAD, Tokenizer

QUERIES = ["new york hotels", "new york weather", "restaurants near me", "東京 天気", "сколько стоит", "jobs 🎉"] * 5
TOKENIZER = Tokenizer.train(QUERIES, 340)

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=500, deadline=None)
@given(TEXT)
def test_any_text_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode_bytes(tokens) == text.encode()
    assert not {PAD, BOS, EOS} & set(tokens)


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXT, max_size=20))
def test_a_batch_is_the_same_as_one_by_one(texts: list[str]) -> None:
    assert TOKENIZER.encode_batch(texts) == [TOKENIZER.encode(text) for text in texts]


@pytest.mark.parametrize(
    "text", ["<eos>", "<bos>new", "a<pad>b", "\u2581new", "Ġnew", "👩‍🏫 jobs", "a\u0301", "  two  "]
)
def test_what_looks_special_is_text(text: str) -> None:
    assert TOKENIZER.decode_bytes(TOKENIZER.encode(text)) == text.encode()


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.token_bytes == TOKENIZER.token_bytes
    assert loaded.encode("new york hotels 東京") == TOKENIZER.encode("new york hotels 東京")


def test_training_is_repeatable_and_never_gives_more_than_asked() -> None:
    again = Tokenizer.train(iter(QUERIES), 340)
    assert again.token_bytes == TOKENIZER.token_bytes
    assert len(TOKENIZER) < 340  # so few texts offer no more merges
    assert len(Tokenizer.train(QUERIES, 300)) == 300
    assert len(Tokenizer.train([], 1000)) == MIN_VOCAB
    assert Tokenizer.train([], MIN_VOCAB).decode_bytes(Tokenizer.train([], MIN_VOCAB).encode("é")) == "é".encode()


def test_a_vocabulary_too_small_is_refused() -> None:
    with pytest.raises(UserError, match="`--vocab-size` is 258, and it must be at least 259"):
        Tokenizer.train(QUERIES, 258)
