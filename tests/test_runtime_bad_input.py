"""Whatever is typed or was asked before: an honest list or a sentence, and the typed text as it was."""

import math
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.decoding.open import open_suggester
from mtn_edge.errors import UserError
from mtn_edge.runtime import suggester as says
from mtn_edge.runtime.blocklist import Blocklist, fold
from mtn_edge.runtime.suggester import Suggester, SuggestResult
from mtn_edge.text import normalize, normalize_prefix

DEADLINE = 60_000
"""Milliseconds; only what hangs reaches it."""
DIRECTION_MARKS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
LONG = {
    "one word": "x" * 10_000,
    "words": "new york " * 1_111 + "n",
    "short words": "a " * 5_000,
    "word and blanks": "hotels" + " " * 9_994,
    "tabs and lines": "new\t\r\n" * 1_700,
    "cyrillic": "москва " * 1_428,
    "right to left": "مطعم " * 2_000,
    "emoji": "🎉" * 10_000,
    "families": "👩\u200d👩\u200d👧 " * 1_667,
    "accents": "e" + "\u0301" * 9_999,
    "folded to many": "\ufdfa" * 10_000,
    "full width": "ＡＯＬ　" * 2_500,
    "private use": "\U0010ffff" * 10_000,
}
CUT = [
    *("new 🎉".encode()[:end].decode("utf-8", "surrogateescape") for end in (5, 6, 7)),
    "🎉 new".encode()[1:].decode("utf-8", "surrogateescape"),
    "é".encode()[:1].decode("utf-8", "surrogateescape"),
    "new \ud83c",
    "\udf89 new",
    "\ud83c\udf89",
    "a\udcff" * 400,
]


@pytest.fixture(scope="module", params=["bundle", "checkpoint"])
def opened(request: pytest.FixtureRequest) -> Suggester:
    return open_suggester(request.getfixturevalue(f"tiny_{request.param}"))


def assert_honest(result: SuggestResult, typed: str, k: int) -> None:
    """The rules of every list."""
    assert result.prefix == typed
    texts = [found.text for found in result.suggestions]
    assert len(texts) <= k
    assert all(text.startswith(typed) and len(text) > len(typed) for text in texts)
    assert len({fold(text) for text in (*texts, typed)}) == len(texts) + 1
    for text in texts:
        more = text.removeprefix(typed)
        assert not {"\ufffd", "\u2047", *DIRECTION_MARKS} & set(more)
        assert normalize(text) == normalize_prefix(typed) + more
    assert all(math.isfinite(found.score) for found in result.suggestions)
    model = sum(found.source == "model" for found in result.suggestions)
    assert result.reason is not None or len(texts) == k > 0
    assert result.reason is None or model < k or k == 0


@pytest.mark.parametrize("kind", LONG)
def test_ten_thousand_characters(opened: Suggester, kind: str) -> None:
    typed = LONG[kind]
    assert len(typed) >= 9_900 or kind == "tabs and lines"
    session = opened.session(["paris weather"])
    result = session.suggest(typed, 8, deadline_ms=DEADLINE)
    assert_honest(result, typed, 8)
    assert result.elapsed_ms < DEADLINE
    assert (result.suggestions, result.reason) == ([], says.TOO_LONG)
    # As an earlier query it is read by its end.
    session.append(typed)
    assert session.queries[1:] == [normalize(typed)]
    assert_honest(session.suggest("par", 8, deadline_ms=DEADLINE), "par", 8)


@pytest.mark.parametrize("typed", ["e" + "\u0301\u0323" * 50_000, "\ufdfa" * 200_000], ids=["marks", "folded to many"])
def test_a_text_is_too_long_before_its_normal_form_takes_its_time(opened: Suggester, typed: str) -> None:
    result = opened.session().suggest(typed, 8, deadline_ms=20)
    assert (result.suggestions, result.reason) == ([], says.TOO_LONG)
    assert result.elapsed_ms < 1_000  # the normal form takes many seconds
    longest = typed[: says.LONGEST_TEXT]
    assert_honest(opened.session().suggest(longest, 8), longest, 8)


@pytest.mark.parametrize("length", [1, 11, 12, 13, 14, 24, 51, 1_025])
@pytest.mark.parametrize("letter", ["x", "é", "東", "🎉", "a ", "new "])
def test_lengths_around_what_the_model_can_write(opened: Suggester, length: int, letter: str) -> None:
    typed = letter * length
    result = opened.session().suggest(typed, 4, deadline_ms=DEADLINE)
    assert_honest(result, typed, 4)
    tokens = len(opened.tokenizer.encode(normalize(typed)))
    if tokens > 2 * opened.engine.max_tokens:
        assert result.reason == says.TOO_LONG


@pytest.mark.parametrize("typed", CUT)
def test_half_a_letter_is_no_text(opened: Suggester, typed: str) -> None:
    session = opened.session(["paris weather"])
    result = session.suggest(typed, 8, deadline_ms=DEADLINE)
    assert (result.suggestions, result.reason, result.prefix) == ([], says.UNREADABLE, typed)
    result.to_json()["prefix"].encode()
    with pytest.raises(UserError, match="an earlier query holds a lone surrogate, which is no text; leave it out"):
        session.append(typed)
    assert session.queries == ["paris weather"]
    assert_honest(session.suggest("par", 8), "par", 8)


