"""Popular completions against a plain search, in memory and from their file."""

import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.errors import UserError
from mtn_edge.runtime.completions import Completions

LETTERS = "ab é東🎉\U0010ffff"


def plain_top(entries: list[tuple[str, int]], prefix: str, k: int) -> list[tuple[str, int]]:
    found = [entry for entry in entries if entry[0].startswith(prefix)]
    return sorted(found, key=lambda entry: (-entry[1], entry[0].encode()))[:k]


def random_entries(count: int, highest: int, seed: int = 1) -> list[tuple[str, int]]:
    generator = random.Random(seed)
    texts = {"".join(generator.choices(LETTERS, k=generator.randrange(1, 8))) for _ in range(count)}
    entries = [(text, generator.randrange(1, highest)) for text in sorted(texts)]
    generator.shuffle(entries)
    return entries


# Around 256 queries and counts the numbers in the file get wider.
@pytest.mark.parametrize(("count", "highest"), [(1, 2), (200, 40), (400, 10_000), (5000, 40), (5000, 10**12)])
def test_top_is_what_a_plain_search_finds(tmp_path: Path, count: int, highest: int) -> None:
    entries = random_entries(count, highest)
    made = Completions(entries)
    made.save(tmp_path / "list")
    generator = random.Random(2)
    for completions in (made, Completions.load(tmp_path / "list")):
        assert len(completions) == len(entries)
        assert completions.total == sum(count for _, count in entries)
        for number in range(200):
            prefix = generator.choice(entries)[0][: generator.randrange(5) if number else 0]
            k = generator.choice([0, 1, 8, 700, 10_000])
            assert completions.top(prefix, k) == plain_top(entries, prefix, k)
        assert completions.top("nothing", 5) == []
        assert all(text in completions for text, _ in entries)


@pytest.mark.parametrize("count", [255, 256, 257, 65_535, 65_536, 65_537])
def test_every_number_of_queries_fits(tmp_path: Path, count: int) -> None:
    entries = [(f"{number:x}", count - number) for number in range(count)]
    Completions(entries).save(tmp_path / "list")
    completions = Completions.load(tmp_path / "list")
    assert completions.top("", 3) == entries[:3]
    assert completions.top("", count + 5)[-1] == entries[-1]
    assert completions.top("f", 2) == [("f", count - 15), ("f0", count - 0xF0)]


@given(st.dictionaries(st.text(max_size=6), st.integers(1, 2**40), max_size=30), st.text(max_size=3), st.integers(0, 9))
def test_any_text_is_found_by_any_beginning(entries: dict[str, int], prefix: str, k: int) -> None:
    completions = Completions(entries.items())
    assert completions.top(prefix, k) == plain_top(list(entries.items()), prefix, k)
    assert (prefix in completions) == (prefix in entries)
    assert completions.begins(prefix) == any(text.startswith(prefix) for text in entries)


@settings(max_examples=50)
@given(st.dictionaries(st.text("abé", max_size=5), st.integers(1, 5), max_size=40), st.text("abé", max_size=3))
def test_runs_and_letters_are_those_of_the_sorted_list(entries: dict[str, int], prefix: str) -> None:
    completions = Completions(entries.items())
    queries = sorted(entries)
    first, last = completions.run(prefix)
    assert queries[first:last] == [text for text in queries if text.startswith(prefix)]
    following = completions.letters((first, last), len(prefix))
    assert {letter: queries[slice(*run)] for letter, run in following} == {
        letter: [text for text in queries if text.startswith(prefix + letter)]
        for letter in {text[len(prefix)] for text in queries if text.startswith(prefix) and text != prefix}
    }


def test_what_is_not_a_query_of_the_list_is_not_in_it() -> None:
    completions = Completions([("new york", 2), ("new", 1)])
    assert "new york" in completions
    for stranger in ("new y", "", "york", "a\ud800", 7, None, b"new"):
        assert stranger not in completions


def test_an_empty_list_has_nothing(tmp_path: Path) -> None:
    Completions(()).save(tmp_path / "list")
    for completions in (Completions(()), Completions.load(tmp_path / "list")):
        assert completions.top("", 8) == []
        assert (completions.total, len(completions), "" in completions) == (0, 0, False)


def test_a_query_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="`entries` must hold each query once"):
        Completions([("new", 1), ("york", 2), ("new", 3)])


def test_the_same_list_gives_the_same_bytes(tmp_path: Path) -> None:
    entries = random_entries(500, 40)
    for name in ("one", "two"):
        Completions(entries).save(tmp_path / name)
        random.Random(3).shuffle(entries)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_file_is_smaller_than_the_text(tmp_path: Path) -> None:
    generator = random.Random(4)
    words = ["".join(generator.choices("abcdefghij", k=6)) for _ in range(200)]
    queries = {" ".join(generator.choices(words, k=3)) for _ in range(4000)}
    Completions((query, generator.randrange(1, 200)) for query in sorted(queries)).save(tmp_path / "list")
    assert (tmp_path / "list").stat().st_size < 0.85 * sum(len(query) + 3 for query in queries)


def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "completions.list"
    Completions(random_entries(300, 40)).save(file)
    whole = file.read_bytes()
    flips = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 9, 13, 17, 24, 90, len(whole) - 1)]
    for raw in (b"", b"new york\t7\n", whole[:20], whole[:-1], whole + b"\0", bytes(24), *flips):
        file.write_bytes(raw)
        with pytest.raises(UserError, match=r"`.*completions.list` is not a list of popular queries, or it is damaged"):
            Completions.load(file)


def test_a_file_whose_parts_do_not_fit_together_is_refused_whatever_its_checksum_says(tmp_path: Path) -> None:
    file = tmp_path / "completions.list"
    Completions([("new", 2), ("new york", 3), ("york", 2)]).save(file)
    whole = file.read_bytes()
    queries, header = (3).to_bytes(4, "little"), 20
    assert whole[12:16] == queries
    for raw in (
        whole[: header + 3],  # cut counts
        whole[: header + 17],  # cut groups
        whole[: header + 21],  # cut starts of blocks
        whole[: header + 23],  # no blocks
        *(whole[:12] + count.to_bytes(4, "little") + whole[16:] for count in (0, 40, 2**32 - 1)),
        whole[:header] + bytes(8) + whole[header + 8 :],  # a count of 0
        whole[: header + 16] + b"\xff" + whole[header + 17 :],  # a group that is none
        whole[: header + 19] + b"\1" + whole[header + 20 :],  # a first block that starts late
    ):
        file.write_bytes(zlib.crc32(raw[4:]).to_bytes(4, "little") + raw[4:])
        with pytest.raises(UserError, match="is not a list of popular queries, or it is damaged"):
            Completions.load(file)
