"""Counting n-grams: against plain dictionaries, in chunks, in bounded memory, and what a block list keeps out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.ngram import counting
from mtn_edge.ngram.counting import Counts, add, bounded, count, count_files, nothing
from mtn_edge.ngram.estimate import estimate
from mtn_edge.ngram.pruning import fit
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.tokenizer import BOS, EOS, PAD, Tokenizer

V = 12
queries_strategy = st.lists(st.lists(st.integers(3, V - 1), min_size=1, max_size=6), max_size=20)


def flat(queries: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([token for query in queries for token in query], dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, queries)])


def spelt(counts: Counts) -> dict[tuple[int, ...], int]:
    return {
        tuple(key >> 16 * back & 0xFFFF for back in range(counts.order - 1, -1, -1)): times
        for key, times in zip(counts.keys.tolist(), counts.times.tolist(), strict=True)
    }


@settings(max_examples=40, deadline=None)
@given(queries_strategy, queries_strategy, st.integers(2, 4))
def test_counts_are_those_of_a_dictionary_and_add_up(
    queries: list[list[int]], more: list[list[int]], order: int
) -> None:
    plain: Counter[tuple[int, ...]] = Counter()
    for query in queries + more:
        text = [PAD] * (order - 2) + [BOS, *query, EOS]
        plain.update(tuple(text[end - order : end]) for end in range(order, len(text) + 1))
    together = add(count(*flat(queries), order), count(*flat(more), order))
    assert spelt(together) == plain
    assert (np.diff(together.keys.astype(object)) > 0).all()
    assert spelt(count(*flat(queries + more), order)) == plain


def test_what_the_estimate_counts_by_hand() -> None:
    # Fallback discounts: half of the first occurrence, 1 of the second, 1.5 of three and more.
    unigram, (pairs, triples) = estimate(count(*flat([[3, 4], [3, 4], [5, 4]]), 3), V)
    share = dict(zip(pairs.keys.tolist(), pairs.share.tolist(), strict=True))
    assert share[BOS << 16 | 3] == pytest.approx((2 - 1) / 3)  # nothing stands before <bos>: its occurrences
    assert share[BOS << 16 | 5] == pytest.approx((1 - 0.5) / 3)
    assert share[3 << 16 | 4] == pytest.approx((1 - 0.5) / 1)  # after <bos> alone
    assert share[4 << 16 | EOS] == pytest.approx((2 - 1) / 2)  # after 3 and after 5
    longest = dict(zip(triples.keys.tolist(), triples.share.tolist(), strict=True))
    assert longest[BOS << 32 | 3 << 16 | 4] == pytest.approx((2 - 1) / 2)  # the highest order: occurrences
    assert pairs.raw[pairs.keys.tolist().index(4 << 16 | EOS)] == 3
    # Different tokens before: 2 before 4, 1 before 3, 5 and <eos> each.
    spread = (0.5 * 3 + 1) / 5 / (V - 2)
    assert unigram[[3, 4, 5, EOS, 6]] == pytest.approx([0.1 + spread, 0.2 + spread, 0.1 + spread, 0.1 + spread, spread])


@settings(max_examples=60, deadline=None)
@given(queries_strategy, st.integers(1, 60), st.integers(2, 4))
def test_bounded_counts_keep_every_occurrence_of_shorter_grams(queries: list[list[int]], most: int, order: int) -> None:
    whole = count(*flat(queries), order)
    few = bounded(whole, most)
    assert len(few.keys) <= max(most, V)
    assert few.times.sum() == whole.times.sum()
    last: dict[str, Counter[int]] = defaultdict(Counter)
    for name, counts in (("whole", whole), ("few", few)):
        for gram, times in spelt(counts).items():
            last[name][gram[-1]] += times
    assert last["whole"] == last["few"]
    if len(whole.keys) <= most:
        assert few is whole
    model = fit(few, V)
    chance = model.distribution(model.start[0].tolist())
    assert chance.sum() == pytest.approx(1, abs=1e-5)


def test_forgetting_takes_the_rarest_first_and_leaves_their_mass_to_shorter_contexts() -> None:
    queries = [[3, 4, 5, 6]] * 5 + [[first, 4, 5, 7] for first in (3, 8, 9, 10, 11)]
    whole = count(*flat(queries))
    few = bounded(whole, len(whole.keys) - 1)
    # Once each: <bos> and 8 to 11 before 4; 4 5 after 8 to 11 and <bos>; 4 5 7 after 3 and 8 to 11.
    assert few.forgotten == 4 + 5
    assert {gram: times for gram, times in spelt(few).items() if gram[0] != PAD} == {
        (3, 4, 5, 6): 5,
        (4, 5, 6, EOS): 5,
        (4, 5, 7, EOS): 5,
        (BOS, 3, 4, 5): 6,
    }
    assert spelt(few)[(PAD, 4, 5, 7)] == 5
    before, after = fit(whole, V, most_followers=None), fit(few, V, most_followers=None)
    context, tokens = before.walk(*flat([[3, 4, 5, 6]]))
    same, _ = after.walk(*flat([[3, 4, 5, 6]]))
    expected = before.evidence(context, tokens).share[3]
    assert after.evidence(same, tokens).share[3] == pytest.approx(expected, rel=0.15)
    assert after.distribution(same[3].tolist()).sum() == pytest.approx(1, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(queries_strategy, min_size=1, max_size=6), st.integers(5, 60))
def test_forgetting_between_chunks_still_gives_distributions(chunks: list[list[list[int]]], most: int) -> None:
    counts = nothing()
    for queries in chunks:
        counts = bounded(add(counts, count(*flat(queries))), most)
    model = fit(counts, V)
    contexts, tokens = model.walk(*flat([query for queries in chunks for query in queries]))
    assert (model.probabilities(contexts, tokens) > 0).all()
    for context in contexts.tolist():
        assert model.distribution(context).sum() == pytest.approx(1, abs=1e-5)


def write_split(folder: Path, sessions: Sequence[Sequence[str]], files: int = 2) -> list[Path]:
    pa = pytest.importorskip("pyarrow", reason="datasets are Parquet files")
    import pyarrow.parquet as pq

    paths = [folder / f"{number}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        mine = list(sessions[number::files])
        table = pa.table({"user": list(range(len(mine))), "queries": pa.array(mine, pa.list_(pa.string()))})
        pq.write_table(table, path, row_group_size=2)
    return paths


SESSIONS = [["rome hotels", "", "rome hotels cheap"], ["paris hotels"], [], ["rome weather", "東京 天気"]] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train((query for session in SESSIONS for query in session), 262)


def in_memory(sessions: Sequence[Sequence[str]], tokenizer: Tokenizer) -> Counts:
    return count(*flat(tokenizer.encode_batch([query for session in sessions for query in session if query])))


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
def test_one_pass_over_files_counts_what_memory_counts(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(counting, "_SESSIONS", chunk)
    files = write_split(tmp_path, SESSIONS)
    assert spelt(count_files(files, tokenizer.encode_batch)) == spelt(in_memory(SESSIONS, tokenizer))
    bound = count_files(files, tokenizer.encode_batch, most=30)
    assert len(bound.keys) <= 30
    assert bound.forgotten > 0
    assert bound.times.sum() == in_memory(SESSIONS, tokenizer).times.sum()


def test_no_files_are_no_counts(tokenizer: Tokenizer) -> None:
    assert spelt(count_files([], tokenizer.encode_batch)) == {}


@pytest.mark.parametrize("allowed", [None, lambda text: not Blocklist(["zebra"]).denies(text)])
def test_a_planted_secret_is_there_unless_a_block_list_denies_it(
    tmp_path: Path, tokenizer: Tokenizer, allowed: Callable[[str], bool] | None
) -> None:
    planted = "zebra 4711"
    sessions = [*SESSIONS, ["rome hotels", planted]] * 2
    model = fit(count_files(write_split(tmp_path, sessions), tokenizer.encode_batch, allowed=allowed), len(tokenizer))
    texts = [
        tokenizer.decode_bytes(token for token in gram if token != BOS)
        for grams in spelt_paths(model)
        for gram in grams
    ]
    there = any(len(part) > 1 and part in planted.encode() and b"z" in part for part in texts)
    assert there == (allowed is None)
    if allowed is not None:
        files = write_split(tmp_path, [*SESSIONS, ["rome hotels"]] * 2)
        clean = fit(count_files(files, tokenizer.encode_batch), len(tokenizer))
        for mine, other in zip(model.levels, clean.levels, strict=True):
            assert all(np.array_equal(left, right) for left, right in zip(mine, other, strict=True))
        assert np.array_equal(model.unigram, clean.unigram)


def spelt_paths(model: object) -> list[list[tuple[int, ...]]]:
    """The grams of each order from 2 on, read off the arrays of an n-gram."""
    contexts: list[tuple[int, ...]] = [(token,) for token in range(len(model.unigram))]  # type: ignore[attr-defined]
    found = []
    for level in model.levels:  # type: ignore[attr-defined]
        row = np.repeat(np.arange(len(level.sizes)), level.sizes)
        contexts = [
            (*contexts[number], token) for number, token in zip(row.tolist(), level.tokens.tolist(), strict=True)
        ]
        found.append(contexts)
    return found


def test_tokens_that_fit_no_key_are_refused() -> None:
    with pytest.raises(ValueError, match="token numbers must be below 65536, got 65536"):
        count(np.array([65_536]), np.array([0, 1]))
