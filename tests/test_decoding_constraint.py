"""The state table: every accepted sequence spells the typed text and more, and nothing that does so is left out."""

import itertools
import random
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mtn_edge.decoding.prefix_constraint import FORBIDDEN, MOST_STATES, SPACE, STATES, Constraint, PrefixConstraint
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
    "it's 20% off, isn't it?",
]
TOKENIZER = Tokenizer.train([normalize(text) for text in TEXTS] * 9, 500)
MOST = 60
OPEN = PrefixConstraint(TOKENIZER.token_bytes)
SETTLING = PrefixConstraint(TOKENIZER.token_bytes, TOKENIZER.encode)
# With a blank inside a token, a control byte, and tokens that end and begin in a letter.
TINY = [b"", b"", b"", b"a", b"b", b"ab", b"ba", b"b a", b" ", b"b ", b"\n", b"\xc3", b"\xa9", b"b\xc3", b"\xa9a"]
PIECES = [b"a", b"b", b" ", b"\xc3", b"\xa9", b"ab", b"abc", b" a", b"b ", b"a b", b"ba", b"aa", b"\xc3\xa9", b"\xa9b"]


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


def typed(constraint: PrefixConstraint, prefix: str) -> Constraint:
    found = constraint.typed(prefix, MOST)
    assert found is not None
    return found


def accepts(constraint: Constraint, tokens: Sequence[int]) -> bool:
    """Whether the search may write `tokens`."""
    state = constraint.start_state
    for token in tokens:
        entry = int(constraint.next_state[state, token])
        if entry == FORBIDDEN:
            return False
        state = entry - 1
    return True


def well_formed(spelt: bytes) -> bool:
    """What a finished output must be, stated without any automaton."""
    try:
        text = spelt.decode()
    except UnicodeDecodeError:
        return False
    blanks = text.startswith(" ") or text.endswith(" ") or "  " in text
    return bool(text) and not blanks and not any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text)


def spells_more(spelt: bytes, prefix: str) -> bool:
    return spelt.startswith(prefix.encode()) and len(spelt) > len(prefix.encode())


def letters_of(vocabulary: Sequence[bytes]) -> list[int]:
    return [number for number, spelt in enumerate(vocabulary) if spelt]


def sequences(vocabulary: Sequence[bytes], most: int, more: Sequence[int] = ()) -> Iterator[tuple[int, ...]]:
    """All sequences of at most `most` tokens (and of the specials `more`)."""
    for length in range(most + 1):
        yield from itertools.product([*more, *letters_of(vocabulary)], repeat=length)


def by_words(vocabulary: Sequence[bytes], text: str) -> list[int]:
    """A tokenizer of `vocabulary` that spells each word, with the blank before it, by the longest tokens first.

    It never looks at the next word, as a tokenizer that splits at blanks does not.
    """
    tokens = []
    for word in re.findall(" ?[^ ]+", text):
        left = word.encode()
        while left:
            token = max((n for n in letters_of(vocabulary) if left.startswith(vocabulary[n])), key=_length(vocabulary))
            tokens.append(token)
            left = left[len(vocabulary[token]) :]
    return tokens


def _length(vocabulary: Sequence[bytes]):  # type: ignore[no-untyped-def]
    return lambda number: (len(vocabulary[number]), -number)


@pytest.mark.parametrize("constraint", [OPEN, SETTLING], ids=["open", "settling"])
def test_thousands_of_random_prefixes_are_spelt_by_every_walk(constraint: PrefixConstraint) -> None:
    generator = random.Random(1)
    ended = 0
    for _ in range(3000):
        prefix = normalize_prefix(random_prefix(generator))
        start, table, state = typed(constraint, prefix)
        assert start[0] == BOS
        tokens: list[int] = []
        for _ in range(60):
            allowed = np.flatnonzero(table[state] != FORBIDDEN)
            assert allowed.size, (prefix, tokens)  # never a dead end
            end = len(tokens) > 8 and table[state, EOS] != FORBIDDEN
            tokens.append(EOS if end else int(generator.choice(allowed)))
            state = int(table[state, tokens[-1]]) - 1
            if tokens[-1] == EOS:
                break
        assert not {PAD, BOS} & {*start[1:].tolist(), *tokens}
        spelt = TOKENIZER.decode_bytes([*start.tolist(), *tokens])
        assert spelt[: len(prefix.encode())] == prefix.encode()[: len(spelt)]
        if tokens[-1] == EOS:
            ended += 1
            assert spells_more(spelt, prefix)
            assert well_formed(spelt)
    assert ended > 2600


