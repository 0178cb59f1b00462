"""The corpora of the quality table: made once, by the product's own commands.

A corpus also says how networks are trained on it. The settings were chosen on its validation split, the learning rate
for each architecture apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
"""Where the real corpora lie; they are not part of the project."""


NETWORKS = ("mtn", "transformer", "seq2seq", "hred", "tail-lstm")
BASELINES = ("mpc", "mpc+terms", "adj", "mcg", "ngram", "ngram+copy")
FUSIONS = ("ngram", "copy", "all")
"""What `model.fusion` mixes in."""
LISTS = "lists"
"""And the product as it is shipped: int8, with its lists mixed in, tuned on the validation split."""
WORN = tuple(f"{arch}+{what}" for arch in ("mtn", "transformer") for what in (*FUSIONS, LISTS))
"""Trained networks that are asked again with something mixed in."""
SMALL = (
    *("train.epochs=12", "model.dropout=0.1", "train.batch_queries=64", "train.average=0.99"),
    *("train.stop_on=mrr", "train.mrr_queries=200", "train.validate_every=426"),
)
"""For a few thousand sessions."""
VARIANTS = {
    "mtn-1-layer": ("model.decoder_layers=1",),
    "mtn-shared": ("model.share_decoder=true",),
    "mtn-ssru": ("model.mixer=ssru",),
    "mtn-ssru-1-layer": ("model.mixer=ssru", "model.decoder_layers=1"),
    "mtn-last": ("model.memory=last",),
    "mtn-full": ("model.projection=full",),
}
"""Choices that make a key press cheaper, and those of the paper's that are not the default."""


@dataclass(frozen=True)
class Corpus:
    """One corpus, and how its networks are trained."""

    name: str
    title: str
    about: str
    logs: tuple[str, ...] = ()
    """Files under `SHARED`; none for the simulator."""
    simulated: int = 0
    """Sessions that the simulator draws."""
    vocab_size: int = 4096
    """Tokens at most."""
    settings: tuple[str, ...] = ()
    """`--set` of every network."""
    own_settings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """`--set` of one architecture, after those."""
    asked: int = 2000
    """Queries asked about at most in each task."""
    networks: tuple[str, ...] = NETWORKS
    """Networks of equal size."""
    baselines: tuple[str, ...] = BASELINES
    """Lists and n-grams."""
    worn: tuple[str, ...] = WORN
    """Networks of these with something mixed in."""
    variants: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """MTNs with other choices and sizes: name to `--set`."""

    @property
    def available(self) -> bool:
        """Whether its logs are at hand."""
        return all((SHARED / log).is_file() for log in self.logs)

    def dataset(self, work: Path) -> Path:
        """Its dataset, made in `work` when it is not there."""
        folder = work / self.name
        dataset, recipe = folder / "dataset", folder / "recipe.json"
        made_from = json.dumps({"logs": self.logs, "simulated": self.simulated, "vocab_size": self.vocab_size})
        if recipe.is_file() and recipe.read_text(encoding="utf-8") != made_from:
            sys.exit(f"{dataset} was made from other logs or with other sizes: remove {folder} and run again")
        if not (dataset / "manifest.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            logs, form = [str(SHARED / log) for log in self.logs], "sessions"
            if self.simulated:
                logs, form = [str(folder / "log.tsv")], "aol"
                run_mtn_edge(
                    "data", "synth", "-o", logs[0], "--sessions", str(self.simulated), "--seed", "5", "--force"
                )
            recipe.write_text(made_from, encoding="utf-8")
            size = ["--vocab-size", str(self.vocab_size)]
            run_mtn_edge(
                *("data", "prepare", *logs, "-o", str(dataset), "--format", form, "--min-users", "1", *size, "--force")
            )
        return dataset

    def oracle(self, work: Path) -> Path | None:
        """The file of the simulator's posteriors; None for a real corpus."""
        return work / self.name / "log.oracle.jsonl" if self.simulated else None

    def settings_of(self, arch: str) -> list[str]:
        """What a network of one architecture is trained with."""
        return [*self.settings, *self.own_settings.get(arch, ())]


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="simulator",
            title="Simulator",
            about="simulated sessions, whose highest possible figures are known",
            simulated=150_000,
            settings=(
                *("train.epochs=1", "train.label_smoothing=0", "model.dropout=0", "train.average=0.99"),
                *("train.validate_every=1000", "train.patience=100"),
            ),
            own_settings=dict.fromkeys(("hred", "tail-lstm"), ("train.learning_rate=6e-3",)),
        ),
        Corpus(
            name="msmarco",
            title="MS MARCO conversational",
            about="3,053 sessions of web queries",
            logs=("msmarco_conv_dev_questions/sessions.tsv",),
            settings=SMALL,
            variants=VARIANTS,
        ),
        Corpus(
            name="msmarco-2048",
            title="MS MARCO conversational, 2,048 tokens",
            about="the same sessions with half the vocabulary",
            logs=("msmarco_conv_dev_questions/sessions.tsv",),
            vocab_size=2048,
            settings=SMALL,
            networks=("mtn",),
            baselines=(),
            worn=(),
        ),
        Corpus(
            name="sgd",
            title="SGD user turns",
            about="5,019 sessions of what people type to an assistant; the dev and test files, split anew by session",
            logs=tuple(f"sgd_user_turns/{part}.tsv" for part in ("dev", "test")),
            settings=(
                *("train.epochs=3", "train.label_smoothing=0", "model.dropout=0.1", "train.average=0.99"),
                "train.validate_every=280",
            ),
            asked=600,
        ),
    )
}


def quick(corpus: Corpus) -> Corpus:
    """The corpus for a look in a few minutes: hardly trained, hardly asked."""
    small = ("train.epochs=1", "train.time_budget=30")
    return replace(
        corpus,
        name=f"{corpus.name}-quick",
        simulated=min(corpus.simulated, 10_000),
        settings=(*corpus.settings, *small),
        own_settings={},
        worn=WORN[:4],
        variants=dict(list(corpus.variants.items())[:1]),
        asked=100,
    )


def run_mtn_edge(*arguments: str) -> None:
    """Runs a command of the product."""
    subprocess.run([sys.executable, "-m", "mtn_edge", *arguments], check=True, stdout=subprocess.DEVNULL)