@pytest.mark.parametrize("typed", ["\0", "new\0", "\0new", "new\0 york" * 100])
def test_nul_is_no_text(opened: Suggester, typed: str) -> None:
    result = opened.session().suggest(typed)
    assert (result.suggestions, result.reason) == ([], says.UNREADABLE)
    opened.session([typed]).suggest("par")


@pytest.mark.parametrize(
    "typed",
    [
        *("مطعم", "مطعم قر", "\u200fمطعم", "מסעד", "שלום ע", "абвгд", "new مطعم 12 ק", "١٢٣"),
        *("e\u0301", "nai\u0308ve", "e", "हिन्", "\u0e01\u0e33", "각", "ᄀ", "a\u0323\u0307", "\u0307", "Ǆ", "İ"),
        *("👩\u200d🏫 jobs", "👩\u200d", "🎉", "👍🏽", "🇩", "🇩🇪 ", "北京 new", "a\u00adb", "\ufeffnew", "new\u200b"),
    ],
)
def test_any_script_is_kept_letter_by_letter(opened: Suggester, typed: str) -> None:
    for session in (opened.session(), opened.session(["מסעדה כשרה", "مطعم قريب", "nai\u0308ve e\u0301"])):
        result = session.suggest(typed, 20)
        assert_honest(result, typed, 20)
        for found in result.suggestions:
            # What follows never changes what was typed, by composing with it or otherwise.
            assert normalize_prefix(found.text).startswith(normalize_prefix(typed))
            assert not unicodedata.combining(found.text[len(typed)]) or normalize_prefix(typed)[-1:] in ("", " ")


@settings(max_examples=150, deadline=None)
@given(typed=st.text(max_size=30) | st.text(st.characters(max_codepoint=0x7F), max_size=30), k=st.integers(0, 20))
def test_any_text_at_all(opened: Suggester, typed: str, k: int) -> None:
    result = opened.session().suggest(typed, k, deadline_ms=DEADLINE)
    assert_honest(result, typed, k)


def test_four_hundred_words_before(opened: Suggester) -> None:
    words = " ".join(["new york", "hotels"] * 200)
    for queries in ([words], [words] * 9, ["x" * 10_000, words, "e\u0301" * 400]):
        session = opened.session(queries)
        assert session.queries == [normalize(query) for query in queries]
        assert_honest(session.suggest("par", 8, deadline_ms=DEADLINE), "par", 8)
        assert session.state["session_keys"].shape[2] <= opened.engine.max_queries + 1
    # The end of a long query counts, its beginning does not.
    ends, begins = (opened.session([text]) for text in (f"{words} jaguar price", f"jaguar price {words}"))
    plain = opened.session([words]).suggest("", 8).suggestions
    assert begins.suggest("", 8).suggestions == plain
    assert ends.suggest("", 8).suggestions != plain


def test_a_session_that_never_started(opened: Suggester) -> None:
    session = opened.session()
    assert session.queries == []
    for typed in ("", "par", "zzz"):
        result = session.suggest(typed)
        assert_honest(result, typed, 8)
        assert result.session == []
    blank = opened.session(["", "  ", "\t\n", "\u200e", "\0"])
    assert blank.queries == []
    assert blank.suggest("par").suggestions == session.suggest("par").suggestions
    assert session.suggest("").suggestions


@pytest.mark.parametrize("k", [0, 1, 64, 65, 10_000])
def test_any_number_of_suggestions(opened: Suggester, k: int) -> None:
    session = opened.session(["paris weather"])
    for typed in ("", "par", "東"):
        assert_honest(session.suggest(typed, k, deadline_ms=DEADLINE), typed, k)
    assert (session.suggest("par", k).reason == says.NOTHING_ASKED) == (k == 0)
    with pytest.raises(UserError, match="must be at least 0"):
        session.suggest("par", -k - 1)


def test_deadlines_of_no_time_and_of_all_time(tiny_bundle: Path) -> None:
    session = Suggester.open(tiny_bundle).session()
    for deadline in (0, 0.0, -5, 1e-9):
        result = session.suggest("par", 3, deadline_ms=deadline)
        assert {found.source for found in result.suggestions} == {"completions"}
    for deadline in (1e12, float("inf"), None):
        result = session.suggest("par", 3, deadline_ms=deadline, min_probability=0)
        assert result.reason is None or "deadline" not in result.reason


def test_a_document_as_an_earlier_query_is_read_by_its_end(tiny_bundle: Path) -> None:
    suggester = Suggester.open(tiny_bundle)
    document = "paris weather " * 40_000 + "new york hotels " * 300
    end = ("new york hotels " * 40).strip()
    assert (
        suggester.session([document]).suggest("b", 5).suggestions
        == suggester.session([end]).suggest("b", 5).suggestions
    )


def test_a_list_that_the_block_list_shortens_says_so(tiny_bundle: Path, tmp_path: Path) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text("hotels\nweather\n", encoding="utf-8")
    result = Suggester.open(tiny_bundle, blocklist=denied).session().suggest("new york ", 10)
    assert result.suggestions
    assert result.reason == says.FEW_ALLOWED
    denied.write_text("zebra\n", encoding="utf-8")
    assert Suggester.open(tiny_bundle, blocklist=denied).session().suggest("new york ", 10).reason != says.FEW_ALLOWED


@pytest.mark.parametrize("typed", ["sex\u200dy ", "how s\u200de\u200dx"])
def test_a_joiner_inside_a_word_does_not_hide_it(typed: str) -> None:
    assert Blocklist(["sex", "sexy"]).denies(typed)
