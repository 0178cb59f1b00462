"""The state table: every accepted sequence spells the typed text and more, and nothing that does so is left out."""

import itertools
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from mtn_edge.decoding.prefix_constraint import SPACE, STATES, PrefixConstraint
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import BOS, EOS, PAD, Tokenizer

TEXTS = [
    "new york hotels",
    "news today",
    "restaurants near me",
    "restaurant menu",
    "东京 天气",
    "北京 酒店",
    "сколько стоит билет",
    "مطعم قريب",
    "מסעדה כשרה",
    "👩\u200d🏫 jobs",
    "new 🎉 party",
    "e\u0301clair naïve café",
    "ქართული სამზარეულო",
    "हिन्दी समाचार",
]
TOKENIZER = Tokenizer.train([normalize(text) for text in TEXTS] * 9, 500)
CONSTRAINT = PrefixConstraint(TOKENIZER.token_bytes)
# With a blank inside a token, a control byte, two tokens of the same bytes, and tokens that end and begin in a letter.
TINY = [b"", b"", b"", b"a", b"b", b"ab", b"ab", b"b a", b" ", b"b ", b"\n", b"\xc3", b"\xa9", b"b\xc3", b"\xa9a"]


def random_prefix(generator: random.Random) -> str:
    """A piece of a query, of several queries, or of characters of any script, as one might stop typing anywhere."""
    match generator.randrange(4):
        case 0:
            text = generator.choice(TEXTS)
            return text[: generator.randrange(len(text) + 1)]
        case 1:
            words = " ".join(generator.choices(TEXTS, k=2))
            start = generator.randrange(len(words))
            return words[start : start + generator.randrange(20)]
        case 2:
            return "".join(generator.choices("abnewyork \u0301é🎉京\u200d", k=generator.randrange(8)))
        case _:
            codes = (generator.randrange(0x20, 0x11000) for _ in range(generator.randrange(6)))
            return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000) + generator.choice(["", " "])


def accepts(table: NDArray[np.int32], start: int, tokens: tuple[int, ...]) -> bool:
    state = start
    for token in tokens:
        state = int(table[state, token])
        if state < 0:
            return False
    return True


def well_formed(spelt: bytes) -> bool:
    """What a finished output must be, stated without any automaton."""
    try:
        text = spelt.decode()
    except UnicodeDecodeError:
        return False
    blanks = text.startswith(" ") or text.endswith(" ") or "  " in text
    return bool(text) and not blanks and not any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text)


def test_thousands_of_random_prefixes_are_spelt_by_every_walk() -> None:
    generator = random.Random(1)
    ended = 0
    for _ in range(4000):
        prefix = normalize_prefix(random_prefix(generator))
        table, state = CONSTRAINT.table(prefix.encode())
        tokens: list[int] = []
        for _ in range(60):
            allowed = np.flatnonzero(table[state] >= 0)
            assert allowed.size, (prefix, tokens)  # never a dead end
            end = len(tokens) > 8 and table[state, EOS] >= 0
            tokens.append(EOS if end else int(generator.choice(allowed)))
            state = int(table[state, tokens[-1]])
            if tokens[-1] == EOS:
                break
        assert not {PAD, BOS} & set(tokens)
        spelt = TOKENIZER.decode_bytes(tokens)
        assert spelt[: len(prefix.encode())] == prefix.encode()[: len(spelt)]
        if tokens[-1] == EOS:
            ended += 1
            assert spelt.startswith(prefix.encode())
            assert len(spelt) > len(prefix.encode())
            assert well_formed(spelt)
    assert ended > 3500


@pytest.mark.parametrize("prefix", ["", "a", "ab", "b ", "aba", "é", "bé", "bé ", "abab a"])
def test_accepts_exactly_what_a_brute_force_accepts(prefix: str) -> None:
    table, start = PrefixConstraint(TINY).table(prefix.encode())
    letters = [number for number, spelt in enumerate(TINY) if spelt]
    accepted, right = set(), set()
    for length in range(5):
        for tokens in itertools.product([PAD, BOS, *letters], repeat=length):
            spelt = b"".join(TINY[token] for token in tokens)
            if accepts(table, start, (*tokens, EOS)):
                accepted.add(tokens)
            if (
                not {PAD, BOS} & set(tokens)
                and spelt.startswith(prefix.encode())
                and len(spelt) > len(prefix.encode())
                and well_formed(spelt)
            ):
                right.add(tokens)
    assert len(right) >= 5
    assert accepted == right


def test_a_typed_blank_keeps_the_word_from_going_on() -> None:
    inside, start = CONSTRAINT.table(b"new")
    after, start_after = CONSTRAINT.table(b"new ")
    news, new = TOKENIZER.encode("news"), TOKENIZER.encode("new")
    assert accepts(inside, start, (*news, EOS))
    assert not accepts(after, start_after, (*news, EOS))
    assert not accepts(inside, start, (*new, EOS))
    assert accepts(after, start_after, (*TOKENIZER.encode("new york"), EOS))


def test_every_segmentation_stays_open() -> None:
    spelt = [
        b"",
        b"",
        b"",
        *(bytes([letter]) for letter in b"aplicton"),
        b"applicatio",
        b"app",
        b"lication",
        b"pplication",
    ]
    number = {token: place for place, token in enumerate(spelt)}
    table, start = PrefixConstraint(spelt).table(b"appl")
    ways = ([b"applicatio", b"n"], [b"app", b"lication"], [b"a", b"pplication"], [b"a", b"p", b"p", b"lication"])
    for way in ways:
        assert accepts(table, start, (*(number[token] for token in way), EOS)), way


@pytest.mark.parametrize("bad", [b"  ", b" a", b"a  b", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\n"])
def test_a_prefix_that_is_no_normal_form_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="`prefix` must be UTF-8 of text in normal form"):
        CONSTRAINT.table(bad)


@pytest.mark.parametrize("prefix", ["", "a", "ab", "abab", "ababé", "bbbbbb", "ab ab"])
def test_reachable_is_what_a_brute_force_reaches(prefix: str) -> None:
    constraint = PrefixConstraint(TINY)
    spelt = prefix.encode()
    letters = [token for token in TINY if token]
    for length in range(5):
        sequences = map(b"".join, itertools.product(letters, repeat=length))
        found = any(text.startswith(spelt) and len(text) > len(spelt) for text in sequences)
        assert constraint.reachable(spelt, length) == found


def test_ten_thousand_characters_are_out_of_reach_at_once() -> None:
    assert not CONSTRAINT.reachable(b"x" * 10_000, 32)
    assert not CONSTRAINT.reachable(b"x" * 51, 32)
    assert CONSTRAINT.reachable(b"x" * 31, 32)


def test_exact_accepts_one_sequence_only() -> None:
    tokens = tuple(TOKENIZER.encode("new york"))
    table, start = CONSTRAINT.exact(tokens)
    assert accepts(table, start, (*tokens, EOS))
    assert (table >= 0).sum() == len(tokens) + 1


def test_table_has_a_row_for_each_byte_and_starts_like_after_a_blank() -> None:
    table, start = CONSTRAINT.table("é n".encode())
    assert table.shape == (STATES + 5, len(TOKENIZER))
    assert table.dtype == np.int32
    empty, start = CONSTRAINT.table(b"")
    assert (empty[start] == empty[SPACE]).all()
