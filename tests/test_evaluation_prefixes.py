from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from mtn_edge.evaluation.prefixes import prefix_lengths


@given(st.text(max_size=40))
def test_one_length_in_each_group_that_the_query_allows(query: str) -> None:
    lengths = prefix_lengths(query)
    assert all(0 < length < len(query) for length in lengths)
    groups = [0 if length <= 3 else 1 if length <= 7 else 2 for length in lengths]
    assert groups == [group for group, least in ((0, 1), (1, 4), (2, 8)) if len(query) > least]
    assert lengths == prefix_lengths(query)


def test_the_rule_is_the_stated_one() -> None:
    query = "new york times"
    drawn = [int.from_bytes(sha256(f"{group} {query}".encode()).digest()[:8], "big") for group in ("1-3", "4-7", "8+")]
    assert prefix_lengths(query) == (1 + drawn[0] % 3, 4 + drawn[1] % 4, 8 + drawn[2] % 6)
    assert prefix_lengths("ab") == (1,)
    assert prefix_lengths("a") == prefix_lengths("") == ()


def test_every_length_comes_about_equally_often() -> None:
    counts = [0] * 20
    for number in range(3000):
        for length in prefix_lengths(f"a query {number:04d}"):
            counts[length] += 1
    assert min(counts[1:4]) > 900
    assert min(counts[4:8]) > 650
    assert min(counts[8:12]) > 650
    assert not any(counts[12:])
