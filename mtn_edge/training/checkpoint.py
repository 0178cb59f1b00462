"""A checkpoint on disk: weights that one can decode with, compress, or go on training."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from mtn_edge.config import Config, ModelConfig, check, load_config, to_toml
from mtn_edge.errors import UserError
from mtn_edge.folders import MANIFEST, check_files, read_manifest, write_manifest
from mtn_edge.models.build import Network, build
from mtn_edge.models.fusion import Sources, make_gate
from mtn_edge.ngram.file import NAME as NGRAM
from mtn_edge.ngram.file import load as load_ngram
from mtn_edge.ngram.file import save as save_ngram
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.state import STATE_FOLDER, TrainingState, save_state
from mtn_edge.training.workplace import METRICS, TOKENIZER, write_rows

CONFIG = "config.toml"
WEIGHTS = "model.safetensors"
GATE = "gate.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A trained network with its settings and its tokenizer."""

    path: Path
    config: Config
    model: Network
    """In evaluation mode, on the CPU, float32."""
    sources: Sources | None
    """What the network is mixed with; None for nothing."""
    tokenizer: Tokenizer
    manifest: dict[str, Any]


def write_checkpoint(
    folder: Path,
    *,
    config: Config,
    tokenizer: Path,
    state: TrainingState,
    sources: Sources | None,
    training: dict[str, Any],
    lineage: dict[str, Any],
) -> None:
    """Fills an empty folder with a checkpoint; its weights are the best of `state`.

    Args:
        folder: where to write.
        config: the settings, resolved.
        tokenizer: the `tokenizer.json` that the run began with.
        state: the end of the run.
        sources: what the network is mixed with.
        training: figures for the manifest.
        lineage: what it was made from, for the manifest.
    """
    (folder / CONFIG).write_text(to_toml(config), encoding="utf-8")
    (folder / WEIGHTS).write_bytes(save(state.part("best")))
    shutil.copyfile(tokenizer, folder / TOKENIZER)
    if sources is not None:
        (folder / GATE).write_bytes(save(sources.gate.state_dict()))
        if sources.ngram is not None:
            save_ngram(sources.ngram, folder / NGRAM, folder / TOKENIZER)
    write_rows(folder / METRICS, state.progress.rows)
    (folder / STATE_FOLDER).mkdir()
    # The best weights lie in the checkpoint itself already.
    tensors = {name: value for name, value in state.without_objective().items() if not name.startswith("best.")}
    save_state(folder / STATE_FOLDER, TrainingState(run=state.run, progress=state.progress, tensors=tensors))
    content = {"model": asdict(config.model), "training": training, "lineage": lineage}
    write_manifest(folder, "checkpoint", content)


def load_checkpoint(path: Path) -> Checkpoint:
    """Opens a checkpoint.

    Raises:
        UserError: it is none, it is damaged, or its parts do not fit together; the sentence names the file.
    """
    manifest = read_manifest(path, "checkpoint")
    check_files(path, manifest)
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if name not in manifest["files"]:
            raise _misfit(path / name, "the checkpoint lacks it")
    config = check(load_config(path / CONFIG, Config()))
    lacking = [field.name for field in fields(ModelConfig) if field.name not in manifest.get("model", {})]
    if lacking:  # a default would be another network than the one that was trained
        raise _misfit(path / MANIFEST, f"its network has no `model.{lacking[0]}`: another version made it; train again")
    tokenizer = Tokenizer.load(path / TOKENIZER)
    if len(tokenizer) != config.model.vocab_size:
        raise _misfit(
            path / TOKENIZER, f"it has {len(tokenizer)} tokens and `model.vocab_size` is {config.model.vocab_size}"
        )
    model = build(config.model)
    _load_weights(model, path / WEIGHTS)
    return Checkpoint(
        path=path,
        config=config,
        model=model.eval(),
        sources=_load_sources(path, config, manifest),
        tokenizer=tokenizer,
        manifest=manifest,
    )


def _load_sources(path: Path, config: Config, manifest: dict[str, Any]) -> Sources | None:
    if config.model.fusion == "none":
        return None
    gate, ngram = make_gate(config.model), None
    for name in (GATE, NGRAM)[: 1 + gate.has_ngram]:
        if name not in manifest["files"]:
            raise _misfit(path / name, f"`model.fusion` is {config.model.fusion}, and the checkpoint lacks it")
    _load_weights(gate, path / GATE)
    if gate.has_ngram:
        ngram = load_ngram(path / NGRAM, path / TOKENIZER)
    return Sources(gate.eval(), ngram)


def _load_weights(model: nn.Module, file: Path) -> None:
    try:
        weights: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise _misfit(file, f"it cannot be read ({error})") from error
    wanted = model.state_dict()
    for name in sorted({*weights, *wanted}):
        if name not in weights:
            raise _misfit(file, f"it lacks `{name}`")
        if name not in wanted:
            raise _misfit(file, f"it holds `{name}`, which the network of {CONFIG} has not")
        if weights[name].shape != wanted[name].shape:
            raise _misfit(
                file, f"`{name}` is {list(weights[name].shape)} there and {list(wanted[name].shape)} by {CONFIG}"
            )
        if not bool(weights[name].isfinite().all()):
            raise _misfit(file, f"`{name}` holds NaN or infinite values")
    model.load_state_dict(weights)


def _misfit(file: Path, why: str) -> UserError:
    return UserError(
        f"`{file}` does not fit its checkpoint: {why}", code="misfit", hint="train it again or copy the folder again"
    )
