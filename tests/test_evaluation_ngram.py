"""The n-gram as an engine: the beam search of networks, the copying, and the weights that are chosen for it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the reference search runs on PyTorch")

import torch

from mtn_edge.decoding.beam_search import beam_search
from mtn_edge.decoding.prefix_constraint import PrefixConstraint
from mtn_edge.evaluation.copying import SessionCopies, Shares
from mtn_edge.evaluation.ngram_engine import NgramEngine
from mtn_edge.evaluation.ngram_system import SHARES, choose_shares, estimate_ngram, ngram_system, weigh_copying
from mtn_edge.ngram.model import NGram
from mtn_edge.runtime.call import Call, CallEndedError
from mtn_edge.runtime.engine import DEAD, NO_FLOOR, SessionState
from mtn_edge.tokenizer import BOS, EOS, Tokenizer

SESSIONS = [
    ["rome hotels", "rome hotels cheap", "rome weather"],
    ["paris hotels", "paris weather"],
    ["new york times", "new york weather", "news"],
    ["東京 天気", "東京 ホテル"],
    ["cheap flights", "cheap flights to rome"],
] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train((query for session in SESSIONS for query in session), 330)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> NGram:
    return estimate_ngram(SESSIONS, tokenizer, None)


@pytest.fixture(scope="module")
def untied(model: NGram) -> NGram:
    """The same grams with random shares: no two texts are equally probable, and every search has one answer."""
    random = np.random.default_rng(3)
    unigram = model.unigram * random.uniform(0.5, 1.5, len(model.unigram)).astype(np.float32)
    levels = [
        level._replace(
            codes=random.integers(0, 256, len(level.codes)).astype(np.uint8),
            values=(random.uniform(0.01, 0.99, 256) / level.sizes.max()).astype(np.float32),
        )
        for level in model.levels
    ]
    return NGram(unigram / unigram.sum(), tuple(levels))


def mixed(model: NGram, context: np.ndarray, copies: SessionCopies | None, before: tuple[int, ...]) -> np.ndarray:
    """The whole distribution [V] after some tokens, the plain way."""
    chance = model.distribution(context.tolist()).astype(np.float64)
    if copies is not None:
        factor, copied = copies.mix(before)
        chance *= factor
        chance[copies.tokens] += copied
    return chance


class AsNetwork:
    """The n-gram as a network that the reference search can step: its logits are the logs of the whole mixture."""

    def __init__(self, model: NGram, copies: SessionCopies | None) -> None:
        self.model, self.copies = model, copies

    def logits(self, states: Any) -> Any:
        return states

    def step(self, tokens: Any, _position: int, _memory: Any, past: Any) -> tuple[Any, list[Any]]:
        if past is None:
            contexts, before = self.model.start, torch.full((1, 2), -1)
            before[0, 1] = BOS
        else:
            contexts = self.model.advance(past[0].numpy(), tokens.numpy())
            before = torch.stack([past[1][:, 1], tokens], dim=1)
        rows = [
            mixed(self.model, context, self.copies, tuple(token for token in pair if token >= 0))
            for context, pair in zip(contexts, before.tolist(), strict=True)
        ]
        logits = torch.from_numpy(np.log(np.maximum(np.stack(rows), 1e-300))).float()
        return logits, [torch.from_numpy(contexts), before]


def state_of(engine: NgramEngine, tokenizer: Tokenizer, queries: list[str]) -> SessionState:
    state = engine.start()
    for query in queries:
        state = engine.append(tokenizer.encode(query), state)
    return state


@pytest.mark.parametrize("shares", [None, (0.1, 0.3, 0.4)])
@pytest.mark.parametrize("prefix", ["", "r", "rome ", "rome ho", "new york w", "東", "zq", "cheap flights to"])
@pytest.mark.parametrize(("beam", "floor"), [(1, NO_FLOOR), (8, NO_FLOOR), (10, math.log(0.05))])
def test_it_finds_what_the_reference_search_finds(
    untied: NGram, tokenizer: Tokenizer, shares: Shares | None, prefix: str, beam: int, floor: float
) -> None:
    engine = NgramEngine(untied, shares)
    state = state_of(engine, tokenizer, ["rome weather", "cheap hotels rome"])
    copies = None if shares is None else SessionCopies(state["session_text"].tolist(), shares)
    constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode).typed(prefix, 16)
    assert constraint is not None
    steps = 18 - len(constraint.start_tokens)
    network: Any = AsNetwork(untied, copies)
    tokens, scores, mass = beam_search(network, {}, constraint, beam=beam, max_steps=steps, floor=floor)
    sound = scores.numpy() > DEAD
    for _ in range(2):  # the second time from what was kept
        found = engine.search(state, constraint, beam=beam, max_steps=steps, floor=floor)
        assert found.mass == pytest.approx(mass, abs=1e-4)
        assert found.scores[sound] == pytest.approx(scores.numpy()[sound], abs=1e-3)
        assert (found.scores[~sound] <= DEAD).all()
        assert found.tokens[sound].tolist() == tokens.numpy()[sound].tolist()


def test_probabilities_of_all_texts_are_those_of_the_tokens(model: NGram, tokenizer: Tokenizer) -> None:
    session = ngram_system(model, tokenizer).start()
    found = session.log_probability("rome hotels")
    assert found is not None
    tokens = [*tokenizer.encode("rome hotels"), EOS]
    context, total = model.start, 0.0
    for token in tokens:
        total += math.log(model.distribution(context[0].tolist())[token])
        context = model.advance(context, np.array([token]))
    assert found == (pytest.approx(total, abs=1e-4), len(tokens))
    assert session.candidates("rome h").texts[0] == "rome hotels"


def test_candidates_continue_what_is_typed(model: NGram, tokenizer: Tokenizer) -> None:
    session = ngram_system(model, tokenizer, (0.1, 0.3, 0.4)).start()
    for query in ("zürich opera", "zürich opera tickets"):
        session.append(query)
    for prefix in ("", "z", "zürich o", "rome ", "東京"):
        candidates = session.candidates(prefix).texts
        assert candidates
        assert len(candidates) == len(set(candidates)) <= 10
        assert all(text.startswith(prefix) and len(text) > len(prefix) for text in candidates)
    assert "zürich opera" in session.candidates("zü").texts  # no query of the training split begins like that


def test_an_ended_call_is_not_answered(model: NGram, tokenizer: Tokenizer) -> None:
    engine = NgramEngine(model)
    constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode).typed("", 16)
    assert constraint is not None
    call = Call()
    call.end("enough")
    with pytest.raises(CallEndedError, match="enough"):
        engine.search(engine.start(), constraint, beam=4, max_steps=5, call=call)


def test_copying_by_hand() -> None:
    # Two queries: 3 4 5 and 3 4 6.
    copies = SessionCopies([BOS, 3, 4, 5, EOS, BOS, 3, 4, 6, EOS], (1.0, 1.0, 1.0))
    assert copies.tokens.tolist() == [EOS, 3, 4, 5, 6]
    # After 3 4: 5 and 6 once each, weight 2 / (2 + 0.5 * 2); after 4 the same; after nothing 3, 4 and <eos> twice, 5
    # and 6 once: weight 8 / (8 + 0.5 * 5).
    left, copied = copies.mix((3, 4))
    none = 8 / 10.5
    rest = (1 / 3) ** 2
    assert copied == pytest.approx(
        [rest * none / 4, rest * none / 4, rest * none / 4, *[8 / 9 / 2 + rest * none / 8] * 2], rel=1e-5
    )
    assert left == pytest.approx(rest * (1 - none))
    assert [copies.longest(before) for before in ((3, 4), (9, 4), (9, 9), (BOS,), (BOS, 3))] == [2, 1, 0, 1, 2]


def test_the_share_depends_on_the_length_of_the_match_alone() -> None:
    text = [BOS, 3, 4, 5, EOS]
    whole, part = SessionCopies(text, (1.0, 1.0, 1.0)), SessionCopies(text, (0.1, 0.2, 0.3))
    for before, share in (((3, 4), 0.3), ((9, 4), 0.2), ((9, 9), 0.1)):
        left, everything = whole.mix(before)
        factor, copied = part.mix(before)
        assert copied == pytest.approx(share * everything, rel=1e-5)
        assert factor == pytest.approx(1 - share + share * left)


def test_an_empty_session_is_the_n_gram_alone(model: NGram, tokenizer: Tokenizer) -> None:
    alone, copying = (ngram_system(model, tokenizer, shares).start() for shares in (None, (0.5, 0.5, 0.5)))
    assert copying.log_probability("rome hotels") == alone.log_probability("rome hotels")
    assert copying.candidates("ne").texts == alone.candidates("ne").texts


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=5), max_size=4),
    st.tuples(*[st.floats(0, 1)] * 3),
    st.lists(st.integers(3, 9), max_size=3),
)
def test_a_mixture_is_a_distribution(queries: list[list[int]], shares: Shares, typed: list[int]) -> None:
    copies = SessionCopies([token for query in queries for token in (BOS, *query, EOS)], shares)
    factor, copied = copies.mix(tuple([BOS, *typed][-2:]))
    assert factor + copied.sum() == pytest.approx(1, abs=1e-5)
    assert factor >= 0
    assert (copied >= 0).all()


def test_shares_are_the_likeliest_of_those_tried(model: NGram, tokenizer: Tokenizer) -> None:
    sessions = [["oslo ferry", "oslo ferry times", "oslo ferry prices"], ["lyon trams", "lyon trams map"], ["alone"]]
    shares = weigh_copying(model, sessions, tokenizer)
    assert set(shares) <= set(SHARES)

    def nats(tried: Shares) -> float:
        system, total = ngram_system(model, tokenizer, tried), 0.0
        for queries in sessions:
            session = system.start()
            for number, query in enumerate(queries):
                if number:
                    total += (session.log_probability(query) or (0.0, 0))[0]
                session.append(query)
        return total

    best = nats(shares)
    for length in range(3):
        for share in SHARES:
            tried = [*shares]
            tried[length] = share
            assert nats((tried[0], tried[1], tried[2])) <= best + 1e-3
    assert shares[2] > 0  # these sessions repeat themselves
    chosen = choose_shares(model, sessions, tokenizer)
    factors = {round(own / likely, 6) for own, likely in zip(chosen, shares, strict=True) if likely}
    assert len(factors) == 1
    assert factors <= {1.0, 0.5, 0.25}


def test_where_nothing_repeats_nothing_is_copied(model: NGram, tokenizer: Tokenizer) -> None:
    assert choose_shares(model, [["alone"], ["also alone"]], tokenizer) == (0.0, 0.0, 0.0)
