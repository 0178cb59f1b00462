"""The block list: whole words and phrases, as words or as hashes, in a file that changes while it is in use."""

import logging
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist, fold, hashed, packed
from mtn_edge.runtime.watched_blocklist import WatchedBlocklist

TEXTS = st.text(st.sampled_from("abAB ßſéE\u0301東色ｓ-. 1\u0345\u1fb3İ\u200d"), max_size=12)


def both(entries: list[str], folder: Path) -> list[Blocklist]:
    """The same list, as words and as hashes."""
    (folder / "hashed.txt").write_text(hashed(entries), encoding="utf-8")
    return [Blocklist(entries), Blocklist.load(folder / "hashed.txt")]


@pytest.mark.parametrize(
    ("entry", "caught", "free"),
    [
        (
            "sex",
            [
                "sex",
                "SEX ",
                "free sex now",
                "ｓｅｘ",
                "sex.",
                "'sex'",
                "sex-shop",
                "Sex!",
                "s\u200be\u00adx",
                "s\u0336e\u0336x\u0336",
            ],
            ["sussex university", "essex", "sexual", "s e x", "séx", ""],
        ),
        ("Bad  Phrase", ["bad phrase", "a BAD phrase here", "bad-phrase"], ["bad", "phrase bad", "bad good phrase"]),
        ("straße", ["STRASSE", "strasse", "straße 5"], ["strass", "strassen"]),
        ("नमस्ते", ["नमस्ते जी"], ["नमस"]),
        ("नमस", ["नमस जी"], ["नमस्ते"]),
        ("色情", ["色情", "色情网站", "免费色情 new"], ["色", "情色"]),
        ("4chan", ["4chan org", "4\ufe0f\u20e3chan", "4\u034fch\u3164an\U000e0100"], ["chan", "44chan"]),
        ("café", ["CAFÉ", "cafe\u0301 paris"], ["cafe", "cafés"]),
    ],
)
def test_whole_words_and_phrases_are_caught(tmp_path: Path, entry: str, caught: list[str], free: list[str]) -> None:
    for blocklist in both([entry, "other thing entirely"], tmp_path):
        assert [text for text in caught if not blocklist.denies(text)] == []
        assert [text for text in free if blocklist.denies(text)] == []


def plain_words(text: str) -> list[str]:
    """Words of ASCII and accented letters, the slow way."""
    return re.findall(r"[^\W_]+", fold(text))


@given(
    st.lists(st.text(st.sampled_from("ab B1é"), max_size=6), max_size=5),
    st.text(st.sampled_from("ab BÉ1é-_."), max_size=16),
)
def test_what_is_denied_holds_the_words_of_an_entry_in_a_row(entries: list[str], text: str) -> None:
    words = f" {' '.join(plain_words(text))} "
    wanted = any(f" {' '.join(phrase)} " in words for entry in entries if (phrase := plain_words(entry)))
    assert Blocklist(entries).denies(text) == wanted


@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS, min_size=1, max_size=5))
def test_hashes_deny_what_the_words_deny(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str], texts: list[str]
) -> None:
    plain, hidden = both(entries, tmp_path_factory.mktemp("lists"))
    for text in (*texts, *entries, " ".join(entries), " ".join(texts + entries)):
        assert hidden.denies(text) == plain.denies(text), text


