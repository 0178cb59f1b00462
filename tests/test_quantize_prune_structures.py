"""What contributes nothing can be removed without a change, and what is removed is what contributes least."""

import re

import pytest

torch = pytest.importorskip("torch", reason="networks need the extra [train]")

from mtn_edge.config import ModelConfig  # noqa: E402
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions  # noqa: E402
from mtn_edge.errors import UserError  # noqa: E402
from mtn_edge.layer_sizes import memory_heads, stacks  # noqa: E402
from mtn_edge.models.build import build, count_parameters  # noqa: E402
from mtn_edge.tokenizer import BOS  # noqa: E402
from quantize.prune_choice import choose_heads, choose_layers, choose_units, count_heads, count_units  # noqa: E402
from quantize.prune_importance import by_gradient, by_magnitude  # noqa: E402
from quantize.prune_structures import (  # noqa: E402
    Tensors,
    drop_heads,
    drop_layers,
    drop_tokens,
    drop_units,
    layer_groups,
    layer_names,
)

SIZES = {"vocab_size": 60, "d_model": 24, "heads": 3, "ffn": 10, "max_tokens": 6, "max_queries": 5, "dropout": 0.0}
DEEP = {"query_layers": 2, "session_layers": 2, "decoder_layers": 3}
KINDS = [
    {},
    DEEP,
    DEEP | {"norm": "post", "memory": "last"},
    DEEP | {"levels": 3, "history_layers": 2, "max_sessions": 3},
    {"mixer": "ssru"},
    {"share_decoder": True, "decoder_layers": 3},
    DEEP | {"arch": "transformer", "max_session_tokens": 20},
]
ALL_KINDS = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())) or "plain")


def network(**kind: object) -> tuple[ModelConfig, Tensors]:
    config = ModelConfig(**{**SIZES, **kind})  # type: ignore[arg-type]
    torch.manual_seed(3)
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return config, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def batches(config: ModelConfig, count: int = 2) -> list[Batch]:
    generator = torch.Generator().manual_seed(5)
    texts = [
        [torch.randint(3, config.vocab_size, (2 + length,), generator=generator).tolist() for length in range(3)]
        for _ in range(6 * count)
    ]
    flat = iter([query for session in texts for query in session])
    sessions = TokenizedSessions(
        [["x"] * len(session) for session in texts],
        lambda asked: [next(flat) for _ in asked],
        users=[number // 3 for number in range(len(texts))],
    )
    made = Batches(
        sessions,
        max_tokens=config.max_tokens,
        max_queries=config.max_queries,
        batch_queries=18,
        max_sessions=config.max_sessions if config.levels == 3 else None,
    )
    return list(made.stream(1, 0))


def states(config: ModelConfig, weights: Tensors, batch: Batch) -> torch.Tensor:
    model = build(config).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        return model.logits(model.states(batch.source, batch.target_in, batch.user))


def decoded(config: ModelConfig, weights: Tensors) -> torch.Tensor:
    """Logits of two decoding steps after two queries."""
    model = build(config).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        cache = model.append(torch.tensor([BOS]), model.start())
        cache = model.append(torch.tensor([7, 8, 9]), cache)
        first, past = model.step(torch.tensor([BOS]), 0, cache.memory, None)
        second, _ = model.step(torch.tensor([11]), 1, cache.memory, past)
        return model.logits(torch.cat([first, second]))


def same(before: tuple[ModelConfig, Tensors], after: tuple[ModelConfig, Tensors]) -> None:
    assert count_parameters(after[0]) < count_parameters(before[0])
    for batch in batches(before[0]):
        torch.testing.assert_close(states(*after, batch), states(*before, batch), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(decoded(*after), decoded(*before), atol=2e-5, rtol=1e-4)


@ALL_KINDS
def test_heads_that_write_nothing_can_go(kind: dict[str, object]) -> None:
    config, weights = network(**kind)
    e = config.d_model // config.heads
    gone: dict[str, set[int]] = {}
    for stack, names in layer_names(config).items():
        for place, name in enumerate(names):
            if f"{name}.attention.out.weight" not in weights:
                continue
            # Where one tensor caches several layers each loses one, wherever it stands.
            gone[name] = {place % 3} if stack == "session" and config.arch == "mtn" else {0, 2} if place else {1}
            for head in gone[name]:
                weights[f"{name}.attention.out.weight"][:, head * e : (head + 1) * e] = 0
    for name in layer_names(config)["decoder"]:
        weights[f"{name}.cross_attention.out.weight"][:, e : 2 * e] = 0
    after = drop_heads(config, weights, gone, {1})
    assert memory_heads(after[0]) == 2
    same((config, weights), after)


@ALL_KINDS
def test_units_that_write_nothing_can_go(kind: dict[str, object]) -> None:
    config, weights = network(**kind)
    gone = {}
    for number, name in enumerate(name for names in layer_names(config).values() for name in names):
        gone[name] = set(range(number, 10, 2))
        weights[f"{name}.feed_forward.down.weight"][:, sorted(gone[name])] = 0
    after = drop_units(config, weights, gone)
    left = [size.ffn for sizes in stacks(after[0]).values() for size in sizes]
    assert left == [10 - len(units) for units in gone.values()]
    same((config, weights), after)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "query_layers" in kind and kind.get("norm") != "post"])
