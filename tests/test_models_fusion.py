"""The mixture: it sums to one, copies what the session holds, and training computes what decoding does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.config import Config, Fusion, ModelConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.decoding.mixture import Mixture
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import Network, build
from mtn_edge.models.fusion import NgramEvidence, Sources, copies_of_targets, make_gate
from mtn_edge.ngram.counting import count
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import fit
from mtn_edge.tokenizer import BOS, EOS, PAD
from mtn_edge.training.gate import PENALTIES, Scored, _choose_penalty, fit_gate, loss, score_batch

VOCAB, T, Q = 14, 5, 6
ARCHS = ("mtn", "transformer", "seq2seq", "hred", "tail-lstm")
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    d_model=16,
    heads=2,
    ffn=24,
    query_layers=1,
    session_layers=1,
    decoder_layers=1,
    units=20,
    max_tokens=T,
    max_queries=Q,
    dropout=0.0,
)
LOG = [[5, 6, 7], [5, 6], [8, 6, 7, 9], [5, 6, 7, 10], [11], [6, 7], [5, 5, 5]]


def make(arch: str, fusion: Fusion) -> tuple[Network, Sources | None]:
    torch.manual_seed(3)
    config = dataclasses.replace(CONFIG, arch=arch, fusion=fusion)  # type: ignore[arg-type]
    network, gate = build(config).eval(), make_gate(config)
    with torch.no_grad():
        for parameter in [*network.parameters(), *gate.parameters()]:
            parameter.add_(0.2 * torch.randn_like(parameter))
    sources = Sources(gate.eval(), NGRAM if gate.has_ngram else None)
    return network, sources if fusion != "none" else None


def ngram() -> NGram:
    offsets = np.cumsum([0, *map(len, LOG)])
    return fit(count(np.concatenate(LOG), offsets), VOCAB)


NGRAM = ngram()
a_query = st.lists(st.integers(EOS + 1, VOCAB - 1), min_size=1, max_size=T)
a_session = st.lists(a_query, min_size=1, max_size=Q)


def copied(session: Sequence[Sequence[int]], before: Sequence[int], length: int) -> dict[int, float]:
    """What followed the last `length` tokens of `before` in the session, by its definition."""
    followed: list[int] = []
    for query in session:
        text = [BOS, *query, EOS]
        followed += [
            text[place]
            for place in range(1, len(text))
            if place >= length and (length == 0 or text[place - length : place] == list(before[-length:]))
        ]
    return {token: followed.count(token) / len(followed) for token in set(followed)}


def after(engine: TorchEngine, session: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    state = engine.start()
    for query in session:
        state = engine.append(query, state)
    return {name: torch.from_numpy(array) for name, array in state.items() if name.startswith("memory_")}


def log_probs(
    made: tuple[Network, Sources | None], session: Sequence[Sequence[int]], prefix: Sequence[int]
) -> torch.Tensor:
    """Log p [v] of the next token, as the search computes it."""
    model, sources = made
    memory = after(TorchEngine(model, sources), session)
    mixture = Mixture(model, sources, memory.get("memory_text", torch.zeros(0, dtype=torch.long)))
    past, states = None, torch.empty(0)
    for position, token in enumerate([BOS, *prefix]):
        states, past = model.step(torch.tensor([token]), position, memory, past)
    return mixture.log_probs(states, mixture.start([BOS, *prefix]))[0]


@settings(max_examples=40, deadline=None)
@given(session=st.lists(a_query, max_size=Q - 1), prefix=st.lists(st.integers(EOS + 1, VOCAB - 1), max_size=T))
@pytest.mark.parametrize("fusion", ["none", "ngram", "copy", "all"])
@torch.no_grad()
def test_the_mixture_is_a_distribution(fusion: Fusion, session: list[list[int]], prefix: list[int]) -> None:
    chances = log_probs(make("mtn", fusion), session, prefix).exp()
    assert float(chances.sum()) == pytest.approx(1, abs=1e-5)
    assert float(chances.min()) > 0


@settings(max_examples=40, deadline=None)
@given(session=st.lists(a_query, max_size=Q - 1), prefix=st.lists(st.integers(EOS + 1, VOCAB - 1), max_size=T))
@torch.no_grad()
def test_the_mixture_by_its_definition(session: list[list[int]], prefix: list[int]) -> None:
    model, sources = made = make("mtn", "all")
    assert sources is not None
    found = log_probs(made, session, prefix).exp()

    memory = after(TorchEngine(model, sources), session)
    past, state = None, torch.empty(0)
    for position, token in enumerate([BOS, *prefix]):
        state, past = model.step(torch.tensor([token]), position, memory, past)
    network = model.logits(state)[0].softmax(0)
    context = NGRAM.start
    for token in prefix:
        context = NGRAM.advance(context, np.array([token]))
    tokens, shares, left, matched = NGRAM.entries(context)
    copies = [copied(session, [BOS, *prefix], length) for length in range(3)]
    if not prefix:
        copies[2] = {}
    places = [0.0, 0.0, 0.0]
    for length in range(3):
        places[length] = sum(
            1
            for query in session
            for place in range(1, len(query) + 2)
            if place >= length
            and (length == 0 or [BOS, *query, EOS][place - length : place] == [BOS, *prefix][-length:])
            and (length < 2 or prefix)
        )
    top = network.max()
    known = torch.tensor([*np.eye(4)[matched[0]], left[0], max([0, *shares[0]]), *np.log1p(places)])
    features = torch.cat([state[0], top.log()[None], top[None], known.float()])
    scores = sources.gate.linear(features)
    silent = torch.tensor([False, False, *(count == 0 for count in places)])
    g = scores.masked_fill(silent, -torch.inf).softmax(0)

    expected = (g[0] + g[1] * left[0]) * network
    for token, share in zip(tokens[0], shares[0], strict=True):
        expected[token] += g[1] * share
    for weight, offered in zip(g[2:], copies, strict=True):
        for token, share in offered.items():
            expected[token] += weight * share
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    # Single tokens are the n-gram's own affair nowhere: the network stands in for them.
    dense = np.zeros(VOCAB)
    np.add.at(dense, tokens[0], shares[0])
    assert dense + left[0] * NGRAM.unigram == pytest.approx(NGRAM.distribution(context[0].tolist()), abs=1e-5)
    assert NGRAM.top_shares(context)[0] == pytest.approx(max([0, *shares[0]]))


def batch_of(session: list[list[int]]) -> Batch:
    """One session as training sees it."""
    t = max(map(len, session))
    source = torch.full((1, len(session), max(t, 1)), PAD)
    target_in, target_out = torch.full((1, len(session), t + 1), PAD), torch.full((1, len(session), t + 1), IGNORE)
    for number, query in enumerate(session):
        read = session[number - 1] if number else [BOS]
        source[0, number, : len(read)] = torch.tensor(read)
        target_in[0, number, : len(query) + 1] = torch.tensor([BOS, *query])
        target_out[0, number, : len(query) + 1] = torch.tensor([*query, EOS])
    return Batch(source, target_in, target_out, torch.zeros(1, dtype=torch.long))


@settings(max_examples=20, deadline=None)
@given(session=a_session)
@pytest.mark.parametrize("arch", ARCHS)
@torch.no_grad()
def test_the_gate_is_fitted_on_what_the_search_scores(arch: str, session: list[list[int]]) -> None:
    model, sources = made = make(arch, "all")
    assert sources is not None
    found = loss(sources.gate, score_batch(model, batch_of(session), sources.ngram, copying=True, first=0))
    expected = [
        -float(log_probs(made, session[:number], query[:place])[token])
        for number, query in enumerate(session)
        for place, token in enumerate([*query, EOS])
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(sessions=st.lists(a_session, min_size=1, max_size=3))
def test_copies_come_from_earlier_queries_alone(sessions: list[list[list[int]]]) -> None:
    q, t = max(map(len, sessions)), max(len(query) for session in sessions for query in session)
    source = torch.full((len(sessions), q, t), PAD)
    target_in, target_out = torch.full((len(sessions), q, t + 1), PAD), torch.full((len(sessions), q, t + 1), IGNORE)
    expected: list[list[float]] = []
    for row, session in enumerate(sessions):
        for number, query in enumerate(session):
            read = session[number - 1] if number else [BOS]
            source[row, number, : len(read)] = torch.tensor(read)
            target_in[row, number, : len(query) + 1] = torch.tensor([BOS, *query])
            target_out[row, number, : len(query) + 1] = torch.tensor([*query, EOS])
            for place, token in enumerate([*query, EOS]):
                before = [BOS, *query[:place]]
                offers = [copied(session[:number], before, length) for length in range(min(3, place + 2))]
                expected.append([offer.get(token, 0.0) for offer in offers] + [0.0] * (3 - len(offers)))
    found = copies_of_targets(source, target_in, target_out)
    assert found.share.tolist() == [pytest.approx(row) for row in expected]
    assert bool(((found.share > 0) <= (found.places > 0)).all())


@torch.no_grad()
def test_a_later_session_of_a_user_copies_nothing_of_an_earlier_one() -> None:
    engine = TorchEngine(*make("mtn", "all"))
    state = engine.append([5, 6], engine.start())
    assert state["memory_text"].tolist() == [BOS, 5, 6, EOS]
    assert engine.append([BOS], state)["memory_text"].tolist() == []


def scored(tokens: int) -> Scored:
    """Tokens of which the n-gram is right in every second one, and says so."""
    right = torch.arange(tokens) % 2 == 0
    ngram = NgramEvidence(
        torch.where(right, 0.9, 0.001),
        torch.where(right, 0.1, 0.9),
        torch.where(right, 3, 0),
        torch.where(right, 0.9, 0.05),
    )
    log_probs = torch.where(right, 0.02, 0.5).log()
    return Scored(torch.arange(tokens), torch.zeros(tokens, 16), log_probs, log_probs, ngram, None)


@torch.no_grad()
def test_a_fitted_gate_listens_to_who_is_right() -> None:
    config = Config(model=dataclasses.replace(CONFIG, fusion="ngram"))
    tokens = scored(200)
    with torch.enable_grad():
        fitted, held = (fit_gate(config, tokens, penalty) for penalty in (1e-3, 10.0))
    fresh = make_gate(config.model)
    assert float(loss(fitted, tokens).mean()) < float(loss(fresh, tokens).mean()) - 0.2
    weights = fitted(tokens.states, tokens.top, tokens.ngram, None).exp()
    assert float(weights[0, 1]) > 0.8  # the n-gram's where it knows
    assert float(weights[1, 0]) > 0.8  # the network's where it does not
    assert float(held.linear.weight.square().sum()) < 0.01 * float(fitted.linear.weight.square().sum())


def test_one_session_has_no_halves() -> None:
    config = Config(model=dataclasses.replace(CONFIG, fusion="ngram"))
    tokens = scored(20)
    assert _choose_penalty(config, tokens._replace(session=torch.zeros(20))) == (PENALTIES[-1], None)
    penalty, nats = _choose_penalty(config, tokens._replace(session=torch.arange(20) // 2))
    assert penalty in PENALTIES
    assert nats is not None
    assert nats < float(loss(make_gate(config.model), tokens).detach().mean())
