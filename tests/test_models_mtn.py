"""The network: training in one pass equals decoding step by step, and nothing leaks from the future."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from mtn_edge.config import ModelConfig
from mtn_edge.models.build import build
from mtn_edge.models.layers import Packing
from mtn_edge.models.mtn import MTN
from mtn_edge.models.session_cache import SessionCache
from mtn_edge.tokenizer import BOS, PAD

VOCAB, T, Q = 30, 6, 5
VARIANTS: list[tuple[str, ...]] = list(itertools.product(("all", "last"), ("position", "full"), ("pre", "post")))
VARIANTS += [
    ("all", "position", "post", "ssru", ""),
    *(("all", "position", "pre", x, "shared") for x in ("ssru", "attention")),
    *((memory, "position", "pre", "attention", "", "sum") for memory in ("all", "last")),
]
QUERIES = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14], [15, 16]]


def states_of(model: MTN, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
    """`MTN.states` with the padding: [b, q, u, d]."""
    packing = Packing((target_in != PAD).flatten(0, 1))
    return packing.pad(model.states(source, target_in)).view(*target_in.shape, model.d_model)


@pytest.fixture(params=VARIANTS, ids="-".join)
def model(request: pytest.FixtureRequest) -> MTN:
    torch.manual_seed(3)
    return make(*request.param)


def make(
    memory: str = "all",
    projection: str = "position",
    norm: str = "pre",
    mixer: str = "attention",
    share: str = "",
    refinement: str = "encoder",
    **sizes: int,
) -> MTN:
    config = ModelConfig(
        vocab_size=VOCAB,
        d_model=16,
        heads=2,
        ffn=24,
        query_layers=2,
        session_layers=2,
        decoder_layers=2,
        max_tokens=T,
        max_queries=sizes.get("max_queries", Q),
        memory=memory,
        projection=projection,
        norm=norm,
        mixer=mixer,
        share_decoder=bool(share),
        refinement=refinement,
        dropout=0.0,
    )
    network = build(config).eval()
    # Fresh biases and norms are zeros and ones, which would hide a term that is left out.
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def padded(rows: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def tensors(queries: list[list[int]], extra_queries: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """`source` and `target_in` of one session, with queries that only pad behind it."""
    source = [[BOS], *queries[:-1], *[[]] * extra_queries]
    target = [*([BOS, *query] for query in queries), *[[]] * extra_queries]
    return padded(source, T)[None], padded(target, T + 1)[None]


def steps(model: MTN, queries: list[list[int]]) -> Iterator[torch.Tensor]:
    """Scores of every next token of every query, [n + 1, v] each, by the cached forms."""
    cache: SessionCache = model.append(torch.tensor([BOS]), model.start())
    for query in queries:
        past, rows = None, []
        for position, token in enumerate([BOS, *query]):
            scores, past = model.step(torch.tensor([token]), position, cache.memory, past)
            rows.append(model.logits(scores[0]))
        yield torch.stack(rows)
        cache = model.append(torch.tensor(query), cache)


@torch.no_grad()
def test_one_pass_equals_the_cached_steps(model: MTN) -> None:
    source, target = tensors(QUERIES, extra_queries=1)
    scores = model.logits(states_of(model, source, target))[0]  # [q, u, v]
    for number, expected in enumerate(steps(model, QUERIES)):
        torch.testing.assert_close(scores[number, : len(expected)], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_states_are_forward_without_the_padding(model: MTN) -> None:
    source, target = tensors(QUERIES, extra_queries=2)
    whole = states_of(model, source, target)
    torch.testing.assert_close(model.states(source, target), whole[target != PAD])
    assert (whole[target == PAD] == 0).all()


@torch.no_grad()
def test_sessions_of_a_batch_do_not_meet(model: MTN) -> None:
    one, two = tensors(QUERIES), tensors([[20, 21], [22]], extra_queries=2)
    together = states_of(model, torch.cat([one[0], two[0]]), torch.cat([one[1], two[1]]))
    torch.testing.assert_close(together[0], states_of(model, *one)[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(together[1], states_of(model, *two)[0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_later_query_moves_nothing_before_it(model: MTN) -> None:
    before = states_of(model, *tensors(QUERIES))[0]
    for j in range(len(QUERIES)):
        changed = [*QUERIES]
        changed[j] = [29, 28]
        after = states_of(model, *tensors(changed))[0]
        # Not to the last bit: how a processor sums depends on how many tokens there are in all.
        torch.testing.assert_close(after[:j], before[:j], atol=1e-5, rtol=0)
        if j + 1 < len(QUERIES):
            assert not torch.allclose(after[j + 1, 0], before[j + 1, 0], atol=1e-4), "the query before must count"


@torch.no_grad()
def test_a_later_query_moves_nothing_in_the_cached_step(model: MTN) -> None:
    before = list(steps(model, QUERIES))
    after = list(steps(model, [*QUERIES[:2], [29, 28], QUERIES[3]]))
    assert all(torch.equal(x, y) for x, y in zip(before[:2], after[:2], strict=True))
    assert not torch.allclose(before[3], after[3], atol=1e-4)


@torch.no_grad()
def test_a_later_token_moves_nothing_before_it(model: MTN) -> None:
    query = QUERIES[2]
    before = states_of(model, *tensors(QUERIES))[0, 2]
    for u in range(len(query)):
        changed = [*QUERIES]
        changed[2] = [*query[:u], 29, *query[u + 1 :]]
        after = states_of(model, *tensors(changed))[0, 2]
        assert torch.equal(after[: u + 1], before[: u + 1])  # place u + 1 holds token u, after <bos>
        assert not torch.allclose(after[u + 1], before[u + 1], atol=1e-4)


def test_every_earlier_query_counts() -> None:
    """Through the session encoder the first query reaches the last, with `last` memory too."""
    for memory in ("all", "last"):
        torch.manual_seed(1)
        model = make(memory=memory, max_queries=50)
        source = torch.full((1, 50, 1), 7)
        source[0, 0, 0] = BOS
        target = torch.full((1, 50, 1), PAD)
        target[0, 49, 0] = BOS
        seen: list[torch.Tensor] = []
        handle = model.query_norm.register_forward_hook(lambda _, __, output, seen=seen: seen.append(output))
        output = model.states(source, target)
        handle.remove()
        gradient = torch.autograd.grad(output.sin().sum(), seen[0])[0]
        assert gradient[:50].norm(dim=1).min() > 1e-7


@torch.no_grad()
def test_the_start_query_stands_at_session_position_zero(model: MTN) -> None:
    cache = model.append(torch.tensor([BOS]), model.start())
    assert cache.session["session_keys"].shape[1:] == (2, 1, 8)
    assert cache.memory["memory_keys"].shape[1:] == (2, 1, 8)
    found, _ = model.step(torch.tensor([BOS]), 0, cache.memory, None)
    scores = model.logits(found)
    source, target = tensors([[5]])
    torch.testing.assert_close(model.logits(states_of(model, source, target))[0, 0, 0], scores[0], rtol=0, atol=1e-5)
    model.session_positions.weight[0] += torch.linspace(-1, 1, 16)
    moved, _ = model.step(torch.tensor([BOS]), 0, model.append(torch.tensor([BOS]), model.start()).memory, None)
    assert not torch.allclose(model.logits(moved), scores, atol=1e-3)


@torch.no_grad()
def test_memory_grows_with_all_and_not_with_last() -> None:
    for memory, expected in (("all", 1 + 3 + 1), ("last", 1)):
        model = make(memory=memory)
        cache = model.append(torch.tensor([BOS]), model.start())
        for query in QUERIES[:2]:
            cache = model.append(torch.tensor(query), cache)
        assert cache.memory["memory_keys"].shape[2] == expected


def test_padding_gives_finite_gradients(model: MTN) -> None:
    source, target = tensors(QUERIES, extra_queries=2)
    model.states(source, target).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_the_output_table_is_the_embedding() -> None:
    model = make()
    names = [name for name, x in model.state_dict().items() if x.shape == (VOCAB, 16)]
    assert names == ["embedding.weight"]


def test_packing_is_the_rows_without_their_padding() -> None:
    real = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    packing = Packing(real)
    rows = torch.arange(9.0).view(3, 3, 1) * real[..., None]
    assert packing.pack(rows)[:, 0].tolist() == [0, 1, 6, 7, 8]
    assert torch.equal(packing.pad(packing.pack(rows)), rows)
    assert packing.rows.tolist() == [0, 0, 2, 2, 2]
    assert packing.columns.tolist() == [0, 1, 0, 1, 2]
    assert torch.equal(Packing.from_counts(torch.tensor([2, 0, 3])).real, real)