def accepted_and_right(
    vocabulary: Sequence[bytes], prefix: str, most: int, *, settle: bool
) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
    """What the table accepts, and what it must accept: finished words spelt in one way, all else in every way."""
    constraint = PrefixConstraint(vocabulary, (lambda text: by_words(vocabulary, text)) if settle else None)
    found = typed(constraint, prefix)
    finished = prefix[: max(prefix.rfind(" "), 0)] if settle else ""
    assert found.start_tokens.tolist() == [BOS, *(by_words(vocabulary, finished) if settle else [])]
    accepted, right = set(), set()
    for tokens in sequences(vocabulary, most, more=[PAD, BOS]):
        if accepts(found, (*tokens, EOS)):
            accepted.add(tokens)
        spelt = finished.encode() + b"".join(vocabulary[token] for token in tokens)
        if not {PAD, BOS} & set(tokens) and spells_more(spelt, prefix) and well_formed(spelt):
            right.add(tokens)
    return accepted, right


@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize("prefix", ["", "a", "ab", "b ", "aba", "é", "bé", "bé ", "abab a", "ab é a", "ba ab "])
def test_accepts_exactly_what_a_brute_force_accepts(prefix: str, settle: bool) -> None:
    accepted, right = accepted_and_right(TINY, prefix, 4, settle=settle)
    assert len(right) >= 5 or (not settle and len(prefix) > 5)
    assert accepted == right


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES[5:]), max_size=4, unique=True),
    st.text("ab é", max_size=5),
    st.booleans(),
)
def test_accepts_exactly_what_a_brute_force_accepts_of_any_vocabulary(
    longer: list[bytes], text: str, settle: bool
) -> None:
    vocabulary = [b"", b"", b"", *PIECES[:5], *longer]
    accepted, right = accepted_and_right(vocabulary, normalize_prefix(text), 3, settle=settle)
    assert accepted == right


def test_a_typed_blank_keeps_the_word_from_going_on() -> None:
    news, new, york = TOKENIZER.encode("news"), TOKENIZER.encode("new"), TOKENIZER.encode("new york")
    inside, after = typed(OPEN, "new"), typed(OPEN, "new ")
    assert accepts(inside, (*news, EOS))
    assert not accepts(after, (*news, EOS))
    assert not accepts(inside, (*new, EOS))
    assert accepts(after, (*york, EOS))
    settled = typed(SETTLING, "new ")
    assert settled.start_tokens.tolist() == [BOS, *new]
    assert accepts(settled, (*york[len(new) :], EOS))
    assert not accepts(settled, (TOKENIZER.token_bytes.index(b"s"), EOS))
    assert not accepts(settled, (EOS,))


def segmentations(vocabulary: Sequence[bytes], spelt: bytes) -> list[tuple[int, ...]]:
    """Every way to spell `spelt`."""
    if not spelt:
        return [()]
    return [
        (token, *rest)
        for token in letters_of(vocabulary)
        if spelt.startswith(vocabulary[token])
        for rest in segmentations(vocabulary, spelt[len(vocabulary[token]) :])
    ]


@pytest.mark.parametrize("prefix", ["us passport appl", "us passport application", "us passport ", "us passp", "appl"])
def test_every_segmentation_stays_open(prefix: str) -> None:
    words = [b"us", b" passport", b"applicatio", b"app", b"lication", b"pplication", b" app"]
    vocabulary = [b"", b"", b"", *(bytes([letter]) for letter in b"aplictonusr "), *words]
    spelt = ("application" if prefix == "appl" else "us passport application") + "s"
    open_, settling = PrefixConstraint(vocabulary), PrefixConstraint(vocabulary, lambda x: by_words(vocabulary, x))
    ways = segmentations(vocabulary, spelt.encode())
    assert len(ways) >= 6
    found = typed(open_, prefix)
    for way in ways:
        assert accepts(found, (*way, EOS)), way

    # With finished words settled: these in one way, the rest in all.
    found, finished = typed(settling, prefix), settling.settled(prefix)
    ways = segmentations(vocabulary, spelt[len(finished) :].encode())
    assert len(ways) >= 6
    for way in ways:
        assert accepts(found, (*way, EOS)), way
    heads = {way[:2] for way in ways if len(finished) > 2}
    assert not heads or len(heads) >= 3


@pytest.mark.parametrize("bad", ["  ", " a", "a  b", "a  ", "a\n", "\n", "a\x7f", "\0"])
def test_a_prefix_that_is_no_normal_form_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="must be UTF-8 of text in normal form"):
        OPEN.typed(bad, MOST)


