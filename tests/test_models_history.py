"""Three levels: a user's earlier sessions, in training as in decoding."""

import dataclasses
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtn_edge.config import ModelConfig
from mtn_edge.data.batches import Batches, TokenizedSessions
from mtn_edge.models.build import build
from mtn_edge.models.history import continuations
from mtn_edge.models.mtn import MTN
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.runtime.context import context_start
from mtn_edge.tokenizer import BOS, EOS, PAD

VOCAB, T, Q, SESSIONS = 30, 5, 4, 4
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    d_model=16,
    heads=2,
    ffn=24,
    query_layers=1,
    session_layers=1,
    decoder_layers=1,
    levels=3,
    history_layers=2,
    max_sessions=SESSIONS,
    max_tokens=T,
    max_queries=Q,
    dropout=0.0,
)
User = list[list[list[int]]]
"""Sessions of queries of tokens."""
USER: User = [
    [[5, 6, 7], [8]],
    [[9, 10]],
    [[11], [12, 13], [14, 15, 16]],
    [[17]],
    [[18, 19], [20]],
    [[21]],
    [[22], [23]],
]


def make(**changes: object) -> MTN:
    torch.manual_seed(5)
    network = build(dataclasses.replace(CONFIG, **changes)).eval()  # type: ignore[arg-type]
    assert isinstance(network, MTN)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


MODEL = make()


