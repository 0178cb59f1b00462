"""What every network promises: training equals decoding, nothing leaks, old queries count, typed text is obeyed."""

import dataclasses
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.config import ModelConfig
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import Network, build
from mtn_edge.runtime.engine import DEAD
from mtn_edge.runtime.search import Decoding, Search
from mtn_edge.tokenizer import BOS, EOS, PAD

ARCHITECTURES = ("mtn", "transformer", "seq2seq", "hred", "tail-lstm")
VOCAB, T, Q = 30, 6, 7
CUT = 11
"""Tokens that the flat Transformer reads: sessions below are longer."""
QUERIES = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14], [15, 16]]
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    d_model=16,
    heads=2,
    ffn=24,
    query_layers=1,
    session_layers=1,
    decoder_layers=2,
    units=20,
    max_tokens=T,
    max_queries=Q,
    max_session_tokens=CUT,
    dropout=0.0,
)


def make(arch: str, **changes: int) -> Network:
    torch.manual_seed(3)
    network = build(dataclasses.replace(CONFIG, arch=arch, **changes)).eval()  # type: ignore[arg-type]
    # Fresh biases and norms are zeros and ones, which would hide a term that is left out.
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


NETWORKS = {arch: make(arch) for arch in ARCHITECTURES}


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]


def batch(sessions: Sequence[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """`source` and `target_in` of some sessions."""
    q, t = max(map(len, sessions)), max(len(query) for session in sessions for query in session)
    source, target = torch.full((len(sessions), q, t), PAD), torch.full((len(sessions), q, t + 1), PAD)
    for row, session in enumerate(sessions):
        for number, (earlier, query) in enumerate(zip([[BOS], *session[:-1]], session, strict=True)):
            source[row, number, : len(earlier)] = torch.tensor(earlier)
            target[row, number, : len(query) + 1] = torch.tensor([BOS, *query])
    return source, target


def states(model: Network, sessions: Sequence[list[list[int]]]) -> list[list[torch.Tensor]]:
    """The scores [u + 1, v] of every query of every session, from one pass of training."""
    logits = model.logits(model.states(*batch(sessions)))
    sizes = [len(query) + 1 for session in sessions for query in session]
    parts = iter(logits.split(sizes))
    return [[next(parts) for _ in session] for session in sessions]


def steps(model: Network, queries: list[list[int]]) -> Iterator[torch.Tensor]:
    """The same of one session, by the cached forms."""
    cache = model.append(torch.tensor([BOS]), model.start())
    for query in queries:
        past, rows = None, []
        for position, token in enumerate([BOS, *query]):
            scores, past = model.step(torch.tensor([token]), position, cache.memory, past)
            rows.append(model.logits(scores[0]))
        yield torch.stack(rows)
        cache = model.append(torch.tensor(query), cache)


a_query = st.lists(st.integers(EOS + 1, VOCAB - 1), min_size=1, max_size=T)
a_session = st.lists(a_query, min_size=1, max_size=Q)


@settings(max_examples=20, deadline=None)
@given(sessions=st.lists(a_session, min_size=1, max_size=4))
@pytest.mark.parametrize("arch", ARCHITECTURES)
@torch.no_grad()
def test_one_pass_equals_the_cached_steps(arch: str, sessions: list[list[list[int]]]) -> None:
    model = NETWORKS[arch]
    for session, found in zip(sessions, states(model, sessions), strict=True):
        for scores, expected in zip(found, steps(model, session), strict=True):
            torch.testing.assert_close(scores, expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_queries_that_are_not_asked_are_context_only(model: Network) -> None:
    """A window's first queries may have been predicted by the window before: no state for them, the same for others."""
    source, target = batch([QUERIES, QUERIES])
    whole = model.states(source, target)
    target[0, :2], target[1, 3] = PAD, PAD
    kept = torch.tensor([False] * (4 + 2) + [True] * (7 + 3 + 4 + 2 + 7) + [False] * 3)
    torch.testing.assert_close(model.states(source, target), whole[kept], rtol=0, atol=2e-5)


@torch.no_grad()
def test_step_keeps_hypotheses_apart_and_lets_them_be_reordered(model: Network) -> None:
    cache = model.append(torch.tensor([BOS]), model.start())
    for query in QUERIES:
        cache = model.append(torch.tensor(query), cache)
    _, past = model.step(torch.tensor([BOS]), 0, cache.memory, None)
    _, past = model.step(torch.tensor([5, 9, 20]), 1, cache.memory, [x.expand(3, *x.shape[1:]) for x in past])
    rows = torch.tensor([2, 0])
    together, _ = model.step(torch.tensor([21, 6]), 2, cache.memory, [x[rows] for x in past])
    for hypothesis, expected in (([BOS, 20, 21], together[0]), ([BOS, 5, 6], together[1])):
        alone = None
        for position, token in enumerate(hypothesis):
            scores, alone = model.step(torch.tensor([token]), position, cache.memory, alone)
        torch.testing.assert_close(scores[0], expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_later_query_moves_nothing_before_it(model: Network) -> None:
    before, cached = states(model, [QUERIES])[0], list(steps(model, QUERIES))
    for j in range(len(QUERIES)):
        changed = [*QUERIES]
        changed[j] = [29, 28, *QUERIES[j][2:]][: len(QUERIES[j])]
        after, cached_after = states(model, [changed])[0], list(steps(model, changed))
        for i in range(j):
            assert torch.equal(after[i], before[i])
            assert torch.equal(cached_after[i], cached[i])
        if j + 1 < len(QUERIES):
            assert not torch.allclose(after[j + 1], before[j + 1], atol=1e-4), "the query before must count"
            assert not torch.allclose(cached_after[j + 1], cached[j + 1], atol=1e-4)


@torch.no_grad()
def test_a_later_token_moves_nothing_before_it(model: Network) -> None:
    query = QUERIES[2]
    before = states(model, [QUERIES])[0][2]
    for u in range(len(query)):
        changed = [*QUERIES]
        changed[2] = [*query[:u], 29, *query[u + 1 :]]
        after = states(model, [changed])[0][2]
        assert torch.equal(after[: u + 1], before[: u + 1])  # place u + 1 holds token u, after <bos>
        assert not torch.allclose(after[u + 1], before[u + 1], atol=1e-4)


@torch.no_grad()
def test_a_cache_is_never_changed_in_place(model: Network) -> None:
    cache = model.append(torch.tensor([BOS]), model.start())
    copies = {name: tensor.clone() for name, tensor in (cache.session | cache.memory).items()}
    model.append(torch.tensor([5, 6]), cache)
    model.step(torch.tensor([BOS]), 0, cache.memory, None)
    assert all(name.startswith("session_") for name in cache.session)
    assert all(name.startswith("memory_") for name in cache.memory)
    assert all(torch.equal(copies[name], tensor) for name, tensor in (cache.session | cache.memory).items())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_gradient_reaches_the_first_of_fifty_queries(arch: str) -> None:
    model = make(arch, max_queries=50, max_session_tokens=200)
    first, others = 29, 7
    source = torch.full((1, 50, 2), others)
    source[0, 0] = torch.tensor([BOS, PAD])
    source[0, 1] = first
    target = torch.full((1, 50, 1), PAD)
    target[0, 49, 0] = BOS
    model.states(source, target).sin().sum().backward()
    assert model.embedding.weight.grad is not None
    reached = model.embedding.weight.grad.norm(dim=1)
    if arch == "tail-lstm":
        assert reached[first] == 0  # it sees one query
    else:
        assert reached[first] > (1e-6 if arch in ("mtn", "transformer") else 0)  # a recurrence lets it fade
    assert reached[others] > 1e-6


def test_every_parameter_learns(model: Network) -> None:
    """Those of positions that no token has excepted."""
    model.zero_grad()
    model.logits(model.states(*batch([QUERIES, QUERIES[:2]]))).log_softmax(-1)[:, 5].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0 or name.endswith("bias"), name


class Letters:
    """A tokenizer of single letters and a few longer tokens."""

    token_bytes = (b"", b"", b"", *(bytes([n]) for n in b"abcdefghijklmnopqrstuv"), b"ab", b"ba", b"abc", b" a", b" b")

    def encode(self, text: str) -> list[int]:
        return [self.token_bytes.index(bytes([letter])) for letter in text.encode()]

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.token_bytes[token] for token in tokens)


@pytest.mark.parametrize("prefix", ["", "ab", "abc", "cab "])
@torch.no_grad()
def test_decoding_obeys_the_typed_text(model: Network, prefix: str) -> None:
    """Hypotheses begin with it, and are as probable as one pass of training says."""
    engine = TorchEngine(model)
    search = Search(engine, Letters(), Decoding(beam=30, max_steps=4))  # type: ignore[arg-type]
    state = engine.start()
    for query in QUERIES:
        state = engine.append(query, state)
    found = search.hypotheses(state, prefix, 8)
    assert found is not None
    settled = search.constraint.start_tokens(prefix).tolist()[1:]
    alive = [(row, score) for row, score in zip(found.tokens.tolist(), found.scores, strict=True) if score > DEAD]
    assert len(alive) == 30
    for row, score in alive:
        written = [token for token in row if token > EOS]
        assert Letters().decode_bytes([*settled, *written]).decode().startswith(prefix)
        # One pass of training over the session and this query gives every token's probability.
        whole = [*settled, *written][:T]  # what did not end in time may be a token longer
        given = states(model, [[*QUERIES, whole]])[0][-1].log_softmax(-1)[len(settled) :]
        steps_taken = [token for token in row if token != PAD]
        expected = sum(float(given[n, token]) for n, token in enumerate(steps_taken))
        assert score == pytest.approx(expected, abs=1e-4)