@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize("prefix", ["", "a", "ab", "abab", "ababé", "bbbbbb", "ab ab", "a b", "ab b ab", "b "])
def test_what_cannot_be_written_is_what_a_brute_force_cannot_write(prefix: str, settle: bool) -> None:
    vocabulary = [b"", b"", b"", *PIECES]
    constraint = PrefixConstraint(vocabulary, (lambda text: by_words(vocabulary, text)) if settle else None)
    finished = constraint.settled(prefix)
    spent = len(by_words(vocabulary, finished))
    for most in range(spent + 4):
        found = any(
            spells_more(finished.encode() + b"".join(vocabulary[token] for token in tokens), prefix)
            for tokens in sequences(vocabulary, most - spent)
        )
        assert (constraint.typed(prefix, most) is not None) == found


def test_ten_thousand_characters_are_out_of_reach_at_once() -> None:
    for constraint in (OPEN, SETTLING):
        for text in ("x" * 10_000, "x" * 51, "x" * 32, "ab " * 3_333, "новый " * 100):
            assert constraint.typed(text, 32) is None, text
        assert constraint.typed("x" * 31, 32) is not None
    words = "new york hotels " * 9
    tokens = len(TOKENIZER.encode(words.rstrip()))
    assert SETTLING.typed(words, tokens) is None
    assert SETTLING.typed(words, tokens + 1) is not None


@pytest.mark.parametrize("constraint", [OPEN, SETTLING], ids=["open", "settling"])
def test_the_longest_word_that_a_table_of_bytes_can_hold(constraint: PrefixConstraint) -> None:
    longest = MOST_STATES - STATES - 1
    assert constraint.typed("x" * (longest + 1), 1000) is None
    found = constraint.typed("x" * longest, 1000)
    assert found is not None
    assert len(found.next_state) == MOST_STATES
    letter = TOKENIZER.token_bytes.index(b"x")
    assert accepts(found, [letter] * (longest + 1) + [EOS])
    assert not accepts(found, [letter] * longest + [EOS])
    assert not accepts(found, [letter] * (longest - 1) + [EOS])
    # Finished words are not in the table: only the last one counts.
    words = "xy " * 200 + "x"
    assert (constraint.typed(words, 1000) is None) == (constraint is OPEN)


def test_exact_accepts_one_sequence_only() -> None:
    tokens = tuple(TOKENIZER.encode("new york"))
    found = OPEN.exact(tokens, settled=[7, 8])
    assert found.start_tokens.tolist() == [BOS, 7, 8]
    assert accepts(found, (*tokens, EOS))
    assert (found.next_state != FORBIDDEN).sum() == len(tokens) + 1
    assert OPEN.exact(tokens).start_tokens.tolist() == [BOS]


def test_table_has_a_row_for_each_byte_and_starts_like_after_a_blank() -> None:
    found = typed(OPEN, "é n")
    assert found.next_state.shape == (STATES + 5, len(TOKENIZER))
    assert found.next_state.dtype == np.uint8
    assert found.next_state.max() <= len(found.next_state)  # an entry is the number of a row, and 1
    empty = typed(OPEN, "")
    assert (empty.next_state[empty.start_state] == empty.next_state[SPACE]).all()
    # Of finished words only their last blank is left to spell.
    assert typed(SETTLING, "é n").next_state.shape == (STATES + 3, len(TOKENIZER))
    assert typed(SETTLING, "new york ").next_state.shape == (STATES + 2, len(TOKENIZER))


ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.lists(
    st.sampled_from(
        [*"aeno'ts2.,-🎉京йé\u0301\u200d\u0e33ﬁ\u00a0\u3000", " ", " ", "new", "'s", "york", "hotels", "москва"]
    ),
    max_size=12,
).map("".join)


@settings(max_examples=600, deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_the_tokenizer_spells_finished_words_in_one_way(typed_text: str, more: str) -> None:
    prefix = normalize_prefix(typed_text)
    text = normalize(prefix + more)
    assume(text.startswith(prefix) and len(text) > len(prefix))
    settled = SETTLING.settled(prefix)
    tokens = TOKENIZER.encode(settled)
    assert prefix.startswith(settled)
    assert " " not in prefix[len(settled) + 1 :]
    assert TOKENIZER.encode(text)[: len(tokens)] == tokens


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_the_tokenizers_own_spelling_is_always_accepted(typed_text: str, more: str) -> None:
    prefix = normalize_prefix(typed_text)
    text = normalize(prefix + more)
    assume(text.startswith(prefix) and len(text) > len(prefix))
    found = typed(SETTLING, prefix)
    own = [BOS, *TOKENIZER.encode(text)]
    settled = found.start_tokens.tolist()
    assert own[: len(settled)] == settled
    assert accepts(found, (*own[len(settled) :], EOS))