def batch(users: Sequence[User]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`source` with the last query of each session, `target_in`, `user`."""
    sessions = [session for sessions in users for session in sessions]
    q, t = max(map(len, sessions)), max(len(query) for session in sessions for query in session)
    source = torch.full((len(sessions), q + 1, t), PAD)
    target = torch.full((len(sessions), q, t + 1), PAD)
    source[:, 0, 0] = BOS
    for row, session in enumerate(sessions):
        for number, query in enumerate(session):
            source[row, number + 1, : len(query)] = torch.tensor(query)
            target[row, number, : len(query) + 1] = torch.tensor([BOS, *query])
    return source, target, torch.arange(len(users)).repeat_interleave(torch.tensor([len(user) for user in users]))


def states(model: MTN, users: Sequence[User]) -> list[list[torch.Tensor]]:
    """For each session of each user in turn, the scores [u + 1, v] of every query, from one pass."""
    logits = model.logits(model.states(*batch(users)))
    sessions = [session for sessions in users for session in sessions]
    parts = iter(logits.split([len(query) + 1 for session in sessions for query in session]))
    return [[next(parts) for _ in session] for session in sessions]


def scores(model: MTN, cache: SessionCache, query: list[int]) -> torch.Tensor:
    past, rows = None, []
    for position, token in enumerate([BOS, *query]):
        found, past = model.step(torch.tensor([token]), position, cache.memory, past)
        rows.append(model.logits(found[0]))
    return torch.stack(rows)


def steps(model: MTN, user: User) -> list[list[torch.Tensor]]:
    """The same of one user, by the cached forms: the start query closes a session and begins the next."""
    found, cache = [], model.start()
    for session in user:
        cache = model.append(torch.tensor([BOS]), cache)
        found.append([])
        for query in session:
            found[-1].append(scores(model, cache, query))
            cache = model.append(torch.tensor(query), cache)
    return found


a_query = st.lists(st.integers(EOS + 1, VOCAB - 1), min_size=1, max_size=T)
a_user = st.lists(st.lists(a_query, min_size=1, max_size=Q), min_size=1, max_size=2 * SESSIONS)


@settings(max_examples=15, deadline=None)
@given(users=st.lists(a_user, min_size=1, max_size=3))
@torch.no_grad()
def test_one_pass_equals_the_cached_steps(users: list[User]) -> None:
    """Also for more sessions than are seen, and with other users in the batch."""
    found = iter(states(MODEL, users))
    for user in users:
        for session in steps(MODEL, user):
            for one, other in zip(next(found), session, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


@torch.no_grad()
def test_the_first_session_is_that_of_two_levels() -> None:
    two = build(dataclasses.replace(CONFIG, levels=2)).eval()
    two.load_state_dict({name: x for name, x in MODEL.state_dict().items() if not name.startswith("history.")})
    source, target, user = batch([USER[:1]])
    expected = two.states(source, target)
    assert torch.equal(MODEL.states(source, target, user), expected)
    source, target, _ = batch([USER])
    assert torch.equal(MODEL.states(source, target, None), two.states(source, target))


@torch.no_grad()
def test_a_later_session_moves_nothing_before_it() -> None:
    before, cached = states(MODEL, [USER]), steps(MODEL, USER)
    for j, session in enumerate(USER):
        changed = [*USER]
        changed[j] = [*session[:-1], [29 for _ in session[-1]]]
        after, cached_after = states(MODEL, [changed]), steps(MODEL, changed)
        for i, queries in enumerate(before):
            same = i <= j or j < context_start(i, SESSIONS)
            for n in range(len(queries) if i != j else len(queries) - 1):
                assert torch.equal(after[i][n], queries[n]) == same
                assert torch.equal(cached_after[i][n], cached[i][n]) == same


@torch.no_grad()
def test_users_of_a_batch_do_not_meet() -> None:
    other: User = [[[21, 22]], [[23], [24]]]
    together = states(MODEL, [other, USER, other])
    for one, alone in zip(together[2:-2], states(MODEL, [USER]), strict=True):
        for x, y in zip(one, alone, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_session_cut_to_two_rows_is_one_session() -> None:
    """Its second row has the history of the first, and is what later sessions remember, as when it was opened anew."""
    source, target, _ = batch([[USER[0], USER[2], USER[2][1:], USER[1]]])
    target[2, 0] = PAD  # context only: the row before predicts it
    assert continuations(target).tolist() == [False, False, True, False]
    found = MODEL.logits(MODEL.states(source, target, torch.zeros(4, dtype=torch.int64)))
    cache = MODEL.start()
    for query in ([BOS], *USER[0], [BOS], USER[2][1]):
        cache = MODEL.append(torch.tensor(query), cache)
    before = sum(len(query) + 1 for session in (USER[0], USER[2]) for query in session)
    window = scores(MODEL, cache, USER[2][2])
    torch.testing.assert_close(found[before : before + 4], window, rtol=0, atol=2e-5)
    for query in (USER[2][2], [BOS]):
        cache = MODEL.append(torch.tensor(query), cache)
    torch.testing.assert_close(found[before + 4 :], scores(MODEL, cache, USER[1][0]), rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_row_without_targets_is_a_session_of_its_own() -> None:
    source, target, user = batch([USER[:3]])
    whole = MODEL.states(source, target, user)
    target[:2] = PAD
    assert continuations(target).tolist() == [False] * 3
    kept = sum(len(query) + 1 for query in USER[2])
    torch.testing.assert_close(MODEL.states(source, target, user), whole[-kept:], rtol=0, atol=2e-5)


def test_gradient_reaches_the_first_session() -> None:
    model = make(max_sessions=20)
    user: User = [[[29, 28]], *[[[7], [8]]] * 20]
    source, target, rows = batch([user])
    target[:-1] = PAD
    model.states(source, target, rows).sin().sum().backward()
    assert model.embedding.weight.grad is not None
    assert model.embedding.weight.grad[28:].norm(dim=1).min() > 1e-6
    for name, parameter in model.history.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_a_model_learns_what_only_an_earlier_session_tells() -> None:
    """Each user has one word, said in the first session; in the second one it must be said again, out of nothing."""
    learnt = {}
    for levels in (2, 3):
        torch.manual_seed(1)
        model = build(dataclasses.replace(CONFIG, levels=levels, history_layers=1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(60):
            words = torch.randint(EOS + 1, EOS + 9, (24,)).tolist()
            source, target, user = batch([[[[word]], [[word]]] for word in words])
            target[::2] = PAD
            target_out = torch.tensor(words)
            logits = model.logits(model.states(source, target, user))[::2]  # after <bos>
            loss = torch.nn.functional.cross_entropy(logits, target_out)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        learnt[levels] = float(loss.detach())
    assert learnt[3] < 0.3
    assert learnt[2] == pytest.approx(2.08, abs=0.3)  # ln 8: nothing to know


@torch.no_grad()
def test_batches_of_a_split_are_what_a_device_sees() -> None:
    """Users of many sessions, some as long as the context: every loss of training is one of `Session`."""
    generator = random.Random(1)
    sessions = [
        ["".join(generator.choices("abcdefgh", k=generator.randint(1, T))) for _ in range(generator.randint(1, Q))]
        for _ in range(24)
    ]
    users = sorted(generator.choices(range(4), k=24))
    encode = {letter: number for number, letter in enumerate("abcdefgh", start=EOS + 1)}

    def encode_batch(texts: Sequence[str]) -> list[list[int]]:
        return [[encode[letter] for letter in text] for text in texts]

    expected: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for number in range(4):
        user = [encode_batch(session) for session, owner in zip(sessions, users, strict=True) if owner == number]
        for session, found in zip(user, steps(MODEL, user), strict=True):
            for query, scored in zip(session, found, strict=True):
                expected.setdefault(tuple(query), []).append(scored)
    batches = Batches(
        TokenizedSessions(sessions, encode_batch, users),
        max_tokens=T,
        max_queries=Q,
        batch_queries=20,
        max_sessions=SESSIONS,
    )
    count = 0
    for batch_ in batches.stream(1, 0):
        found = MODEL.logits(MODEL.states(batch_.source, batch_.target_in, batch_.user))
        rows = [row[row != PAD].tolist() for row in batch_.target_in.flatten(0, 1)]
        rows = [row for row in rows if row]
        for row, scored in zip(rows, found.split([len(row) for row in rows]), strict=True):
            assert any(torch.allclose(scored, right, rtol=0, atol=2e-5) for right in expected[tuple(row[1:])])
            count += 1
    assert count == sum(map(len, sessions))
