"""From a checkpoint to a bundle that has proved itself: lowered, compared at every border, verified, then published.

The float32 graphs are always built first: they must equal PyTorch. Quantized graphs must be close to the float32 ones
on held-out sessions, must hold what was asked for (`export.guards`), and must still read the session. Whatever fails,
nothing is written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from export import calibrate, card, golden, held_out, parity
from export.checks import Check, at_most, require
from export.graph_builder import IR_VERSION, OPSET
from export.graphs import Graphs
from export.mixing import DROP_PAIRS, Lowering
from export.quantization import Asked, Method, quantize_checkpoint
from export.recount import sources_for
from export.verify import OVERHEAD_BYTES, verify_bundle
from mtn_edge import folders
from mtn_edge.config import ModelConfig
from mtn_edge.console import say
from mtn_edge.models.fusion import Sources
from mtn_edge.ngram.file import facts
from mtn_edge.runtime import completions
from mtn_edge.runtime.blocklist import Blocklist, packed
from mtn_edge.runtime.completions import Completions
from mtn_edge.runtime.engine import Engine, OnnxEngine
from mtn_edge.runtime.lists import FOLLOWERS, pair_entries
from mtn_edge.runtime.search import Decoding
from mtn_edge.runtime.suggester import Suggester
from mtn_edge.tokenizer import Tokenizer
from quantize.plan import KEPT, Precision, group_of, uniform_plan

if TYPE_CHECKING:
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.training.checkpoint import Checkpoint

BEAM = 8
COMPLETIONS = 20_000
"""Popular queries that a bundle carries at most."""
PAIRS = 20_000
"""Pairs of a query and its follower that a bundle carries at most."""
QUALITY_PAIRS = 300
"""Held-out pairs of each split on which both precisions are measured."""
OWN_PAIRS = 60
"""The same when the model must write them itself."""
GOLDEN_PAIRS = 24
"""Of these, in `golden.json`: those with a session first."""
MAX_RATIO = 0.30
"""Largest size of quantized graphs in float32 ones, norms, biases and positions aside, which stay float32."""


@dataclass
class _Work:
    """What the stages hand on."""

    checkpoint: Checkpoint
    dataset: Dataset | None
    folder: Path
    asked: Asked
    blocklist: str
    """The text of the bundle's `blocklist.txt`."""
    denied: Blocklist
    """What it denies."""
    sources: Sources | None
    """What the model is mixed with."""
    counted: Dataset | None
    """What its n-gram was counted from anew."""
    lists: calibrate.Lists
    seed: int
    checks: list[Check] = field(default_factory=list)

    @property
    def model(self) -> ModelConfig:
        return self.checkpoint.config.model

    def suggester(self, engine: Engine) -> Suggester:
        """The model with the block list, and without popular completions."""
        return Suggester(
            engine=engine,
            tokenizer=self.checkpoint.tokenizer,
            completions=Completions(()),
            blocklist=self.denied,
            decoding=Decoding(beam=BEAM, max_steps=self.model.max_tokens + 1),
        )

    def shipped(self, engine: Engine, decoding: Decoding) -> Suggester:
        """The bundle as a device will open it."""
        return Suggester(
            engine=engine,
            tokenizer=self.checkpoint.tokenizer,
            completions=self.lists.popular,
            followers=self.lists.followers,
            blocklist=self.denied,
            decoding=decoding,
        )


