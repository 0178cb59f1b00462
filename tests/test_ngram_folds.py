"""What an n-gram says about its training text: each session asked of an n-gram that did not count it."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.data.batches import TokenizedSessions
from mtn_edge.ngram import folds
from mtn_edge.ngram.counting import count
from mtn_edge.ngram.folds import evidence_of, held_out, leave_out
from mtn_edge.ngram.pruning import fit
from mtn_edge.tokenizer import EOS

V = 12
Sessions = list[list[list[int]]]
query = st.lists(st.integers(3, V - 1), min_size=1, max_size=5)
sessions_strategy = st.lists(st.lists(query, min_size=1, max_size=4), max_size=9)


def flat(queries: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([token for query in queries for token in query], dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, queries)])


def arrays(sessions: Sessions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (*flat([query for session in sessions for query in session]), np.cumsum([0, *map(len, sessions)]))


@settings(max_examples=30, deadline=None)
@given(sessions_strategy, st.sampled_from([None, 3200]), st.integers(2, 4), st.sampled_from([1, 2, 3, 1000]))
def test_each_session_is_asked_of_the_others(sessions: Sessions, max_bytes: int | None, order: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folds, "_QUERIES", chunk)
        found = held_out(*arrays(sessions), V, max_bytes, order=order, most_followers=3)
    number = min(4, len(sessions))
    place = 0
    for session, queries in enumerate(sessions):
        others = [query for other, part in enumerate(sessions) if other % number != session % number for query in part]
        model = fit(count(*flat(others), order), V, max_bytes, most_followers=3)
        expected = model.evidence(*model.walk(*flat(queries)))
        if number < 2:
            expected = expected._replace(
                share=np.zeros_like(expected.share),
                left=np.ones_like(expected.left),
                matched=np.zeros_like(expected.matched),
            )
        part = slice(place, place + len(expected.share))
        assert found.share[part] == pytest.approx(expected.share)
        assert found.left[part] == pytest.approx(expected.left)
        assert found.matched[part].tolist() == expected.matched.tolist()
        place = part.stop
    assert place == len(found.share) == len(found.left) == len(found.matched)
    assert (found.share.dtype, found.left.dtype, found.matched.dtype) == (np.float32, np.float32, np.uint8)


@pytest.mark.parametrize("sessions", [[], [[[3, 4], [3, 5]]]])
def test_of_one_session_and_of_none_nothing_is_said(sessions: Sessions) -> None:
    share, left, matched = held_out(*arrays(sessions), V)
    assert len(share) == sum(len(query) + 1 for session in sessions for query in session)
    assert (share == 0).all()
    assert (left == 1).all()
    assert (matched == 0).all()


def test_a_text_of_its_own_is_not_remembered() -> None:
    common = [[[3, 4, 5]]] * 8
    own = [[[6, 7, 8, 9]]]
    sessions = [*common, *own]
    share, _, _ = held_out(*arrays(sessions), V)
    assert (share[:32].reshape(8, 4) > 0.3).all()
    assert (share[32:] == 0).all()
    whole = fit(count(*flat([query for session in sessions for query in session])), V)
    assert (whole.evidence(*whole.walk(*flat(own[0]))).share > 0.05).all()


def test_places_are_those_of_the_token_stream() -> None:
    texts = [["ab", "abc"], ["abd"], ["ab", "b"], ["abc"], ["bd", "abc"]]
    sessions = TokenizedSessions(
        texts, lambda batch: [[ord(letter) - ord("a") + 3 for letter in text] for text in batch]
    )
    found = held_out(sessions.tokens, sessions.query_offsets, sessions.session_offsets, V)
    models = leave_out(sessions.tokens, sessions.query_offsets, sessions.session_offsets, V)
    for number in range(sessions.queries):
        start, end = sessions.query_offsets[number : number + 2]
        session = int(np.searchsorted(sessions.session_offsets, number, side="right")) - 1
        model = models[session % 4]
        context = model.start
        for place, token in enumerate([*sessions.tokens[start:end].tolist(), EOS]):
            share, left, matched = model.evidence(context, np.array([token]))
            target = start + number + place
            assert (found.share[target], found.left[target], found.matched[target]) == (share[0], left[0], matched[0])
            context = model.advance(context, np.array([token]))


def test_queries_may_be_spelt_anew() -> None:
    sessions: Sessions = [[[3, 4], [5]], [[3, 4, 6]], [[5, 6]]]
    anew: Sessions = [[[3, 4, 4], [5, 5, 5]], [[3, 6]], [[5]]]
    models = leave_out(*arrays(sessions), V)
    found = evidence_of(models, *arrays(anew))
    assert len(models) == 3
    expected = [model.evidence(*model.walk(*flat(part))).share for model, part in zip(models, anew, strict=True)]
    assert found.share == pytest.approx(np.concatenate(expected))