def test_layers_that_write_nothing_can_go(kind: dict[str, object]) -> None:
    config, weights = network(**kind)
    groups = layer_groups(config)
    # The second encoder layer of each group, the first of the decoder: those above move down.
    gone = {group[1] for group in groups[:-1]} | {groups[-1][0]}
    for name in gone:
        for module in ("attention.out", "cross_attention.out", "feed_forward.down"):
            for part in ("weight", "bias"):
                if f"{name}.{module}.{part}" in weights:
                    weights[f"{name}.{module}.{part}"].zero_()
    after = drop_layers(config, weights, gone)
    assert [len(group) for group in layer_groups(after[0])] == [len(group) - 1 for group in groups]
    same((config, weights), after)
    scores = by_gradient(config, weights, batches(config))
    assert {name for name, score in scores.layers.items() if score == 0} == gone
    assert choose_layers(config, scores, [len(group) - 1 for group in groups]) == gone
    assert choose_layers(config, by_magnitude(config, weights), [len(group) - 1 for group in groups]) == gone


def test_the_settings_of_a_smaller_encoder_add_up() -> None:
    config, weights = network(arch="transformer", query_layers=3, session_layers=1, decoder_layers=1)
    after, left = drop_layers(config, weights, {"encoder_layers.3", "encoder_layers.0"})
    assert (after.query_layers, after.session_layers) == (1, 1)
    build(after).load_state_dict(left)
    name = "feed_forward.up.weight"
    torch.testing.assert_close(left[f"encoder_layers.1.{name}"], weights[f"encoder_layers.2.{name}"])


def test_tokens_that_go_leave_the_others_their_scores() -> None:
    for arch in ("mtn", "seq2seq", "hred", "tail-lstm"):
        config, weights = network(arch=arch, units=12)
        kept = [*range(20), *range(30, 60)]
        after, left = drop_tokens(config, weights, kept)
        numbers = torch.zeros(60, dtype=torch.long)
        numbers[kept] = torch.arange(50)
        source = torch.tensor([[[1, 0], [31, 59]]])
        written = torch.tensor([[[1, 33], [1, 40]]])
        batch = Batch(source, written, written, torch.zeros(1, dtype=torch.long))
        renamed = Batch(numbers[source], numbers[written], written, batch.user)
        torch.testing.assert_close(states(after, left, renamed), states(config, weights, batch)[:, kept])


@ALL_KINDS
def test_a_dead_unit_and_a_dead_head_are_worth_nothing_and_go_first(kind: dict[str, object]) -> None:
    config, weights = network(**kind)
    layer = layer_names(config)["query"][-1]
    weights[f"{layer}.feed_forward.up.weight"][4] = 0
    weights[f"{layer}.feed_forward.up.bias"][4] = -5.0  # never active, whatever it would write
    e = config.d_model // config.heads
    weights[f"{layer}.attention.qkv.weight"][2 * config.d_model + e : 2 * config.d_model + 2 * e] = 0
    weights[f"{layer}.attention.qkv.bias"][2 * config.d_model + e : 2 * config.d_model + 2 * e] = 0
    found = by_gradient(config, weights, batches(config))
    assert (found.units[layer] == 0).nonzero().flatten().tolist() == [4]
    assert found.heads[f"{layer}.attention"][1] == 0
    assert choose_units(config, found, 1) == {layer: {4}}
    assert choose_heads(config, found, 1) == ({layer: {1}}, set())
    assert choose_heads(config, by_magnitude(config, weights), 1) == ({layer: {1}}, set())


def test_importance_is_what_the_loss_would_change_by() -> None:
    config, weights = network()
    (batch,) = batches(config, 1)
    found = by_gradient(config, weights, [batch])
    name, step = "query_layers.0.feed_forward.down.weight", 1e-4

    def loss(scale: float) -> float:
        changed = {key: tensor.double() for key, tensor in weights.items()}
        changed[name] = changed[name].clone()
        changed[name][:, 3] *= scale
        model = build(config).double().eval()
        model.load_state_dict(changed)
        with torch.no_grad():
            logits = model.logits(model.states(batch.source, batch.target_in, batch.user))
        targets = batch.target_out[batch.target_in != 0]
        return float(torch.nn.functional.cross_entropy(logits, targets))

    slope = (loss(1 + step) - loss(1 - step)) / (2 * step)
    assert float(found.units["query_layers.0"][3]) == pytest.approx(abs(slope), rel=1e-3)


@ALL_KINDS
def test_shares_are_met_and_nothing_is_left_without_a_head_or_a_unit(kind: dict[str, object]) -> None:
    config, weights = network(**kind)
    found = by_magnitude(config, weights)
    total, units = count_heads(config), count_units(config)
    for count in (1, total // 2):
        gone = choose_heads(config, found, count)
        after, left = drop_heads(config, weights, *gone)
        build(after).load_state_dict(left)
        assert 0 <= count - (total - count_heads(after)) < max(2, config.decoder_weights, config.session_layers)
        assert min(size.heads for sizes in stacks(after).values() for size in sizes) >= 1
    layers = sum(map(len, layer_names(config).values()))
    after, _ = drop_units(config, weights, choose_units(config, found, units - layers))
    assert {size.ffn for sizes in stacks(after).values() for size in sizes} == {1}
    sentence = f"{units - layers + 1} of {units} units were to be removed, and {units - layers} can go at most"
    with pytest.raises(UserError, match=sentence):
        choose_units(config, found, units - layers + 1)
    with pytest.raises(UserError, match=re.escape(f"{total} of {total} heads were to be removed")):
        choose_heads(config, found, total)
