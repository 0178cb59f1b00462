"""What no list may hold, whatever was typed: echoes, twins, denied words. The model is too late here, on purpose."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtn_edge.runtime.blocklist import Blocklist, fold, hashed
from mtn_edge.runtime.call import TOO_LATE, CallEndedError
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import DENIED, UNREADABLE, Suggester
from mtn_edge.runtime.watched_blocklist import WatchedBlocklist
from mtn_edge.text import normalize, normalize_prefix
from mtn_edge.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["ebay", "essex", "sussex university"], 280)


class Late:
    """An engine that never answers in time."""

    vocab_size, max_tokens, max_queries = len(TOKENIZER), 64, 4

    def start(self) -> Any:
        return None

    def search(self, *_: Any, **__: Any) -> Any:
        raise CallEndedError(TOO_LATE)


def suggester(popular: Iterable[str], blocklist: Blocklist | WatchedBlocklist | None = None) -> Suggester:
    engine: Any = Late()
    return Suggester(
        engine=engine,
        tokenizer=TOKENIZER,
        completions=Completions((query, 100 - place) for place, query in enumerate(popular)),
        blocklist=blocklist or Blocklist(),
        decoding=Decoding(),
    )


def asked(opened: Suggester, typed: str, k: int = 50, **options: Any) -> tuple[list[str], str | None]:
    result = opened.session().suggest(typed, k, **options)
    return [suggestion.text for suggestion in result.suggestions], result.reason


WORDS = st.text("aA ßsSéÉeＥ\u0301日-İ", max_size=7)
QUERIES = st.lists(WORDS.map(normalize).filter(bool), max_size=20, unique=True)


@given(QUERIES, WORDS)
@example(["dette", "dette publique", "détte"], "Dette")
@example(["ebay", "ebay kleinanzeigen"], "EBAY")
@example(["ebay", "ebay kleinanzeigen"], "ebay ")
@example(["strasse", "straße", "strasse 5", "straße 5"], "STR")
def test_no_echo_and_no_twins_after_folding(popular: list[str], typed: str) -> None:
    texts, reason = asked(suggester(popular), typed)
    assert all(text.startswith(typed) and len(text) > len(typed) for text in texts)
    assert len({fold(text) for text in (*texts, typed)}) == len(texts) + 1
    # Nothing else is left out: each popular query under the typed text is there, or its twin is.
    under = {fold(query) for query in popular if query.startswith(normalize_prefix(typed))} - {fold(typed)}
    assert {fold(text) for text in texts} == under
    assert reason == TOO_LATE


@given(QUERIES, st.lists(WORDS, min_size=1, max_size=3), WORDS)
@example(["sussex university", "essex", "sex shop", "sex"], ["sex"], "s")
@example(["sussex university", "essex", "sex shop", "sex"], ["SEX"], "SEX ")
@example(["essex", "sex"], ["sex"], "ｓｅｘ")
@example(["essex", "sex on", "sexual"], ["sex"], "sex")
def test_denied_words_are_never_shown_innocent_ones_stay_and_typing_on_is_not_blocked(
    popular: list[str], denied: list[str], typed: str
) -> None:
    blocklist = Blocklist(denied)
    texts, reason = asked(suggester(popular, blocklist), typed)
    free, _ = asked(suggester(popular), typed)
    if blocklist.denies(typed):
        assert (texts, reason) == ([], DENIED)
    else:
        assert texts == [text for text in free if not blocklist.denies(text)]
        assert reason == TOO_LATE
    assert not any(blocklist.denies(text) for text in texts)
    # What was denied so far says nothing about what is typed next.
    assert asked(suggester(popular, blocklist), "e")[1] == (DENIED if blocklist.denies("e") else TOO_LATE)


@pytest.mark.parametrize("as_hashes", [False, True])
def test_the_deny_list_of_a_browser_keyboard(tmp_path: Path, as_hashes: bool) -> None:
    (tmp_path / "list.txt").write_text(hashed(["sex"]) if as_hashes else "sex\n")
    popular = ["sussex university", "essex", "sex", "sex shop", "sexual health", "free sex"]
    opened = suggester(popular, WatchedBlocklist(tmp_path / "list.txt"))
    assert asked(opened, "")[0] == ["sussex university", "essex", "sexual health"]
    for typed in ("sex", "SEX ", "ｓｅｘ", "Sex s", "free sex"):
        assert asked(opened, typed) == ([], DENIED), typed
    assert asked(opened, "sexu") == (["sexual health"], TOO_LATE)
    assert asked(opened, "se") == (["sexual health"], TOO_LATE)


def test_a_list_edited_between_two_calls_is_obeyed_at_the_second(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("")
    opened = suggester(["ebay", "essex", "east"], WatchedBlocklist(file, Blocklist(["east"])))
    assert asked(opened, "e")[0] == ["ebay", "essex"]
    file.write_text("eBay\n")
    assert asked(opened, "e")[0] == ["essex"]
    assert asked(opened, "EBAY") == ([], DENIED)
    file.write_text("essex\n")
    assert asked(opened, "e")[0] == ["ebay"]
    file.unlink()
    assert asked(opened, "e")[0] == ["ebay"]


def test_typos_are_forgiven_when_asked_and_only_when_there_is_room() -> None:
    opened = suggester(["weather", "weather today", "wetter", "sex", "setx"], Blocklist(["sex"]))
    assert asked(opened, "Waether")[0] == []
    result = opened.session().suggest("Waether", 8, typos=True)
    found, reason = result.suggestions, result.reason
    assert [(one.text, one.source) for one in found] == [("weather", "typo"), ("weather today", "typo")]
    assert (found[0].score > found[1].score, reason) == (True, TOO_LATE)
    assert asked(opened, "weathe", 2, typos=True)[0] == ["weather", "weather today"]
    assert asked(opened, "weathet", 1, typos=True)[0] == ["weather"]
    assert asked(opened, "sext", 8, typos=True)[0] == ["setx"]  # the denied neighbour is not offered
    assert asked(opened, "sex", 8, typos=True) == ([], DENIED)
    assert asked(opened, "se\ud800x", 8, typos=True) == ([], UNREADABLE)


@given(QUERIES, WORDS)
def test_typos_add_to_a_list_and_change_nothing_in_it(popular: list[str], typed: str) -> None:
    opened = suggester(popular, Blocklist(["as"]))
    without, reason = asked(opened, typed)
    texts, same_reason = asked(opened, typed, typos=True)
    assert (texts[: len(without)], same_reason) == (without, reason)
    assert len({fold(text) for text in (*texts, typed)}) == len(texts) + 1
    assert set(texts[len(without) :]) <= set(popular)
