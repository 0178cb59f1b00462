"""The propositions behind the MTN (arXiv 1908.10408), as docs/paper.md understands them, by numbers.

One form runs through all of them, the masked layer: row t of the output is a function of row t of the input and of
sum over s of w_(t,s) V x_s, where w_(t,s) = 0 unless the mask lets t see s. `mixed` below is that sum, with attention's
weights, written out without any of the product's code.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import ModelConfig
from mtn_edge.layer_sizes import LayerSize
from mtn_edge.models.build import build
from mtn_edge.models.layers import SSRU, DecoderLayer, EncoderLayer, SelfAttention
from mtn_edge.models.mtn import MTN
from mtn_edge.tokenizer import BOS, PAD

D, HEADS = 16, 2


@pytest.fixture(autouse=True)
def exact() -> None:
    torch.manual_seed(4)


def loosened(module: nn.Module) -> nn.Module:
    """In double precision, with biases and norms that are not zeros and ones."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module.double().eval().requires_grad_(False)


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def mixed(x: Tensor, mask: Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear, out: nn.Linear) -> Tensor:
    """Row t: sum of w_(t,s) V x_s over the rows s that `mask` lets it see; zero where it sees none.

    `mask` is [n, n], or [h, n, n] with a mask for each head; what is seen need not count alike.
    """
    total, masks = torch.zeros_like(x), mask.expand(HEADS, *mask.shape[-2:])
    e = D // HEADS
    for head in range(HEADS):
        part = slice(head * e, (head + 1) * e)
        q, k, v = (linear(x)[:, part] for linear in (query, key, value))
        weights = torch.exp(q @ k.T / math.sqrt(e)) * masks[head]
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-300)
        total += weights @ v @ out.weight[:, part].T
    return total + out.bias * masks[0].any(dim=1, keepdim=True)


def parts(linear: nn.Linear, count: int) -> list[nn.Linear]:
    """One linear map as several of its outputs' parts."""
    found = []
    for weight, bias in zip(linear.weight.chunk(count), linear.bias.chunk(count), strict=True):
        part = nn.Linear(weight.shape[1], weight.shape[0]).double()
        part.weight, part.bias = nn.Parameter(weight), nn.Parameter(bias)
        found.append(part.requires_grad_(False))
    return found


