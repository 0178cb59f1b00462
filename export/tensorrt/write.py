"""From a checkpoint to a folder of engines: written whole, compared with PyTorch at each border, or not at all.

The folder holds `encoder.engine` and `search.engine`, the same networks as ONNX to build them again where the engines
do not fit, tokenizer and lists, and a manifest of the kind `engines`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from export import calibrate
from export.bundle import lists_of, prefixes_of
from export.checks import Check, equal, require
from export.held_out import LIST, Pair, dataset_pairs, own_pairs
from export.tensorrt import agreement, builders
from export.tensorrt.batch import BatchEngine, KeyPress
from export.tensorrt.lowering import OPSET, check_onnx, exported, require_onnxscript, write_onnx
from export.tensorrt.networks import Networks, Precision, build_networks, in_half, in_int8, lowered
from export.tensorrt.runners import onnx_engine
from export.tensorrt.sizes import Sizes
from mtn_edge import folders
from mtn_edge.console import say
from mtn_edge.runtime import completions
from mtn_edge.runtime.blocklist import Blocklist, packed
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.context import context_start
from mtn_edge.runtime.lists import FOLLOWERS
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.text import normalize_prefix

if TYPE_CHECKING:
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.models.mtn import MTN
    from mtn_edge.training.checkpoint import Checkpoint

OBSERVED = 256
"""Key presses that the ranges of int8 are observed on."""
OWN_OBSERVED = 64
"""The same when the model must write the sessions itself."""
CALIBRATED = 100
"""Validation pairs that the floors are tuned on, each with a few typed texts."""


def write_engines(
    checkpoint_path: Path,
    out: Path,
    *,
    precision: Precision,
    builder: builders.BuilderName | None,
    beam: int,
    steps: int,
    max_batch: int,
    dataset: Path | None,
    blocklist: Path | None,
    force: bool,
    seed: int,
) -> dict[str, Any]:
    """Makes the folder `out`.

    Args:
        checkpoint_path: folder of a checkpoint.
        out: folder to write.
        precision: of both engines.
        builder: who builds them; None for the first that is installed.
        beam: hypotheses of a search, and the longest list that a client can ask for.
        steps: tokens that a search writes at most, with `<eos>`.
        max_batch: key presses of a batch at most.
        dataset: folder of a dataset, for the ranges of int8, the lists and the confidence floors. Without it, ranges
            are observed on sessions that the model writes itself, the lists are empty, and there are no floors.
        blocklist: file of words and phrases that are never suggested.
        force: replace engines that stand at `out`.
        seed: of samples.

    Returns:
        The manifest.

    Raises:
        UserError: a folder or file is missing or damaged; `out` exists; a size is out of range; the engines do not know
            such a network; no builder is installed.
        GateError: a network differs from PyTorch, or the builder refuses it.
    """
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.training.checkpoint import load_checkpoint

    folders.refuse_overwrite(out, force=force, inputs=(checkpoint_path, dataset))
    denied = Blocklist() if blocklist is None else Blocklist.load(blocklist)
    checkpoint = load_checkpoint(checkpoint_path)
    sizes = Sizes.of(checkpoint.config.model, beam=beam, steps=steps, max_batch=max_batch)
    data = Dataset.open(dataset) if dataset is not None else None
    require_onnxscript()
    maker = builders.find_builder(builder, precision)
    with folders.new_folder(out, "engines", force=force) as folder:
        made = Lowering(checkpoint, sizes, precision, data, seed)
        checks = made.write_onnx(folder)
        for part in lowered(made.networks, sizes):
            say(f"building the {part.name} with {maker.name}")
            onnx, engine = (folder / f"{part.name}.{ending}" for ending in ("onnx", "engine"))
            maker.build(part, sizes, onnx, folder / builders.CACHE, precision, engine)
        _write_lists(checkpoint, data, denied, folder)
        text = "" if blocklist is None else packed(blocklist, as_hashes=False)
        (folder / "blocklist.txt").write_text(text, encoding="utf-8")
        content = _content(checkpoint, sizes, precision, data, seed, checks)
        content["decoding"] = asdict(_calibrated(made.suggester, lists_of(data, denied), data, seed))
        folders.write_manifest(folder, "engines", content | {"builder": maker.facts()})
        return folders.read_manifest(folder, "engines")


class Lowering:
    """The networks of a checkpoint, compared with PyTorch.

    Args:
        checkpoint: the model.
        sizes: of the networks.
        precision: of the networks.
        data: for the ranges of int8.
        seed: of samples.

    Raises:
        GateError: they do not compute what PyTorch computes.
    """

    def __init__(
        self, checkpoint: Checkpoint, sizes: Sizes, precision: Precision, data: Dataset | None, seed: int
    ) -> None:
        from mtn_edge.decoding.torch_engine import TorchEngine

        self._sizes, self._precision = sizes, precision
        exact = build_networks(cast("MTN", checkpoint.model), sizes)
        engine = exact.engine(sizes)
        suggester = suggester_of(checkpoint, engine, sizes)
        say("comparing the networks with PyTorch")
        prefixes = prefixes_of(checkpoint.tokenizer)
        constraint = suggester.search.constraint
        reference = TorchEngine(checkpoint.model)
        self._cases = agreement.record(reference, engine, sizes, constraint, prefixes, seed)
        self._checks = agreement.check(engine, sizes, self._cases, "fp32", "networks")
        require(self._checks, "the networks do not compute what PyTorch computes")
        self.suggester = suggester
        self.networks = _in_precision(exact, suggester, sizes, precision, data, seed)

    def write_onnx(self, folder: Path) -> list[Check]:
        """Writes `encoder.onnx` and `search.onnx`, and repeats the comparison on ONNX Runtime.

        Returns:
            Every check so far.

        Raises:
            UserError: a package is missing.
            GateError: the ONNX does not compute what PyTorch computes.
        """
        checks = list(self._checks)
        for part in lowered(self.networks, self._sizes):
            say(f"writing the {part.name} as ONNX")
            file = folder / f"{part.name}.onnx"
            write_onnx(exported(part, self._sizes), part, file)
            wrong = ", ".join(check_onnx(file, part)) or "none"
            checks.append(equal(f"{file.name}: inputs and outputs not as asked", wrong, "none"))
        require(checks, "the ONNX is not what was asked for")
        engine = onnx_engine(folder, self._sizes)
        checks += agreement.check(engine, self._sizes, self._cases, self._precision, "ONNX")
        require(checks, "the ONNX does not compute what PyTorch computes")
        return checks


def _in_precision(
    networks: Networks, suggester: Suggester, sizes: Sizes, precision: Precision, data: Dataset | None, seed: int
) -> Networks:
    if precision == "fp32":
        return networks
    if precision == "fp16":
        return in_half(networks)
    if data is not None:
        pairs = dataset_pairs(data.sessions("train"), OBSERVED, seed)
    else:
        say("no --data: observing ranges on sessions that the model writes itself")
        pairs = own_pairs(suggester, OWN_OBSERVED, seed)
    return in_int8(networks, sizes, presses_of(suggester, sizes, pairs))


def presses_of(suggester: Suggester, sizes: Sizes, pairs: Sequence[Pair]) -> list[KeyPress]:
    """The key presses that `pairs` stand for; those that the model cannot write are left out."""
    engine, tokenizer, presses = suggester.engine, suggester.tokenizer, []
    for pair in pairs:
        typed = suggester.search.constraint.typed(normalize_prefix(pair.typed), sizes.max_tokens)
        if typed is None:
            continue
        state = engine.start()
        for query in pair.session[context_start(len(pair.session), sizes.max_queries) :]:
            state = engine.append(tokenizer.encode(query)[-sizes.max_tokens :], state)
        steps = min(sizes.steps, sizes.max_tokens + 2 - len(typed.start_tokens))
        presses.append(KeyPress(state["session_queries"], typed, steps))
    return presses


def suggester_of(checkpoint: Checkpoint, engine: BatchEngine, sizes: Sizes) -> Suggester:
    """The model without any list, on the networks."""
    return Suggester(
        engine=engine,
        tokenizer=checkpoint.tokenizer,
        completions=Completions(()),
        blocklist=Blocklist(),
        decoding=Decoding(beam=sizes.beam, max_steps=sizes.steps),
    )


def _calibrated(suggester: Suggester, lists: calibrate.Lists, data: Dataset | None, seed: int) -> Decoding:
    """Floors and weights of the lists, tuned on validation pairs as a bundle's are; the search is float32's."""
    pairs = dataset_pairs(data.sessions("valid"), CALIBRATED, seed) if data is not None else []
    if not pairs or suggester.search.decoding.beam < LIST:
        say(f"no confidence floor: it takes validation pairs (--data) and a beam of {LIST}")
        return suggester.search.decoding
    say(f"tuning the confidence floor on {len(pairs):,} validation pairs")
    return calibrate.calibrate(suggester, lists, pairs, seed)


def _write_lists(checkpoint: Checkpoint, data: Dataset | None, denied: Blocklist, folder: Path) -> None:
    lists = lists_of(data, denied)
    shutil.copyfile(checkpoint.path / "tokenizer.json", folder / "tokenizer.json")
    lists.popular.save(folder / completions.FILE)
    lists.followers.save(folder / FOLLOWERS)


def _content(
    checkpoint: Checkpoint, sizes: Sizes, precision: Precision, data: Dataset | None, seed: int, checks: Sequence[Check]
) -> dict[str, Any]:
    import onnxruntime

    return {
        "model": asdict(checkpoint.config.model),
        "precision": precision,
        "sizes": asdict(sizes),
        "profiles": {"encoder": sizes.profile(sizes.encoder), "search": sizes.profile(sizes.search)},
        "opset": OPSET,
        "versions": {name: version(name) for name in ("torch", "onnx", "onnxscript", "tokenizers")}
        | {"onnxruntime": onnxruntime.__version__},  # its package has another name on a GPU
        "lineage": {
            "checkpoint": checkpoint.manifest["manifest_sha256"],
            "trained_on": checkpoint.manifest["lineage"]["dataset"],
            "data": data.manifest["manifest_sha256"] if data is not None else None,
            "seed": seed,
        },
        "gates": [check.to_json() for check in checks],
    }
