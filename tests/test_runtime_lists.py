"""Popular completions against a plain search, and the block list word by word."""

import random
from pathlib import Path

import pytest

from mtn_edge.errors import UserError
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions


def plain_top(entries: list[tuple[str, int]], prefix: str, k: int) -> list[tuple[str, int]]:
    found = [entry for entry in entries if entry[0].startswith(prefix)]
    return sorted(found, key=lambda entry: (-entry[1], entry[0].encode()))[:k]


def test_top_is_what_a_plain_search_finds() -> None:
    generator = random.Random(1)
    texts = {"".join(generator.choices("ab é東🎉\U0010ffff", k=generator.randrange(1, 6))) for _ in range(3000)}
    entries = [(text, generator.randrange(1, 40)) for text in sorted(texts)]
    generator.shuffle(entries)
    completions = Completions(entries)
    assert len(completions) == len(entries)
    assert completions.total == sum(count for _, count in entries)
    for _ in range(500):
        prefix = generator.choice(entries)[0][: generator.randrange(4)]
        k = generator.choice([0, 1, 8, 700, 10_000])
        assert completions.top(prefix, k) == plain_top(entries, prefix, k)
    assert completions.top("nothing", 5) == []


def test_an_empty_list_has_nothing() -> None:
    assert Completions(()).top("", 8) == []
    assert Completions(()).total == 0


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "completions.tsv"
    file.write_bytes("new york\t7\n東京 天気\t3\n".encode())
    assert Completions.load(file).top("", 9) == [("new york", 7), ("東京 天気", 3)]
    file.write_bytes(b"")
    assert len(Completions.load(file)) == 0


@pytest.mark.parametrize("line", [b"york", b"york\tmany", b"york\t1\t2", b"\xff\t1"])
def test_a_bad_line_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "completions.tsv"
    file.write_bytes(b"new\t1\n" + line + b"\n")
    with pytest.raises(UserError, match=r"line 2 of `.*completions.tsv` is not a query, a tab and a count"):
        Completions.load(file)


@pytest.mark.parametrize(
    ("entry", "caught", "free"),
    [
        (
            "sex",
            ["sex", "SEX ", "free sex now", "ｓｅｘ", "sex.", "'sex'", "sex-shop", "Sex!"],
            ["sussex university", "essex", "sexual", "s e x", ""],
        ),
        ("Bad  Phrase", ["bad phrase", "a BAD phrase here", "bad-phrase"], ["bad", "phrase bad", "bad good phrase"]),
        ("straße", ["STRASSE", "strasse", "straße 5"], ["strass", "strassen"]),
        ("नमस्ते", ["नमस्ते जी"], ["नमस"]),
        ("नमस", ["नमस जी"], ["नमस्ते"]),
        ("色情", ["色情", "色情网站", "免费色情 new"], ["色", "情色"]),
        ("4chan", ["4chan org"], ["chan", "44chan"]),
    ],
)
def test_whole_words_and_phrases_are_caught(entry: str, caught: list[str], free: list[str]) -> None:
    blocklist = Blocklist([entry])
    assert [text for text in caught if not blocklist.denies(text)] == []
    assert [text for text in free if blocklist.denies(text)] == []


def test_an_empty_block_list_denies_nothing() -> None:
    assert not Blocklist(["", "  ", "!?"]).denies("!? anything")


def test_a_block_list_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "blocklist.txt"
    file.write_text("sex\n\nbad phrase\r\n", encoding="utf-8")
    blocklist = Blocklist.load(file)
    assert blocklist.denies("bad phrase")
    assert not blocklist.denies("bad")
    file.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"blocklist.txt` is not UTF-8 text"):
        Blocklist.load(file)
