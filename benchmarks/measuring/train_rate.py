"""Tokens a second and model FLOPs utilisation (MFU) of one way to train; `gpu_train.sh` calls it for several.

Sessions are random and of the lengths of a real log. The steps are those of `train`, by the same loop; their arithmetic
is counted by PyTorch on the uncompiled network, forward and backward, and held against a large product of matrices of
the same precision on the same device (Chowdhery et al. 2022, appendix B, with the product in place of the data sheet).
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from mtn_edge.config import Config, override, preset
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.models.build import Network, build
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.training.module import TrainingModule
from mtn_edge.training.objective import CrossEntropy, token_loss
from mtn_edge.training.state import Progress
from mtn_edge.training.stream import Micro, Stream


class Clock(pl.Callback):
    """Counts the steps and notes when each has ended."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress, self._steps = progress, steps
        self.ends: list[float] = []
        self.tokens: list[int] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Micro, batch_idx: int
    ) -> None:
        """See `pl.Callback`."""
        del outputs, batch_idx
        if module.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        self.tokens.append(batch.tokens)
        self._progress.step += 1
        trainer.should_stop = len(self.ends) >= self._steps


def main() -> None:
    """Adds a row to the JSON document."""
    options = parse_arguments()
    config = override(
        preset(options.preset),
        [f"train.precision={options.precision}", f"train.compile={options.compile}".lower(), "train.epochs=1000"],
    )
    torch.manual_seed(1)
    network = build(config.model)
    batches = random_batches(config, options.batch_tokens)
    clock = train(network, batches, config, options)
    used = slice(options.warmup, None)
    seconds = np.diff(clock.ends)[used]
    tokens = np.array(clock.tokens[1:])[used]
    per_token = flops(network, [next(batches.stream(1, 0))], options.device) if tokens.size else 0.0
    peak = peak_flops(options.device, options.precision)
    rate = tokens.sum() / seconds.sum()
    row = {
        "preset": options.preset,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "precision": options.precision,
        "compile": options.compile,
        "batch_tokens": options.batch_tokens,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "tokens_per_second": float(rate),
        "step_ms": 1000 * statistics.median(seconds.tolist()),
        "flops_per_token": per_token,
        "peak_flops": peak,
        "mfu": float(rate) * per_token / peak,
    }
    add_row(options.output, row)
    print(
        f"{row['preset']}, {row['precision']}{', compiled' if row['compile'] else ''}: {rate:,.0f} target tokens/s, "
        f"{row['step_ms']:.1f} ms a step, MFU {100 * row['mfu']:.1f} % of {peak / 1e12:.1f} TFLOP/s",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=["tiny", "small", "base"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch-tokens", type=int, required=True, help="of a batch, with padding")
    parser.add_argument("--steps", type=int, required=True, help="steps in all")
    parser.add_argument("--warmup", type=int, required=True, help="of these, steps that do not count")
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser.parse_args()


def random_batches(config: Config, batch_tokens: int) -> Batches:
    """Batches of sessions of 1 to 12 queries of 2 to 11 tokens."""
    random = np.random.default_rng(1)
    sessions = [["x"] * count for count in random.integers(1, 13, 20_000)]

    def encode(texts: Any) -> list[list[int]]:
        return [random.integers(3, config.model.vocab_size, random.integers(2, 12)).tolist() for _ in texts]

    return Batches(
        TokenizedSessions(sessions, encode),
        max_tokens=config.model.max_tokens,
        max_queries=config.model.max_queries,
        batch_queries=config.train.batch_queries,
        batch_tokens=batch_tokens,
    )


def train(network: Network, batches: Batches, config: Config, options: argparse.Namespace) -> Clock:
    """Runs the steps."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\.")
    progress = Progress()
    clock = Clock(progress, options.steps)
    trainer = pl.Trainer(
        accelerator=options.device,
        devices=1,
        precision="bf16-mixed" if options.precision == "bf16" else "32-true",
        max_epochs=1,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    stream = Stream(batches, progress, seed=1, epochs=config.train.epochs, accumulate=1)
    loss = CrossEntropy(config.train)
    module = TrainingModule(network, loss, config.train, total_steps=len(stream), progress=progress)
    trainer.fit(module, train_dataloaders=stream)
    return clock


def flops(network: Network, batches: list[Batch], device: str) -> float:
    """Floating-point operations for each target token, forward and backward."""
    network.to(device).train()
    tokens = 0
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            loss, count = token_loss(network, Batch(*(x.to(device) for x in batch)))
            loss.backward()
            tokens += int(count)
    return counter.get_total_flops() / tokens


def peak_flops(device: str, precision: str, *, seconds: float = 1.0) -> float:
    """Operations a second of a large product."""
    size = 8192 if device == "cuda" else 1024
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    a @ b
    rates, began = [], time.perf_counter()
    while time.perf_counter() - began < seconds:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        rates.append(2 * size**3 / (time.perf_counter() - start))
    return statistics.median(rates)


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Writes the document anew with one more row."""
    machine = {"machine": describe_machine(), "versions": describe_versions("torch", "lightning")}
    document = json.loads(path.read_text()) if path.exists() else {**machine, "goals": [], "rows": []}
    document["rows"].append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
