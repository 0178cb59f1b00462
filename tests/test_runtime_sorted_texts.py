"""Front-coded texts against a plain sorted list."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.runtime.sorted_texts import AFTER_ALL, BLOCK, SortedTexts

some_texts = st.lists(st.text("aé東🎉\uffff ", max_size=5), max_size=3 * BLOCK, unique=True).map(sorted)


@given(some_texts, st.binary(max_size=6), st.data())
def test_every_place_is_that_of_the_sorted_list(texts: list[str], spelt: bytes, data: st.DataObject) -> None:
    made = SortedTexts(texts)
    first = data.draw(st.integers(0, len(texts)))
    last = data.draw(st.integers(first, len(texts)))
    for known in (made, SortedTexts.read(made.tobytes(), len(texts))):
        assert list(known) == texts
        raw = [text.encode() for text in texts]
        for sought in (spelt, *raw, *(text + AFTER_ALL for text in raw)):
            assert known.place(sought) == bisect_left(raw, sought)
            assert known.place(sought, (first, last)) == bisect_left(raw, sought, first, last)
        assert [known.find(text) for text in texts] == list(range(len(texts)))
        assert known.nbytes == len(made.tobytes())


def test_long_texts_are_written_too() -> None:
    texts = sorted("x" * length for length in (1, 127, 128, 300, 20_000))
    assert list(SortedTexts.read(SortedTexts(texts).tobytes(), len(texts))) == texts


def test_a_text_that_is_not_there_is_not_found() -> None:
    made = SortedTexts(["new", "new york"])
    assert [made.find(text) for text in ("", "ne", "new y", "york")] == [None] * 4


def test_texts_out_of_order_and_twice_are_refused() -> None:
    for texts in (["b", "a"], ["a", "a"]):
        with pytest.raises(ValueError, match="`texts` must be sorted and hold each text once"):
            SortedTexts(texts)


@pytest.mark.parametrize("raw", [b"", bytes(3), bytes(4), b"\1\0\0\0\0", bytes(9)])
def test_bytes_that_are_no_blocks_are_refused(raw: bytes) -> None:
    count = 1 if len(raw) < 9 else BLOCK + 1
    with pytest.raises(ValueError, match=r"."):
        SortedTexts.read(raw, count)
