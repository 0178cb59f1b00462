"""What a step of training computes, and that steps of it learn."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from mtn_edge.config import Config, ModelConfig, TrainConfig, override, preset
from mtn_edge.data.batches import IGNORE, Batch
from mtn_edge.models.build import build
from mtn_edge.models.layers import Packing
from mtn_edge.models.mtn import MTN
from mtn_edge.tokenizer import BOS, EOS, PAD
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.module import TrainingModule, learning_rate, mean_loss
from mtn_edge.training.objective import CrossEntropy, token_loss
from mtn_edge.training.run import train_model
from mtn_edge.training.state import Progress

BATCH = Batch(
    torch.tensor([[[BOS, PAD], [5, 6]], [[BOS, PAD], [PAD, PAD]]]),
    torch.tensor([[[BOS, 5, 6], [BOS, 7, PAD]], [[BOS, 8, 9], [PAD, PAD, PAD]]]),
    torch.tensor([[[5, 6, EOS], [7, EOS, IGNORE]], [[8, 9, IGNORE], [IGNORE, IGNORE, IGNORE]]]),
    torch.arange(2),
)


def states_of(model: MTN, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
    """`MTN.states` with the padding: [b, q, u, d]."""
    packing = Packing((target_in != PAD).flatten(0, 1))
    return packing.pad(model.states(source, target_in)).view(*target_in.shape, model.d_model)


def small(dropout: float = 0.0) -> MTN:
    torch.manual_seed(0)
    return build(ModelConfig(vocab_size=12, d_model=8, heads=2, ffn=8, max_tokens=2, max_queries=2, dropout=dropout))


def test_the_loss_counts_targets_only() -> None:
    model = small()
    states = states_of(model, BATCH.source, BATCH.target_in)
    by_hand = [
        -F.log_softmax(model.logits(states[b, q, u]), dim=-1)[BATCH.target_out[b, q, u]].item()
        for b, q, u in itertools.product(range(2), range(2), range(3))
        if BATCH.target_out[b, q, u] != IGNORE
    ]
    loss, tokens = token_loss(model, BATCH)
    assert int(tokens) == len(by_hand) == 7
    assert loss.item() == pytest.approx(sum(by_hand), rel=1e-5)
    assert mean_loss(model, [BATCH, BATCH]) == pytest.approx(sum(by_hand) / 7, rel=1e-5)


def test_label_smoothing_spreads_its_mass_evenly() -> None:
    model = small()
    plain, smooth = (token_loss(model, BATCH, label_smoothing=rate)[0].item() for rate in (0.0, 0.3))
    scores = model.logits(model.states(BATCH.source, BATCH.target_in))
    counted = BATCH.target_out[BATCH.target_in != PAD] != IGNORE
    even = -F.log_softmax(scores[counted], dim=-1).mean(dim=-1).sum().item()
    assert smooth == pytest.approx(0.7 * plain + 0.3 * even, rel=1e-5)


def test_validation_is_without_dropout_and_leaves_the_generator_alone() -> None:
    model = small(dropout=0.5).train()
    before = torch.get_rng_state()
    assert mean_loss(model, [BATCH]) == mean_loss(model, [BATCH])
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_only_matrices_decay() -> None:
    train = TrainConfig(weight_decay=0.5)
    module = TrainingModule(small(), CrossEntropy(train), train, total_steps=10, progress=Progress())
    optimizer = module.configure_optimizers()
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in module.model.named_parameters():
        assert decay[id(parameter)] == (0.5 if parameter.ndim >= 2 else 0.0), name
    assert decay[id(module.model.embedding.weight)] == 0.5
    assert decay[id(module.model.query_norm.bias)] == 0.0


def test_the_rate_rises_then_falls_to_a_tenth() -> None:
    train = TrainConfig(learning_rate=1.0, warmup_steps=10)
    rates = [learning_rate(step, train, 110) for step in range(110)]
    assert rates[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert rates[60] == pytest.approx(0.55)
    assert rates[109] == pytest.approx(0.1, abs=1e-3)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert learning_rate(4, train, 10) == 1.0  # a short run warms up in half of its steps


SMALL = [
    *("model.d_model=32", "model.heads=2", "model.ffn=64", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "model.dropout=0.0"),
]


def write_dataset(folder: Path, sessions: list[list[str]]) -> Path:
    """A dataset whose three splits are all `sessions`: what is learnt by heart can be measured on `valid`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mtn_edge.folders import write_manifest
    from mtn_edge.tokenizer import Tokenizer

    for split in ("train", "valid", "test"):
        (folder / split).mkdir(parents=True)
        pq.write_table(pa.table({"queries": sessions}), folder / split / "sessions-00000.parquet")
    Tokenizer.train([query for session in sessions for query in session], 320).save(folder / "tokenizer.json")
    write_manifest(folder, "dataset", {"lineage": {}, "settings": {"min_users": 1}})
    return folder