def self_mixed(attention: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    assert isinstance(attention, SelfAttention)
    return mixed(x, mask, *parts(attention.qkv, 3), attention.out)


def masked_encoder_layer(layer: EncoderLayer, x: Tensor, mask: Tensor) -> Tensor:
    x = x + self_mixed(layer.attention, layer.attention_norm(x), mask)
    return x + layer.feed_forward(layer.feed_forward_norm(x))


def masked_decoder_layer(layer: DecoderLayer, rows: Tensor, m: int, seen: Tensor, causal: Tensor) -> Tensor:
    """A decoder layer over `rows` = memory [m, d] and targets [u, d] in one matrix: two masked layers.

    The first mask lets targets see targets (`causal` [u, u]), the second lets them see the memory (`seen` [u, m] or
    [h, u, m]); the memory's own rows see nothing and stay as they are.
    """
    n = len(rows)
    to_self, to_memory = torch.zeros(n, n), torch.zeros(HEADS, n, n).double()
    to_self[m:, m:], to_memory[:, m:, :m] = causal, seen
    target = (torch.arange(n) >= m)[:, None]
    rows = rows + self_mixed(layer.attention, layer.attention_norm(rows), to_self)
    cross = layer.cross_attention
    inner = torch.where(target, layer.cross_attention_norm(rows), rows)  # the memory has been normalised before
    rows = rows + mixed(inner, to_memory, cross.query, *parts(cross.kv, 2), cross.out)
    return torch.where(target, rows + layer.feed_forward(layer.feed_forward_norm(rows)), rows)


def layer_of(kind: type[nn.Module]) -> nn.Module:
    more = {"memory_heads": HEADS} if kind is DecoderLayer else {}
    return loosened(kind(d_model=D, size=LayerSize(HEADS, 24), head_width=D // HEADS, norm="pre", dropout=0.0, **more))


def test_proposition_1_a_linear_recurrence_is_one_masked_layer() -> None:
    """h_t = A h_(t-1) + B x_t is the sum over s <= t of A^(t-s) B x_s."""
    n = 7
    a, b, x = torch.randn(D, D).double() / D, torch.randn(D, D).double(), torch.randn(n, D).double()
    h, states = torch.zeros(D).double(), []
    for row in x:
        h = a @ h + b @ row
        states.append(h)
    weights = torch.zeros(n, n, D, D).double()  # W_(t,s), zero where s > t
    for t in range(n):
        for s in range(t + 1):
            weights[t, s] = torch.linalg.matrix_power(a, t - s) @ b
    assert_same(torch.einsum("tsij,sj->ti", weights, x), torch.stack(states))


def test_proposition_1_a_gated_recurrence_is_one_masked_layer() -> None:
    """The SSRU's cell is a masked layer whose weights come from the inputs, at least 0 and at most 1 in sum."""
    n = 7
    unit = loosened(SSRU(d_model=D))
    assert isinstance(unit, SSRU)
    x = torch.randn(n, D).double()
    forget = torch.sigmoid(unit.forget(x))  # [n, d]
    weights = torch.zeros(n, n, D).double()
    for t in range(n):
        for s in range(t + 1):
            weights[t, s] = forget[s + 1 : t + 1].prod(dim=0) * (1 - forget[s])
    assert (weights.sum(dim=1) < 1).all()
    outputs, _ = unit(x[None], past=None)
    assert_same(F.relu(torch.einsum("tsd,sd->td", weights, unit.candidate(x))), outputs[0])


def test_proposition_1_any_recurrence_is_one_masked_layer_run_again_and_again() -> None:
    """With the mask that lets t see t - 1 alone, t runs of one layer give the state at t, and further runs keep it."""
    n = 7
    cell = loosened(nn.GRUCell(D, D))
    x = torch.randn(n, D).double()
    h, states = torch.zeros(1, D).double(), []
    for row in x:
        h = cell(row[None], h)
        states.append(h[0])
    before = torch.diag(torch.ones(n - 1), -1).double()  # the mask, with weights of 1
    rows = torch.zeros(n, D).double()
    for run in range(1, n + 3):
        rows = cell(x, before @ rows)
        assert_same(rows[:run], torch.stack(states)[:run])


def test_proposition_2_an_encoder_layer_is_a_masked_layer_that_hides_nothing() -> None:
    layer = layer_of(EncoderLayer)
    assert isinstance(layer, EncoderLayer)
    x = torch.randn(7, D).double()
    assert_same(masked_encoder_layer(layer, x, torch.ones(7, 7)), layer(x[None], mask=None)[0][0])
    causal = torch.ones(7, 7).tril()
    assert_same(masked_encoder_layer(layer, x, causal), layer(x[None], mask=causal.bool())[0][0])


def test_proposition_3_a_decoder_layer_is_two_masked_layers() -> None:
    layer = layer_of(DecoderLayer)
    assert isinstance(layer, DecoderLayer)
    m, u = 5, 4
    memory, x = torch.randn(m, D).double(), torch.randn(u, D).double()
    causal = torch.ones(u, u).tril()
    expected, _ = layer.mix(x[None], mask=causal.bool())
    expected = layer.attend_to_memory(expected, layer.cross_attention.keys_values(memory[None]), bias=None)
    found = masked_decoder_layer(layer, torch.cat([memory, x]), m, torch.ones(u, m), causal)
    assert_same(found[m:], expected[0])
    assert torch.equal(found[:m], memory)


@pytest.mark.parametrize("refinement", ["sum", "encoder"])
@pytest.mark.parametrize("memory", ["all", "last"])
def test_proposition_4_two_levels_are_masked_layers_over_the_whole_session(memory: str, refinement: str) -> None:
    """All tokens of a session in one matrix, and four masks: within a query, over queries, memory, within a target."""
    config = ModelConfig(vocab_size=30, d_model=D, heads=HEADS, ffn=24, max_tokens=5, max_queries=4, dropout=0.0)
    torch.manual_seed(4)
    model = build(ModelConfig(**{**config.__dict__, "memory": memory, "refinement": refinement}))
    loosened(model)
    assert isinstance(model, MTN)
    read, written = [[BOS], [5, 6, 7], [8], [9, 10]], [[BOS, 5, 6, 7], [BOS, 8], [BOS, 9, 10], [BOS, 11, 12, 13]]
    source = torch.tensor([query + [PAD] * (3 - len(query)) for query in read])[None]
    target = torch.tensor([query + [PAD] * (4 - len(query)) for query in written])[None]

    def flat(queries: list[list[int]], positions: nn.Embedding) -> tuple[Tensor, Tensor, Tensor]:
        """Embedded tokens of all queries; the query and the place of each."""
        number = torch.tensor([n for n, query in enumerate(queries) for _ in query])
        place = torch.tensor([place for query in queries for place in range(len(query))])
        tokens = torch.tensor([token for query in queries for token in query])
        return model.embedding(tokens) * math.sqrt(D) + positions(place), number, place

    def encode(x: Tensor) -> Tensor:
        for layer in model.query_layers:
            x = masked_encoder_layer(layer, x, (holds[:, None] == holds).double())
        return model.query_norm(x)

    embedded, holds, place = flat(read, model.query_positions)
    y = encode(embedded)
    projection = (torch.arange(4)[:, None] == holds) * model.projection.weight[place]  # [queries, tokens]
    s = projection @ y + model.session_positions.weight[:4]
    for layer in model.session_layers:
        s = masked_encoder_layer(layer, s, torch.ones(4, 4).tril().double())
    s = model.session_norm(s)
    z = y + s[holds] if refinement == "sum" else encode(y + s[holds])

    x, asks, place = flat(written, model.decoder_positions)
    x = x + s[asks]
    age = asks[:, None] - holds
    seen = (age == 0).double()
    if model.recency is not None:  # a query counts by its age, for each head in another way
        seen = (age >= 0) * torch.exp(model.recency(age.clamp(min=0))).permute(2, 0, 1)
    within = asks[:, None] == asks
    assert model.decoder_convolution is not None
    embedded = model.embedding(torch.tensor([token for query in written for token in query])) * math.sqrt(D)
    for back, weight in enumerate(model.decoder_convolution.weight.split(D, dim=1), start=1):
        x = x + (within & (place[:, None] - place == back)).double() @ embedded @ weight.T
    causal = within & (place[:, None] >= place)
    rows = torch.cat([z, x])
    for layer in model.decoder_layers:
        rows = masked_decoder_layer(layer, rows, len(z), seen, causal.double())
    assert_same(model.decoder_norm(rows[len(z) :]), model.states(source, target))