@given(TEXTS)
def test_folding_is_done_once_and_for_all_and_knows_no_case(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    if text.isascii():
        assert fold(text.upper()) == fold(text.lower()) == fold(f" {text}  ")


def test_a_hashed_list_shows_no_word(tmp_path: Path) -> None:
    entries = ["secret", "very bad phrase", "straße"]
    text = hashed(entries)
    assert not re.search("secret|bad|phrase|stra", text)
    assert text == hashed(["VERY  bad phrase", *entries[::-1]])
    assert not set(text.splitlines()) & set(hashed(["secret"]).splitlines())
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["1", "1", "3"]
    assert not any(blocklist.denies("anything") for blocklist in both([], tmp_path))


@pytest.mark.parametrize(
    ("number", "line", "what"),
    [(1, "salty", "salt"), (3, "1 xyz", "hash"), (2, "secret", "hash"), (2, f"{'9' * 5000} {'0' * 16}", "hash")],
)
def test_a_bad_line_of_a_hashed_list_is_named(tmp_path: Path, number: int, line: str, what: str) -> None:
    lines = hashed(["one", "two", "three"]).splitlines()
    lines[number - 1] = line if number > 1 else lines[0][:-5] + line
    (tmp_path / "list.txt").write_text("\n".join(lines))
    with pytest.raises(UserError, match=rf"line {number} of `.*list.txt`, a block list of hashes, is no {what}"):
        Blocklist.load(tmp_path / "list.txt")


def test_lists_add_up(tmp_path: Path) -> None:
    plain, hidden = both(["two words"], tmp_path)
    for blocklist in (Blocklist(["one"]) | hidden, plain | Blocklist(["one"]) | Blocklist()):
        assert blocklist.denies("number one")
        assert blocklist.denies("two words")
        assert not blocklist.denies("two")


@pytest.mark.parametrize("sign", ["!!!", "❤\ufe0f", "👩\u200d🏫", "#\ufe0f\u20e3", "👍🏽", "\u034f"])
def test_an_entry_of_signs_alone_denies_nothing(sign: str) -> None:
    assert not Blocklist([sign])
    assert not Blocklist([sign, "sex"]).denies(f"☀\ufe0f *\ufe0f\u20e3 {sign} weather")


def test_an_empty_block_list_denies_nothing() -> None:
    assert not Blocklist(["", "  ", "!?"]).denies("!? anything")


def test_a_block_list_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "blocklist.txt"
    file.write_text("\ufeffsex\n\nbad phrase\r\n", encoding="utf-8")  # with the mark that some editors write
    blocklist = Blocklist.load(file)
    assert blocklist.denies("bad phrase")
    assert blocklist.denies("sex")
    assert not blocklist.denies("bad")
    file.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"blocklist.txt` is not UTF-8 text"):
        Blocklist.load(file)
    with pytest.raises(
        UserError, match=r"the block list `.*none` cannot be read \(No such file or directory\); name a"
    ):
        Blocklist.load(tmp_path / "none")


def test_a_bundle_carries_words_or_hashes(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("\ufeffsex\r\nbad phrase", encoding="utf-8")
    assert packed(file, as_hashes=False) == "sex\nbad phrase\n"
    text = packed(file, as_hashes=True)
    assert text == hashed(["sex", "bad phrase"])
    file.write_text(text, encoding="utf-8")
    assert packed(file, as_hashes=True) == packed(file, as_hashes=False) == text


def test_a_watched_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("one\n")
    watched = WatchedBlocklist(file, Blocklist(["own"]))
    for word, other in (("two", "six"), ("six", "two")) * 5:  # the same size, within one tick of the clock
        file.write_text(f"{word}\n")
        assert watched.current().denies(word)
        assert not watched.current().denies(other)
        assert watched.current().denies("own")
    os.utime(file, (1e9, 1e9))
    assert watched.current().denies("six")
    assert watched.current() is watched.current()
    new = tmp_path / "new.txt"
    new.write_text("ten\n")
    os.utime(new, (1e9, 1e9))
    new.replace(file)
    assert not watched.current().denies("six")
    file.write_text(hashed(["hidden"]))
    assert watched.current().denies("hidden")
    file.write_text("")
    os.utime(file, (1e9, 1e9))  # an empty file counts when it has stood for a while
    assert not watched.current().denies("hidden")


def test_a_watched_file_that_cannot_be_read_leaves_the_last_list_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "list.txt"
    with pytest.raises(UserError, match="cannot be read"):
        WatchedBlocklist(file)
    file.write_text("one\n")
    os.utime(file, (1e9, 1e9))
    watched = WatchedBlocklist(file)
    with caplog.at_level(logging.WARNING):
        file.unlink()
        assert all(watched.current().denies("one") for _ in range(3))
        assert [record.getMessage().split(";")[0] for record in caplog.records] == [
            f"the block list `{file}` cannot be read (No such file or directory)"
        ]
        file.write_bytes(b"\xff")
        os.utime(file, (1e9, 1e9))
        assert all(watched.current().denies("one") for _ in range(3))
        assert len(caplog.records) == 2
        assert caplog.records[1].getMessage().endswith("The block list stays as it was before.")
    file.write_text("two\n")
    assert watched.current().denies("two")
    assert not watched.current().denies("one")


def test_a_watched_file_that_is_saved_in_place_lets_nothing_through_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("bad\n")
    watched = WatchedBlocklist(file)
    with file.open("w") as halfway:
        assert watched.current().denies("bad")
        halfway.write("worse\n")
    assert watched.current().denies("worse")
    assert not watched.current().denies("bad")
    file.write_text("")
    assert watched.current().denies("worse")
    os.utime(file, (1e9, 1e9))  # it has stood for a while
    assert not watched.current().denies("worse")
