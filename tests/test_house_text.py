"""One normal form: nothing lost, stable under typing on, and the tokenizer gives every text back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import BOS, EOS, MIN_VOCAB, PAD, Tokenizer

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
TOKENIZER = Tokenizer.train(["new york hotels", "restaurants near me", "東京 天気", "сколько стоит"] * 5, 320)


@pytest.mark.parametrize(
    ("given_text", "normal"),
    [
        ("café müller", "café müller"),
        ("naïve bayes", "naïve bayes"),
        ("東京 天気", "東京 天気"),
        ("сколько стоит", "сколько стоит"),
        ("ﬁnance", "finance"),
        ("ＡＯＬ　検索", "aol 検索"),
        ("  New\tYork \n City ", "new york city"),
        ("ΟΔΟΣ", "οδοσ"),
        ("İstanbul", "i\u0307stanbul"),
        ("\u200fمطعم\u200e", "مطعم"),
        ("cafe\u200b\u0301", "café"),
        ("👩\u200d🏫 jobs", "👩\u200d🏫 jobs"),
        ('20" tv', '20" tv'),
        ("\x00", ""),
    ],
)
def test_normal_form(given_text: str, normal: str) -> None:
    assert normalize(given_text) == normal


@given(TEXT)
def test_normal_form_is_stable_and_keeps_letters(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert bool(once) == any(letter for letter in normalize_prefix(text).strip())


@given(st.text(st.sampled_from("aBÇñΣςЖ東 \t"), max_size=20), st.text(st.sampled_from("aBÇñΣςЖ東 \t"), max_size=20))
def test_typing_on_never_changes_what_was_typed(typed: str, more: str) -> None:
    assert normalize_prefix(typed + more).startswith(normalize_prefix(typed))


def test_a_typed_blank_counts_and_a_surrogate_is_refused() -> None:
    assert normalize_prefix("New  ") == "new "
    with pytest.raises(ValueError, match="surrogates not allowed"):
        normalize_prefix("a\ud800")


@settings(max_examples=500)
@given(TEXT)
def test_tokenizer_gives_every_text_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode_bytes(tokens) == text.encode()
    assert not {PAD, BOS, EOS} & set(tokens)
    assert TOKENIZER.encode_batch([text]) == [tokens]


def test_specials_typed_as_text_stay_text() -> None:
    assert TOKENIZER.decode_bytes(TOKENIZER.encode("<bos> <eos>")) == b"<bos> <eos>"
    assert EOS not in TOKENIZER.encode("<eos>")


def test_tokenizer_survives_its_file_and_refuses_too_few_tokens(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "tokenizer.json"
    TOKENIZER.save(file)
    assert Tokenizer.load(file).token_bytes == TOKENIZER.token_bytes
    assert Tokenizer.load(file).encode("new york") == TOKENIZER.encode("new york")
    with pytest.raises(UserError, match=f"it must be at least {MIN_VOCAB}"):
        Tokenizer.train(["a"], 100)
    file.write_text("{}")
    with pytest.raises(UserError, match="is not a readable tokenizer"):
        Tokenizer.load(file)


def test_single_bytes_are_all_there() -> None:
    assert {bytes([byte]) for byte in range(256)} <= set(TOKENIZER.token_bytes)
    assert len(set(TOKENIZER.token_bytes[3:])) == len(TOKENIZER) - 3
