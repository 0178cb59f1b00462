"""Pruning of a checkpoint: parts of the network go, what is left learns to do without them, and again.

Every share is the share that is removed. With several rounds each removes an equal part of the whole and is followed by
its recovery, so that importance is measured anew on what has recovered (Molchanov et al. 2019, section 3.2).
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mtn_edge import folders
from mtn_edge.config import Config
from mtn_edge.console import say
from mtn_edge.data.batches import IGNORE
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.layer_sizes import memory_heads, stacks
from mtn_edge.models.build import build, count_parameters
from mtn_edge.models.fusion import Sources
from mtn_edge.tokenizer import PAD
from mtn_edge.training.checkpoint import Checkpoint, load_checkpoint, write_checkpoint
from mtn_edge.training.gate import learn_sources
from mtn_edge.training.module import mean_loss
from mtn_edge.training.run import Beginning, train_model
from mtn_edge.training.state import STATE_FOLDER, Progress, TrainingState, load_state
from mtn_edge.training.workplace import TOKENIZER
from quantize.prune_sparsity import describe_zeros
from quantize.prune_steps import Examples, Network, Shares, check_shares, remove
from quantize.vocabulary import is_part_of

RECOVERY_RATE = 0.3
"""The learning rate of the recovery, beside that of the training before."""


class _Mixed(NamedTuple):
    """What the network that is left is mixed with."""

    config: Config
    sources: Sources | None
    about: dict[str, Any]
    """Figures of the fit, for the manifest."""


def prune_checkpoint(
    checkpoint_path: Path,
    output: Path,
    *,
    shares: Shares,
    dataset: Path | None,
    rounds: int,
    recover_epochs: int,
    force: bool,
    seed: int,
) -> dict[str, Any]:
    """Removes parts of a network and writes what is left as a new checkpoint.

    Args:
        checkpoint_path: folder of a checkpoint.
        output: folder to write.
        shares: what share of each kind of structure is removed, and what share of single weights becomes zero.
        dataset: folder of a dataset, for the importance of structures, the counts of tokens and the recovery.
        rounds: in how many equal parts to remove them, each followed by its recovery.
        recover_epochs: passes over the training split after each round; needs a dataset.
        force: replace a checkpoint that stands at `output`.
        seed: of the batches.

    Returns:
        `checkpoint`, `before` and `after` (parameters and sizes), `removed` (the shares), `stages` (nats of the
        validation split before, after each round and after each recovery; without a dataset there are none), and
        `zeros` (see `describe_zeros`) of a network that has lost single weights, now or before.

    Raises:
        UserError: a share is out of range or removes nothing or too much, the network has no such structure, a folder
            is missing, damaged or taken, or the dataset's tokenizer is another one.
    """
    folders.refuse_overwrite(output, force=force, inputs=(checkpoint_path, dataset))
    checkpoint = load_checkpoint(checkpoint_path)
    examples = Examples(_open(dataset, checkpoint), seed) if dataset is not None else None
    network = _network(checkpoint)
    check_shares(network.model, shares)
    whole = network
    remove(network, shares, done=1.0, examples=None)  # what cannot be removed is found out before any work
    with folders.new_folder(output, "checkpoint", force=force) as folder:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # inside: a killed run leaves one folder, not two
            stages, state = _measured("before", network, examples), None
            for number in range(1, rounds + 1):
                network = remove(network, shares, done=number / rounds, examples=examples)
                stages += _measured(f"pruned, round {number}", network, examples)
                if examples is not None and recover_epochs:
                    place = Path(scratch) / f"round-{number}"
                    network, state = _recover(network, checkpoint, examples, place, epochs=recover_epochs)
                    stages += _measured(f"recovered, round {number}", network, examples)
        mixed = _mix(network, checkpoint, examples)
        report = {
            "removed": {name: share for name, share in shares._asdict().items() if share},
            "rounds": rounds,
            "before": _size(checkpoint.config),
            "after": _size(mixed.config),
            "stages": stages,
        }
        if network.config.train.keep_zeros:
            report["zeros"] = describe_zeros((whole.model, whole.weights), (network.model, network.weights))
        learnt_from = examples.data.manifest if examples is not None and recover_epochs else None
        _write(folder, checkpoint, network, mixed, state, report, learnt_from, seed)
    return {"checkpoint": str(output), **report}


def _open(path: Path, checkpoint: Checkpoint) -> Dataset:
    data = Dataset.open(path)
    if not is_part_of(checkpoint.tokenizer, data.tokenizer):
        raise UserError(
            f"`{path}` was prepared with another tokenizer than the one of `{checkpoint.path}`",
            code="misfit",
            hint="name the dataset that the checkpoint was trained on",
        )
    return data


def _network(checkpoint: Checkpoint) -> Network:
    model = checkpoint.config.model
    return Network(checkpoint.config, dict(checkpoint.model.state_dict()), checkpoint.tokenizer, model, model)


def _measured(stage: str, network: Network, examples: Examples | None) -> list[dict[str, Any]]:
    """Nats of the validation queries; per query they can be compared when the tokens are others."""
    if examples is None:
        return []
    model = build(network.model)
    model.load_state_dict(network.weights)
    batches = examples.inputs(network).valid
    tokens = sum(int((batch.target_out != IGNORE).sum()) for batch in batches)
    queries = sum(int((batch.target_in[:, :, 0] != PAD).sum()) for batch in batches)
    loss = mean_loss(model, batches)
    per_query = loss * tokens / queries
    say(f"{stage}: {loss:.4f} nats per token, {per_query:.3f} per query on the validation split")
    found = {"stage": stage, "valid_loss": round(loss, 4), "nats_per_query": round(per_query, 4)}
    return [found | {"parameters": count_parameters(network.model)}]


def _recover(
    network: Network, checkpoint: Checkpoint, examples: Examples, place: Path, *, epochs: int
) -> tuple[Network, TrainingState]:
    """Trains what is left, as the network was trained before but more gently; sources are fitted at the very end."""
    train = network.config.train
    gently = replace(
        train,
        epochs=epochs,
        learning_rate=train.learning_rate * RECOVERY_RATE,
        time_budget=0.0,
        validate_every=min(train.validate_every, len(examples.inputs(network).train)),
        seed=examples.seed,
    )
    try:
        train_model(
            examples.data.path,
            place,
            config=Config(model=replace(network.model, fusion="none"), train=gently),
            beginning=Beginning(
                network.weights,
                network.tokenizer,
                parent=checkpoint.manifest["manifest_sha256"],
                min_users=checkpoint.manifest["lineage"].get("min_users"),
            ),
        )
    except InterruptedRunError as error:
        raise InterruptedRunError(
            "pruning was interrupted in a recovery, and nothing is kept of it",
            code="interrupted",
            hint="run the command again",
        ) from error
    state = load_state(place / STATE_FOLDER)
    assert state is not None  # every checkpoint has one
    return replace(network, weights=dict(load_checkpoint(place).model.state_dict())), state


def _mix(network: Network, checkpoint: Checkpoint, examples: Examples | None) -> _Mixed:
    """The sources of what is left: fitted anew with data; without, as they were, unless their tokens are gone."""
    config, sources = network.config, checkpoint.sources
    if sources is None:
        return _Mixed(config, None, {})
    if examples is not None:
        say("fitting the gate of the fusion on the validation split")
        model = build(network.model).eval()
        model.load_state_dict(network.weights)
        fitted, about = learn_sources(model, replace(examples.data, tokenizer=network.tokenizer), config)
        return _Mixed(config, fitted, {"fusion": about})
    if sources.ngram is not None and network.tokenizer is not checkpoint.tokenizer:
        say("the fusion is left out: its n-gram counts tokens that are gone, and counting anew needs --data")
        return _Mixed(replace(config, model=replace(config.model, fusion="none")), None, {"fusion": None})
    say("the gate of the fusion is kept as it was: fitting it anew needs --data")
    return _Mixed(config, sources, {})


def _size(config: Config) -> dict[str, Any]:
    model = config.model
    found = {stack: [size._asdict() for size in sizes] for stack, sizes in stacks(model).items()}
    cross = {"memory_heads": memory_heads(model)} if found else {}
    table = {"vocab_size": model.vocab_size, "embedding_width": model.embedding_rank or model.d_model}
    return {"parameters": count_parameters(model), **table, **cross, "layers": found}


def _write(
    folder: Path,
    checkpoint: Checkpoint,
    network: Network,
    mixed: _Mixed,
    state: TrainingState | None,
    report: dict[str, Any],
    learnt_from: dict[str, Any] | None,
    seed: int,
) -> None:
    """Fills the folder; the manifest has what the parent's training says, and what has become of it since."""
    if state is None:
        state = TrainingState(run={}, progress=Progress(ended=True), tensors={})
    state.tensors |= {f"best.{name}": tensor.contiguous() for name, tensor in network.weights.items()}
    training = {**checkpoint.manifest["training"], "parameters": report["after"]["parameters"], **mixed.about}
    if report["stages"]:
        training["valid_loss"] = report["stages"][-1]["valid_loss"]
    parent = checkpoint.manifest
    users = [parent["lineage"].get("min_users"), *([learnt_from["settings"]["min_users"]] if learnt_from else [])]
    lineage = {
        "min_users": None if None in users else min(users),
        "dataset": (learnt_from or {}).get("manifest_sha256", parent["lineage"]["dataset"]),
        "parent": parent["manifest_sha256"],
        "seed": seed,
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "lightning")},
    }
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = checkpoint.path / TOKENIZER
        if network.tokenizer is not checkpoint.tokenizer:
            tokenizer = Path(scratch) / TOKENIZER
            network.tokenizer.save(tokenizer)
        write_checkpoint(
            folder,
            config=mixed.config,
            tokenizer=tokenizer,
            state=state,
            sources=mixed.sources,
            training={**training, "pruning": report},
            lineage=lineage,
        )