def test_twenty_sessions_are_learnt_by_heart(tmp_path: Path) -> None:
    """Each session says the same words in another order: only the session tells which query comes next."""
    words = ["red shoes", "blue hats", "old maps", "new york", "apple pie"]
    sessions = [list(order) for order in list(itertools.permutations(words, 4))[::6]]
    assert len(sessions) == 20
    dataset = write_dataset(tmp_path / "dataset", sessions)
    config = override(
        preset("tiny"),
        [
            *SMALL,
            *("train.epochs=150", "train.batch_queries=40", "train.learning_rate=5e-3", "train.warmup_steps=20"),
            *("train.validate_every=100", "train.weight_decay=0", "train.label_smoothing=0"),
        ],
    )
    result = train_model(dataset, tmp_path / "checkpoint", config=config, device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "checkpoint" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert set(rows[0]) == {"step", "epoch", "train_loss", "valid_loss", "lr", "queries_per_second", "seconds"}
    assert rows[-1]["valid_loss"] < rows[0]["valid_loss"]
    # The first two queries of a session cannot be known: log 5 and log 4 nats for some 16 tokens of a session.
    model_loss = result["valid_loss"]
    tokens = sum(
        len(ids) + 1
        for ids in load_checkpoint(tmp_path / "checkpoint").tokenizer.encode_batch([q for s in sessions for q in s])
    )
    floor = 20 * (math.log(5) + math.log(4)) / tokens
    assert model_loss < floor + 0.12, (model_loss, floor)


def test_the_best_weights_are_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    noise = [
        [" ".join(str(int(x)) for x in torch.randint(0, 99, (3,), generator=generator)) for _ in range(3)]
        for _ in range(60)
    ]
    dataset = write_dataset(tmp_path / "dataset", noise)
    # The rate is far too high later on, so the loss rises again.
    settings = ["train.epochs=50", "train.batch_queries=32", "train.learning_rate=0.3", "train.validate_every=4"]
    config = override(preset("tiny"), [*SMALL, *settings, "train.warmup_steps=100", "train.patience=3"])
    result = train_model(dataset, tmp_path / "checkpoint", config=config, device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "checkpoint" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["valid_loss"] for row in rows]
    best = losses.index(min(losses))
    assert result["stopped_early"] is True
    assert len(losses) == best + 1 + 3
    assert result["best_step"] == rows[best]["step"]
    checkpoint = load_checkpoint(tmp_path / "checkpoint")
    assert valid_loss(checkpoint.model, dataset, checkpoint.config) == pytest.approx(min(losses), rel=1e-5)


def valid_loss(model: MTN, dataset: Path, config: Config) -> float:
    from mtn_edge.data.batches import Batches, TokenizedSessions
    from mtn_edge.data.dataset import Dataset

    data = Dataset.open(dataset)
    batches = Batches(
        TokenizedSessions(data.sessions("valid"), data.tokenizer.encode_batch),
        max_tokens=config.model.max_tokens,
        max_queries=config.model.max_queries,
        batch_queries=64,
    )
    return mean_loss(model, batches.stream(0, 0))