def write_bundle(
    checkpoint_path: Path,
    out: Path,
    *,
    precision: Precision,
    method: Method = "dynamic",
    max_drop: float | None = None,
    dataset: Path | None,
    ngram_from: Path | None = None,
    blocklist: Path | None = None,
    hash_blocklist: bool = False,
    force: bool,
    seed: int,
) -> dict[str, Any]:
    """Makes the bundle `out`.

    Args:
        checkpoint_path: folder of a checkpoint.
        out: folder to write.
        precision: of all matrices.
        method: of int8, see `Asked`.
        max_drop: largest loss of MRR, see `Asked`.
        dataset: folder of a dataset, for held-out sessions and popular completions, for ranges and for training.
            Without it, precisions are compared on sessions that the model writes itself, and the list of completions
            is empty.
        ngram_from: folder of a dataset whose training queries the n-gram is counted from anew.
        blocklist: file of words and phrases that the bundle never suggests.
        hash_blocklist: keep hashes of them in the bundle, which nobody reads by the way.
        force: replace a bundle that stands at `out`.
        seed: of samples.

    Returns:
        The manifest.

    Raises:
        UserError: a folder is missing, damaged, of another kind; `out` exists; a weight cannot be quantized; the block
            list cannot be read; the method has no data, or too little, or does not suit the network.
        GateError: the graphs differ from PyTorch, quantized ones from float32 or from what was asked; no plan keeps
            within `max_drop`; the bundle does not pass `verify`.
    """
    from mtn_edge.data.dataset import Dataset
    from mtn_edge.training.checkpoint import load_checkpoint

    folders.refuse_overwrite(out, force=force, inputs=(checkpoint_path, dataset, ngram_from))
    denied = Blocklist() if blocklist is None else Blocklist.load(blocklist)
    text = "" if blocklist is None else packed(blocklist, as_hashes=hash_blocklist)
    checkpoint = load_checkpoint(checkpoint_path)
    opened = Dataset.open(dataset) if dataset is not None else None
    asked = Dataset.open(ngram_from) if ngram_from is not None else None
    sources, counted = sources_for(checkpoint, asked, opened, denied)
    with folders.new_folder(out, "bundle", force=force) as folder:
        wanted = Asked(precision=precision, method=method, max_drop=max_drop)
        work = _Work(checkpoint, opened, folder, wanted, text, denied, sources, counted, lists_of(opened, denied), seed)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # inside: a killed run leaves one folder, not two
            content = _fill(work, Path(scratch))
        folders.write_manifest(folder, "bundle", content)
        report = verify_bundle(folder)
        require(report, "the finished bundle does not pass `verify`")
        return folders.read_manifest(folder, "bundle")


def _fill(work: _Work, scratch: Path) -> dict[str, Any]:
    """Writes every file but the manifest, whose content it returns."""
    precision = work.asked.precision
    fp32, engine = _lower(work)
    references = _check_against_pytorch(work, engine)
    reference = exact = work.suggester(engine)
    samples = _samples(work, reference)

    graphs, quantization = fp32, None
    if precision != "fp32":
        graphs, model, quantization, checks = quantize_checkpoint(
            work.checkpoint,
            work.sources,
            work.asked,
            data=work.dataset,
            fp32=fp32,
            reference=reference,
            open_suggester=work.suggester,
            pairs=_drop_pairs(work),
            scratch=scratch,
            seed=work.seed,
        )
        work.checks += checks
        require(work.checks, f"the {precision} graphs do not hold what was asked for")
        if model is not work.checkpoint.model:  # its float32 graphs are what the quantized ones must be close to
            work = replace(work, checkpoint=replace(work.checkpoint, model=model))
            exact = work.suggester(_lower(work)[1])
            references = _check_against_pytorch(work, exact.engine)
    graphs.save(work.folder)
    if precision != "fp32":
        engine = OnnxEngine(work.folder, asdict(work.model))
        work.checks += parity.check_scores(engine, reference.search.constraint, references, precision)
    suggester = work.suggester(engine)
    decoding = _calibrate(work, suggester, samples.get("valid", []))
    say(f"measuring on {sum(map(len, samples.values())):,} held-out pairs")
    quality, near = held_out.compare(precision, suggester, reference, exact, samples)
    work.checks += near
    shipped = work.shipped(engine, decoding)
    vectors = _write_golden(work, reference, shipped, references)
    sizes = _sizes(work, fp32, graphs, mixed=quantization is None or quantization["mixed"])
    _write_lists(work)
    (work.folder / "required_operators.config").write_text(graphs.required_operators(), encoding="utf-8")
    require(work.checks, f"the {precision} graphs are not good enough to keep")

    content = {
        "model": asdict(work.model),
        "decoding": asdict(decoding),
        "precision": graphs.precision,
        "quantization": quantization or {"asked": "fp32", "mixed": False},
        "opset": OPSET,
        "ir_version": IR_VERSION,
        "versions": {name: version(name) for name in ("onnx", "onnxruntime", "torch", "numpy", "tokenizers")},
        "ngram": facts(graphs.ngram) if graphs.ngram is not None else None,
        "lineage": _lineage(work),
        "sizes": sizes,
        "operators": graphs.operators(),
        "step_nodes": graphs.step_nodes(),
        "quality": quality,
        "golden_vectors": vectors,
        "gates": [check.to_json() for check in work.checks],
    }
    (work.folder / "MODEL_CARD.md").write_text(card.model_card(content, _privacy(work)), encoding="utf-8")
    return content


