"""Opens whatever can suggest: a bundle, or a checkpoint when PyTorch is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mtn_edge.errors import UserError, missing_extra
from mtn_edge.folders import called, read_manifest
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.runtime.watched_blocklist import WatchedBlocklist


def open_suggester(path: Path, *, threads: int = 1, blocklist: Path | None = None) -> Suggester:
    """A suggester over a bundle or a checkpoint.

    A checkpoint has no list of popular queries and no block list of its own. With one, `threads` holds for all of
    PyTorch in this process. The file `blocklist` may be edited while the suggester is open (see `WatchedBlocklist`).

    Raises:
        UserError: `path` is neither, is damaged, or is a checkpoint and PyTorch is not installed.
    """
    match read_manifest(path)["kind"]:
        case "bundle":
            return Suggester.open(path, threads=threads, blocklist=blocklist)
        case "checkpoint":
            return _open_checkpoint(path, threads, blocklist)
        case kind:
            raise UserError(
                f"`{path}` is a {called(kind)}, not a bundle or checkpoint",
                code="wrong-kind",
                hint="make a checkpoint of it with `mtn-edge train`, then a bundle with `mtn-edge quantize`"
                if kind == "dataset"
                else "name one of these",
            )


def _open_checkpoint(path: Path, threads: int, blocklist: Path | None) -> Suggester:
    for package in ("torch", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "running a checkpoint")
    import torch

    from mtn_edge.decoding.torch_engine import TorchEngine
    from mtn_edge.training.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(path)
    torch.set_num_threads(threads)
    return Suggester(
        engine=TorchEngine(checkpoint.model, checkpoint.sources),
        tokenizer=checkpoint.tokenizer,
        completions=Completions(()),
        blocklist=Blocklist() if blocklist is None else WatchedBlocklist(blocklist),
        decoding=Decoding(max_steps=checkpoint.config.model.max_tokens + 1),
    )
