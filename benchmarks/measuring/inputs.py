"""What the benchmark runs on: one dataset, and for each preset a checkpoint and a bundle, made on first use.

All of it lies in `benchmarks/work/` until someone removes that folder.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "benchmarks" / "work"
LOG = ROOT.parent / "shared" / "data" / "msmarco_conv_dev_questions" / "sessions.tsv"
"""Real search sessions, where they are at hand; without them a simulated log takes their place."""
TRAINING = {
    "tiny": ["--set", "model.dropout=0.3"],
    # It is timed here, not judged: a few epochs give its outputs the length of real queries.
    "small": ["--set", "train.epochs=4", "--set", "train.warmup_steps=50"],
}


@dataclass(frozen=True)
class Inputs:
    """The folders of one preset."""

    name: str
    data: Path
    checkpoint: Path
    bundle: Path
    tail: Path
    """Of the tail model."""


def find_inputs(name: str, *, data: Path | None, checkpoint: Path | None, bundle: Path | None) -> Inputs:
    """The given folders, and those that are missing made.

    Args:
        name: `tiny` or `small`.
        data: dataset.
        checkpoint: a trained model of that preset.
        bundle: the int8 bundle of that very checkpoint.
    """
    data = data or find_dataset()
    home = WORK / name
    if checkpoint is None:
        checkpoint = home / "checkpoint"
        if not checkpoint.exists():
            _mtn_edge("train", data, "-o", checkpoint, "--preset", name, *TRAINING[name])
    if bundle is None:
        bundle = home / "bundle"
        if not bundle.exists():
            _mtn_edge("quantize", checkpoint, "--int8", "--data", data, "-o", bundle)
    tail = WORK / f"tail-{data.resolve().name}"
    if not tail.exists():
        from peers.tail_network import make_tail

        from mtn_edge.data.dataset import Dataset

        print("training the tail model, a minute", flush=True)
        make_tail(Dataset.open(data), tail)
    return Inputs(name, data, checkpoint, bundle, tail)


def find_dataset() -> Path:
    """The dataset that all benchmarks share, made where it is missing."""
    place = WORK / "dataset"
    if place.exists():
        return place
    if LOG.exists():
        _mtn_edge("data", "prepare", LOG, "-o", place, "--min-users", "1", "--split", "hash")
    else:
        log = WORK / "log.tsv"
        if not log.exists():
            WORK.mkdir(parents=True, exist_ok=True)
            _mtn_edge("data", "synth", "-o", log, "--sessions", "3000")
        _mtn_edge("data", "prepare", log, "-o", place, "--min-users", "2", "--split", "hash")
    return place


def _mtn_edge(*arguments: str | Path) -> None:
    print("mtn-edge", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "mtn_edge", *map(str, arguments)], check=True)
