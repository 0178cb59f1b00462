"""What does a session cost? Its tokens, or the square of its queries?

    python benchmarks/session_cost.py [--preset tiny|small] [--quick] [-o FILE.json]

One run, as many threads as OMP_NUM_THREADS says. For sessions of 2 to 50 queries of like lengths: the time of a
training step over all their pairs (forward and backward, about as many queries in each batch), and the time of
appending them one by one as a device does; beside it the tokens that flat pairs would read, which do grow with the
square.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring.goals import goal
from measuring.inputs import ROOT
from measuring.results import write

from mtn_edge.config import ModelConfig, override, preset
from mtn_edge.data.batches import Batch, Batches, TokenizedSessions
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.models.build import Network, build
from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.training.objective import token_loss

LENGTHS = (2, 5, 10, 20, 50)
"""Queries of a session."""
TOKENS = (3, 9)
"""Tokens of a query: from, to before."""
BATCH = 200
"""Queries of a training batch, about."""
GROWTH = 1.5
"""Time a token in sessions of 50 queries over that in sessions of 5, at most; the square would be 10."""


def main() -> None:
    """Measures, writes the JSON document, prints times and goals."""
    options = parse_arguments()
    rounds = 3 if options.quick else 15
    model = override(preset(options.preset), [f"model.max_queries={max(LENGTHS)}"]).model
    torch.manual_seed(1)
    network = build(model)
    rows = measure(network, model, rounds)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions("torch"),
        "protocol": {"preset": options.preset, "threads": torch.get_num_threads(), "rounds": rounds, "tokens": TOKENS},
        "goals": [growth(rows, "train"), growth(rows, "append")],
        "rows": rows,
    }
    write(options.output, document)
    table = [["queries", "training, ms a session", "µs a token", "append, ms a session", "µs a token", "flat tokens"]]
    for row in rows:
        times = [f"{row[f'{kind}_ms']:.2f}" for kind in ("train", "append")]
        rates = [f"{1000 * row[f'{kind}_ms'] / row['tokens']:.0f}" for kind in ("train", "append")]
        table.append([str(row["queries"]), times[0], rates[0], times[1], rates[1], f"{row['flat_tokens']:.0f}"])
    print(f"\n{aligned(table)}\n")
    for each in document["goals"]:
        print(f"{each['name']}: {each['value']:.2f}, bound {each['bound']}, {'yes' if each['ok'] else 'NO'}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=["tiny", "small"], default="tiny", help="size of the model (tiny)")
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 15")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "session_cost.json")
    return parser.parse_args()


def measure(network: Network, model: ModelConfig, rounds: int) -> list[dict[str, Any]]:
    """A row for each session length; the lengths take turns, so that the machine's moods hit all alike."""
    random = np.random.default_rng(1)
    sessions = {length: draw(random, length, model.vocab_size) for length in LENGTHS}
    batches = {length: batch_of(found, model) for length, found in sessions.items()}
    times: dict[tuple[int, str], list[float]] = {
        (length, kind): [] for length in LENGTHS for kind in ("train", "append")
    }
    for number in range(rounds + 1):
        for length, found in sessions.items():
            train, append = train_seconds(network, batches[length]), append_seconds(network, found[0])
            if number:  # the first round warms up
                times[length, "train"].append(1000 * train / len(found))
                times[length, "append"].append(1000 * append)
    rows = []
    for length, found in sessions.items():
        counts = np.array([[len(query) for query in session] for session in found])
        rows.append(
            {
                "queries": length,
                "sessions": len(found),
                "tokens": float(counts.sum(axis=1).mean()),
                "flat_tokens": float(np.cumsum(counts, axis=1).sum(axis=1).mean()),
                **{f"{kind}_ms": statistics.median(times[length, kind]) for kind in ("train", "append")},
                **{f"{kind}_ms_all": times[length, kind] for kind in ("train", "append")},
            }
        )
    return rows


def draw(random: np.random.Generator, length: int, vocab_size: int) -> list[list[list[int]]]:
    """Sessions of `length` queries of random tokens, as many as make a batch."""
    return [
        [random.integers(3, vocab_size, random.integers(*TOKENS)).tolist() for _ in range(length)]
        for _ in range(max(1, BATCH // length))
    ]


def batch_of(sessions: list[list[list[int]]], model: ModelConfig) -> Batch:
    """All of the sessions in one batch."""
    texts = [[chr(number) for number in range(len(session))] for session in sessions]
    queries = iter([query for session in sessions for query in session])
    tokenized = TokenizedSessions(
        [[text + "x" for text in session] for session in texts], lambda found: [next(queries) for _ in found]
    )
    batches = Batches(tokenized, max_tokens=model.max_tokens, max_queries=model.max_queries, batch_queries=10 * BATCH)
    (batch,) = batches.stream(1, 0)
    return batch


def train_seconds(network: Network, batch: Batch) -> float:
    """One forward and backward pass."""
    network.train()
    network.zero_grad()
    began = time.perf_counter()
    loss, tokens = token_loss(network, batch)
    (loss / tokens).backward()
    return time.perf_counter() - began


def append_seconds(network: Network, session: list[list[int]]) -> float:
    """One session, query by query."""
    engine = TorchEngine(network.eval())
    began = time.perf_counter()
    state = engine.start()
    for query in session:
        state = engine.append(query, state)
    return time.perf_counter() - began


def growth(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The goal of one kind of work: how much dearer a token is in long sessions."""
    (short,) = (row for row in rows if row["queries"] == 5)
    long = rows[-1]
    scale = short["tokens"] / long["tokens"]
    ratios = [b / a * scale for a, b in zip(short[f"{kind}_ms_all"], long[f"{kind}_ms_all"], strict=True)]
    words = {"train": "training", "append": "appending"}[kind]
    name = f"{words}: time a token at {long['queries']} queries over that at 5"
    return goal(name, long[f"{kind}_ms"] / short[f"{kind}_ms"] * scale, GROWTH, [min(ratios), max(ratios)])


if __name__ == "__main__":
    main()