def _lower(work: _Work) -> tuple[Graphs, OnnxEngine]:
    """The float32 graphs."""
    lowering = Lowering(work.checkpoint.model, work.model, work.sources, None)
    graphs = lowering.graphs(uniform_plan("fp32"))
    return graphs, lowering.engine(graphs)


def _drop_pairs(work: _Work) -> list[held_out.Pair]:
    """Validation pairs for a drop of MRR; the first of them are those of the other measurements."""
    if work.dataset is None or work.asked.max_drop is None:
        return []
    return held_out.dataset_pairs(work.dataset.sessions("valid"), DROP_PAIRS, work.seed)


def _check_against_pytorch(work: _Work, engine: Engine) -> list[parity.Reference]:
    from mtn_edge.decoding.torch_engine import TorchEngine

    say("comparing the graphs with PyTorch")
    constraint = work.suggester(engine).search.constraint
    with _one_thread():
        pytorch = TorchEngine(work.checkpoint.model, work.sources)
        references = parity.record_references(
            pytorch,
            constraint,
            prefixes=prefixes_of(work.checkpoint.tokenizer),
            max_steps=work.model.max_tokens + 1,
            seed=work.seed,
        )
        work.checks.append(parity.check_states(pytorch, engine, seed=work.seed))
    work.checks += parity.check_searches(engine, constraint, references)
    require(work.checks, "the graphs do not compute what PyTorch computes")
    return references


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread: a step is so small that threads wait for each other longer than they work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _calibrate(work: _Work, suggester: Suggester, pairs: Sequence[held_out.Pair]) -> Decoding:
    """Tunes the confidence floors on validation pairs; without data there are none."""
    if work.dataset is None or not pairs:
        say("no validation pairs: no confidence floor")
        return suggester.search.decoding
    say(f"tuning the confidence floor on {len(pairs):,} validation pairs")
    return calibrate.calibrate(suggester, work.lists, pairs, work.seed)


def _samples(work: _Work, reference: Suggester) -> dict[str, list[held_out.Pair]]:
    """Held-out pairs by where they come from, those of the gates first."""
    if work.dataset is None:
        say("no --data: comparing precisions on sessions that the model writes itself")
        return {"model": held_out.own_pairs(reference, OWN_PAIRS, work.seed)}
    samples = {
        split: held_out.dataset_pairs(work.dataset.sessions(split), QUALITY_PAIRS, work.seed)
        for split in ("test", "valid")
    }
    return {split: pairs for split, pairs in samples.items() if pairs} or {
        "model": held_out.own_pairs(reference, OWN_PAIRS, work.seed)
    }


