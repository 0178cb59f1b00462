"""The mixture: it sums to one, copies what the session holds, and training computes what decoding does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.config import Fusion, ModelConfig
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.decoding.mixture import Mixture
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import Network, build
from mtn_edge.models.fusion import copies_of_targets
from mtn_edge.ngram.counting import count
from mtn_edge.ngram.model import NGram
from mtn_edge.ngram.pruning import fit
from mtn_edge.tokenizer import BOS, EOS, PAD
from mtn_edge.training.module import token_loss

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


def make(arch: str, fusion: Fusion) -> Network:
    torch.manual_seed(3)
    network = build(dataclasses.replace(CONFIG, arch=arch, fusion=fusion)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


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


def log_probs(model: Network, session: Sequence[Sequence[int]], prefix: Sequence[int]) -> torch.Tensor:
    """Log p [v] of the next token, as the search computes it."""
    memory = after(TorchEngine(model, NGRAM), session)
    mixture = Mixture(model, NGRAM, memory.get("memory_text", torch.zeros(0, dtype=torch.long)))
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
    model = make("mtn", "all")
    assert model.gate is not None
    found = log_probs(model, session, prefix).exp()

    memory = after(TorchEngine(model, NGRAM), session)
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
    features = torch.tensor([*np.eye(4)[matched[0]], left[0], *np.log1p(places)], dtype=torch.float32)
    scores = model.gate.linear(torch.cat([state[0], features]))
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


def batch_of(session: list[list[int]]) -> Batch:
    """One session as training sees it, with what the n-gram says about every token."""
    t = max(map(len, session))
    source = torch.full((1, len(session), max(t, 1)), PAD)
    target_in, target_out = torch.full((1, len(session), t + 1), PAD), torch.full((1, len(session), t + 1), IGNORE)
    evidence = torch.zeros(1, len(session), t + 1, 3)
    for number, query in enumerate(session):
        read = session[number - 1] if number else [BOS]
        source[0, number, : len(read)] = torch.tensor(read)
        target_in[0, number, : len(query) + 1] = torch.tensor([BOS, *query])
        target_out[0, number, : len(query) + 1] = torch.tensor([*query, EOS])
        context = NGRAM.start
        for place, token in enumerate([*query, EOS]):
            tokens, shares, left, matched = NGRAM.entries(context)
            share = float(shares[0][tokens[0] == token].sum())
            evidence[0, number, place] = torch.tensor([share, left[0], matched[0]])
            context = NGRAM.advance(context, np.array([token]))
    return Batch(source, target_in, target_out, torch.zeros(1, dtype=torch.long), evidence)


@settings(max_examples=20, deadline=None)
@given(session=a_session)
@pytest.mark.parametrize("arch", ARCHS)
@torch.no_grad()
def test_training_scores_what_the_search_scores(arch: str, session: list[list[int]]) -> None:
    model = make(arch, "all")
    loss, count = token_loss(model, batch_of(session))
    expected = 0.0
    for number, query in enumerate(session):
        for place, token in enumerate([*query, EOS]):
            expected -= float(log_probs(model, session[:number], query[:place])[token])
    assert int(count) == sum(len(query) + 1 for query in session)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


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
    engine = TorchEngine(make("mtn", "all"), NGRAM)
    state = engine.append([5, 6], engine.start())
    assert state["memory_text"].tolist() == [BOS, 5, 6, EOS]
    assert engine.append([BOS], state)["memory_text"].tolist() == []


def test_both_the_gate_and_the_network_learn() -> None:
    model = make("mtn", "all").train()
    loss, _ = token_loss(model, batch_of([[5, 6, 7], [5, 6, 7, 8]]), label_smoothing=0.1)
    torch.autograd.backward(loss)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name
