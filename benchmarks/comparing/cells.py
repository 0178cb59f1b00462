"""A cell: one system on one corpus, trained with one seed where it is trained, with its answers to all questions.

What a cell found lies in two files, written when it is whole: `NAME.json` (size, training) and `NAME.npz` (the rank of
every question and the like). A cell that was killed goes on from its saved training state.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from comparing.answers import load_answers, save_answers
from comparing.corpora import LISTS, WORN, Corpus, run_mtn_edge
from export.graphs import build_graphs
from mtn_edge.config import Config, override, preset
from mtn_edge.data.dataset import Dataset
from mtn_edge.evaluation.protocol import TASKS, Answers, Questions, Task, ask, draw_questions
from mtn_edge.evaluation.run import make_baselines, open_ceiling, open_models
from mtn_edge.evaluation.systems import CEILING, Model, System
from mtn_edge.models.build import count_parameters, match_parameters
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import OnnxEngine
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.training.checkpoint import Checkpoint, load_checkpoint
from mtn_edge.training.gate import learn_sources
from mtn_edge.training.run import train_model
from quantize.plan import Precision, uniform_plan

QUESTIONS_SEED = 1
"""All systems are asked the same."""
ANSWERS = 2
"""Raised when cells hold something else than before."""


@dataclass(frozen=True)
class Cell:
    """One cell of the table."""

    corpus: str
    system: str
    seed: int | None
    """None where nothing is drawn."""

    @property
    def name(self) -> str:
        """How its files are called."""
        return self.system if self.seed is None else f"{self.system}-{self.seed}"

    def is_done(self, work: Path, corpus: Corpus) -> bool:
        """Whether both files are there, and were made from what would be taken now."""
        files = [self.folder(work) / f"{self.name}.{kind}" for kind in ("json", "npz")]
        if not all(file.is_file() for file in files):
            return False
        return bool(json.loads(files[0].read_text(encoding="utf-8"))["made_from"] == self.made_from(work, corpus))

    def made_from(self, work: Path, corpus: Corpus) -> dict[str, Any]:
        """What its answers hang on: dataset, questions, and the settings of its network."""
        data = Dataset.open(corpus.dataset(work))
        network = self.network.system
        config = None
        if self.seed is not None:
            config = override(config_of(corpus, network, len(data.tokenizer)), [f"train.seed={self.seed}"])
        return {
            "answers": ANSWERS,
            "dataset": data.manifest["manifest_sha256"],
            "asked": corpus.asked,
            "config": None if config is None else json.loads(json.dumps(asdict(config))),
        }

    def folder(self, work: Path) -> Path:
        """Where they lie."""
        return work / self.corpus / "cells"

    @property
    def network(self) -> Cell:
        """The cell whose network it is; of one with something mixed in (`mtn+copy`) that without."""
        return replace(self, system=self.system.partition("+")[0]) if self.is_worn else self

    @property
    def is_worn(self) -> bool:
        """Whether it is a trained network with something mixed in."""
        return self.system in WORN

    def checkpoint(self, work: Path) -> Path:
        """The network that was trained for it."""
        return work / self.corpus / "checkpoints" / self.network.name


def cells_of(corpus: Corpus, seeds: int) -> list[Cell]:
    """All cells of a corpus, the first seed of every network before the second; of variants the first seed alone.

    Networks with something mixed in stand last: they are trained for other cells.
    """
    names = [*corpus.baselines, *([CEILING] if corpus.simulated else [])]
    cells = [Cell(corpus.name, name, None) for name in names]
    cells += [Cell(corpus.name, name, 1) for name in (*corpus.networks, *corpus.variants)]
    cells += [Cell(corpus.name, name, seed) for seed in range(2, seeds + 1) for name in corpus.networks]
    return cells + [Cell(corpus.name, name, seed) for seed in range(1, seeds + 1) for name in corpus.worn]


def config_of(corpus: Corpus, system: str, vocab_size: int) -> Config:
    """The settings of a network: as many parameters as the MTN of the tiny preset has, but for variants of that."""
    if system in corpus.variants:
        config = override(preset("tiny"), [*corpus.settings_of("mtn"), *corpus.variants[system]])
        return Config(model=replace(config.model, vocab_size=vocab_size), train=config.train)
    config = override(preset("tiny", system), corpus.settings_of(system))
    target = count_parameters(replace(preset("tiny").model, vocab_size=vocab_size))
    return Config(model=match_parameters(replace(config.model, vocab_size=vocab_size), target), train=config.train)


def questions_of(corpus: Corpus, data: Dataset) -> dict[Task, Questions]:
    """What every system is asked on a corpus."""
    sessions, popular = data.sessions("test"), {query for query, _ in data.popularity()}
    return {
        task: draw_questions(sessions, task, popular=popular, max_queries=corpus.asked, seed=QUESTIONS_SEED)
        for task in TASKS
    }


def run_cell(cell: Cell, corpus: Corpus, work: Path) -> None:
    """Makes the system, asks it everything, writes both files."""
    data = Dataset.open(corpus.dataset(work))
    began = time.monotonic()
    if cell.is_worn:
        system, about = _mix(cell, data, work)
    elif cell.seed is not None:
        system, about = _train(cell, corpus, data, work)
    else:
        system, about = _make(cell, corpus, data, work)
    made = time.monotonic()
    questions = questions_of(corpus, data)
    answers = {task: ask(system, asked, progress=lambda _: None) for task, asked in questions.items()}
    about |= {
        "made_from": cell.made_from(work, corpus),
        "making_s": round(made - began, 1),
        "asking_s": round(time.monotonic() - made, 1),
    }
    save_answers(cell.folder(work), cell.name, answers, about)


def load_cell(cell: Cell, work: Path) -> tuple[dict[Task, Answers], dict[str, Any]]:
    """What a cell found: its answers to each task, and the facts about it."""
    return load_answers(cell.folder(work), cell.name)


def _train(cell: Cell, corpus: Corpus, data: Dataset, work: Path) -> tuple[System, dict[str, Any]]:
    config = config_of(corpus, cell.system, len(data.tokenizer))
    checkpoint = cell.checkpoint(work)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    config = override(config, [f"train.seed={cell.seed}"])
    report = train_model(data.path, checkpoint, config=config, device="cpu", resume=True)
    torch.set_num_threads(1)
    training = {key: value for key, value in report.items() if key != "checkpoint"}  # a path of this machine
    about = {"parameters": report["parameters"], "bytes": report["parameters"], "training": training}
    about["curve"] = [json.loads(line) for line in (checkpoint / "metrics.jsonl").read_text().splitlines()]
    return Model(lowered(checkpoint, "fp32")), about


def _mix(cell: Cell, data: Dataset, work: Path) -> tuple[System, dict[str, Any]]:
    """A network that is trained already, with an n-gram, with copying or with the lists of a bundle."""
    what, checkpoint = cell.system.partition("+")[2], cell.checkpoint(work)
    parameters = count_parameters(load_checkpoint(checkpoint).config.model)
    torch.set_num_threads(1)
    if what == LISTS:
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / "bundle"
            run_mtn_edge("quantize", str(checkpoint), "--int8", "--data", str(data.path), "-o", str(bundle))
            (system,) = open_models([bundle], data, [])[0].values()
            decoding = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["decoding"]
        return system, {"parameters": parameters, "bytes": system.nbytes, "decoding": decoding}
    loaded = load_checkpoint(checkpoint)
    config = replace(loaded.config, model=replace(loaded.config.model, fusion=what))
    sources, about = learn_sources(loaded.model, data, config)
    nbytes = parameters + (sources.ngram.nbytes if sources.ngram is not None else 0)
    fused = replace(loaded, config=config, sources=sources)
    return Model(_lowered(fused, "fp32")), {"parameters": parameters, "bytes": nbytes, "gate": about}


def lowered(checkpoint: Path, precision: Precision) -> Suggester:
    """A checkpoint as graphs; in float32 they compute what PyTorch does, several times faster."""
    return _lowered(load_checkpoint(checkpoint), precision)


def _lowered(loaded: Checkpoint, precision: Precision) -> Suggester:
    model = loaded.config.model
    state = {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        build_graphs(state, model, uniform_plan(precision), loaded.sources).save(Path(folder))
        engine = OnnxEngine(Path(folder), asdict(model))
    decoding = Decoding(max_steps=model.max_tokens + 1)
    return Suggester(
        engine=engine,
        tokenizer=loaded.tokenizer,
        completions=Completions(()),
        blocklist=Blocklist(),
        decoding=decoding,
    )


def _make(cell: Cell, corpus: Corpus, data: Dataset, work: Path) -> tuple[System, dict[str, Any]]:
    """A baseline, an n-gram within the bytes of the int8 MTN, or the oracle."""
    oracle = corpus.oracle(work)
    if cell.system == CEILING and oracle is not None:
        system = open_ceiling(oracle, data)[CEILING]
    else:
        limit = count_parameters(config_of(corpus, "mtn", len(data.tokenizer)).model)
        system = make_baselines([cell.system], data, limit)[cell.system]
    return system, {"bytes": system.nbytes}