def _write_golden(
    work: _Work,
    reference: Suggester,
    suggester: Suggester,
    references: Sequence[parity.Reference],
) -> int:
    """Writes `golden.json`; returns how many vectors it holds.

    Its sessions are made of what the bundle itself suggests: a session of the dataset is one user's, and would leave
    the house with the bundle.
    """
    pairs = held_out.own_pairs(suggester, GOLDEN_PAIRS, work.seed)
    tolerance = golden.TOLERANCE[work.asked.precision]
    vectors = golden.make_vectors(suggester, pairs, tolerance=tolerance)
    asked = [(list(pair.session), pair.query) for pair in pairs if pair.session]
    effect = golden.session_effect(reference, asked)
    work.checks += golden.check_effect(golden.session_effect(suggester, asked), effect)
    golden.Golden(tolerance, list(references), vectors, asked, effect).save(work.folder / "golden.json")
    return len(vectors)


def lists_of(dataset: Dataset | None, denied: Blocklist) -> calibrate.Lists:
    """Popular queries and followers; those that are denied take no room."""
    from mtn_edge.data.followers import followers

    if dataset is None:
        return calibrate.Lists(Completions(()), Completions(()))
    popular = [entry for entry in dataset.popularity()[:COMPLETIONS] if not denied.denies(entry[0])]
    pairs = [pair for pair in followers(dataset, PAIRS) if not denied.denies(pair[0]) and not denied.denies(pair[1])]
    return calibrate.Lists(Completions(popular), Completions(pair_entries(pairs)))


def _write_lists(work: _Work) -> None:
    shutil.copyfile(work.checkpoint.path / "tokenizer.json", work.folder / "tokenizer.json")
    work.lists.popular.save(work.folder / completions.FILE)
    work.lists.followers.save(work.folder / FOLLOWERS)
    (work.folder / "blocklist.txt").write_text(work.blocklist, encoding="utf-8")


def _sizes(work: _Work, fp32: Graphs, graphs: Graphs, *, mixed: bool) -> dict[str, int]:
    sizes = {
        "graphs": _bytes(graphs),
        "graphs_fp32": _bytes(fp32),
        "weights": graphs.weight_bytes,
    }
    if not mixed:
        kept = sum(weight.nbytes for name, weight in graphs.weights.items() if group_of(name) in KEPT)
        kept += graphs.ngram.nbytes if graphs.ngram is not None else 0  # the same in both
        bound = kept + int(MAX_RATIO * (sizes["graphs_fp32"] - kept)) + OVERHEAD_BYTES
        work.checks.append(at_most("size of the quantized graphs beside the fp32 ones, bytes", sizes["graphs"], bound))
    return sizes


def _bytes(graphs: Graphs) -> int:
    return sum(model.ByteSize() for model in graphs.models.values())


def _lineage(work: _Work) -> dict[str, Any]:
    trained = work.checkpoint.manifest["lineage"]
    return {
        "checkpoint": work.checkpoint.manifest["manifest_sha256"],
        "trained_on": trained["dataset"],
        "data": work.dataset.manifest["manifest_sha256"] if work.dataset is not None else None,
        "ngram": work.counted.manifest["manifest_sha256"] if work.counted is not None else None,
        "seed": work.seed,
    }


def _privacy(work: _Work) -> int | None:
    """K of all that is in the bundle: the smallest of its datasets'; None when the checkpoint does not say its own."""
    trained = work.checkpoint.manifest["lineage"].get("min_users")
    others = [data.manifest["settings"]["min_users"] for data in (work.dataset, work.counted) if data is not None]
    return None if trained is None else min([trained, *others])


def prefixes_of(tokenizer: Tokenizer) -> list[str]:
    """Typed texts to compare with: nothing, a word of the vocabulary without its last letter, that after two words."""
    for spelt in tokenizer.token_bytes[259:]:
        if len(spelt) > 2 and spelt.isalpha():
            word = spelt.decode()
            return ["", word[:-1], f"{word} {word} {word[:-1]}"]
    return ["", "a", "a a a"]
