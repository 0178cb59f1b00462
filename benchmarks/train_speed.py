"""How fast is training? Ours against the usual way: flat pairs, a BART of the same dimensions, Hugging Face `Trainer`.

    python benchmarks/train_speed.py [--preset tiny|small|both] [--quick] [--data DATASET] [-o FILE.json]

One run, as many threads as OMP_NUM_THREADS says. Both learn the same pairs (all earlier queries -> next query) of the
training split once, with as many queries a step, the same loss and precision; a token is a target token with `<eos>`.
They take turns, a few rounds. `transformers` and `accelerate` come with the dependency group `bench`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measuring.goals import goal
from measuring.inputs import ROOT, find_dataset
from measuring.results import write
from peers.flat_trainer import Pair, flat_pairs, train_flat

from mtn_edge.config import Config, override, preset
from mtn_edge.data.dataset import Dataset
from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.training.run import train_model

FASTER = 1.5
"""Tokens a second over those of the usual way, at least."""
SETTINGS = ("train.epochs=1", "train.label_smoothing=0", "train.valid_queries=1", "train.validate_every=100000")


def main() -> None:
    """Measures, writes the JSON document, prints rates and goals."""
    options = parse_arguments()
    names = ["tiny", "small"] if options.preset == "both" else [options.preset]
    names = names[:1] if options.quick else names
    data = options.data or find_dataset()
    dataset = Dataset.open(data)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions("accelerate", "lightning", "torch", "transformers"),
        "protocol": {"threads": torch.get_num_threads(), "rounds": 1 if options.quick else 3, "settings": SETTINGS},
        "goals": [],
        "rows": [],
    }
    for name in names:
        config = override(preset(name), list(SETTINGS))
        config = replace(config, model=replace(config.model, vocab_size=len(dataset.tokenizer)))
        pairs = pairs_of(dataset, config)
        tokens = sum(len(pair["labels"]) for pair in pairs)
        ours, theirs = [], []
        for number in range(document["protocol"]["rounds"]):
            ours.append(tokens / seconds_of_ours(data, config))
            theirs.append(tokens / seconds_of_theirs(pairs, config, seed=number + 1))
            print(f"{name}: round {number + 1}, {ours[-1]:,.0f} against {theirs[-1]:,.0f} tokens/s", flush=True)
        document["rows"] += [row(name, "mtn-edge", ours, tokens), row(name, "Trainer and BART", theirs, tokens)]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        words = f"{name}: tokens a second over those of Trainer and BART (at least)"
        ends = [min(ratios), max(ratios)]
        document["goals"].append(goal(words, statistics.median(ratios), FASTER, ends, at_least=True))
    write(options.output, document)
    print_document(document)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=["tiny", "small", "both"], default="both", help="size of the model (both)")
    parser.add_argument("--data", type=Path, help="dataset whose training split is learnt")
    parser.add_argument("--quick", action="store_true", help="one round, of the first model only")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "train_speed.json")
    return parser.parse_args()


def pairs_of(dataset: Dataset, config: Config) -> list[Pair]:
    """All pairs of the training split."""
    sessions = [dataset.tokenizer.encode_batch(queries) for queries in dataset.sessions("train")]
    return flat_pairs(sessions, max_queries=config.model.max_queries, max_tokens=config.model.max_tokens)


def seconds_of_ours(data: Path, config: Config) -> float:
    """One pass of `train`, with its own book-keeping."""
    with tempfile.TemporaryDirectory() as folder:
        result = train_model(data, Path(folder) / "checkpoint", config=config, device="cpu")
    return float(result["seconds"])


def seconds_of_theirs(pairs: list[Pair], config: Config, *, seed: int) -> float:
    """One pass of the `Trainer`."""
    train = config.train
    return train_flat(pairs, config.model, batch=train.batch_queries, learning_rate=train.learning_rate / 10, seed=seed)


def row(name: str, system: str, rates: list[float], tokens: int) -> dict[str, Any]:
    """A line of the document."""
    return {
        "preset": name,
        "system": system,
        "tokens_per_second": statistics.median(rates),
        "spread": [min(rates), max(rates)],
        "tokens": tokens,
    }


def print_document(document: dict[str, Any]) -> None:
    """Rates and goals as tables."""
    table = [["training", "tokens/s", "spread"]]
    for each in document["rows"]:
        spread = f"{each['spread'][0]:,.0f} to {each['spread'][1]:,.0f}"
        table.append([f"{each['preset']}: {each['system']}", f"{each['tokens_per_second']:,.0f}", spread])
    print(f"\n{aligned(table)}\n")
    table = [["goal", "value", "spread", "bound", "ok"]]
    for each in document["goals"]:
        spread = f"{each['spread'][0]:.2f} to {each['spread'][1]:.2f}"
        table.append(
            [each["name"], f"{each['value']:.2f}", spread, f"{each['bound']:.2f}", "yes" if each["ok"] else "NO"]
        )
    print(f"{aligned(table)}\n")


if __name__ == "__main__":
    main()
