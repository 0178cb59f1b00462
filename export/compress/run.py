"""`compress`: from a teacher to the smallest bundle that keeps within the budgets of a recipe, and proves it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from export.bundle import lists_of, write_bundle
from export.checks import require
from export.compress import measure
from export.compress.recipe import Point, Recipe
from export.compress.report import card_section
from export.compress.search import PROXY_SHARE, Measured, chosen, figures_in_words, overdrawn, search
from export.compress.sizes import expected, shares_of, weight_bytes
from export.compress.stages import Stages
from export.mobile import copied, export_mobile
from export.verify import verify_bundle
from mtn_edge import folders
from mtn_edge.config import Config, to_toml
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import GateError, UserError
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.run import Device
from mtn_edge.training.workplace import TOKENIZER
from quantize.distill import distill_model
from quantize.prune import prune_checkpoint
from quantize.qat import require_linear
from quantize.teacher import open_teacher
from quantize.vocabulary import is_part_of

OTHER_BYTES = 100_000
"""Golden vectors, card and manifest of a bundle, about."""


@dataclass(frozen=True)
class Compression:
    """What came of it."""

    facts: dict[str, Any]
    """What the manifest of the bundle says under `compression`."""
    comparison: dict[str, Any]
    """Teacher and bundle on the test split (see `measure.comparison`)."""
    examples: list[dict[str, Any]]
    """See `measure.examples`."""
    bundle: Path
    """The bundle: the output, or where the best one lies when none keeps the budgets."""


class Compressor:
    """One recipe, one teacher, one dataset.

    Args:
        dataset: a dataset folder.
        teacher: a checkpoint folder.
        recipe: what is to be done.
        device: where students are trained.
        seed: of everything random; None for 1, and for what the recipe says of a student's training.

    Raises:
        UserError: a folder is missing or damaged, teacher, dataset and recipe do not fit together.
    """

    def __init__(self, dataset: Path, teacher: Path, recipe: Recipe, *, device: Device, seed: int | None) -> None:
        self.recipe = recipe
        self._data, self._teacher = Dataset.open(dataset), load_checkpoint(teacher)
        self._device, self._given_seed, self._seed = device, seed, 1 if seed is None else seed
        for split in ("valid", "test"):
            if not any(len(session) > 1 for session in self._data.sessions(split)):
                raise UserError(
                    f"the {split} split of `{dataset}` has no session of two queries, and quality is measured there",
                    code="no-sessions",
                    hint="prepare a larger log, or split it in another way",
                )
        for point in recipe.points:
            config = self._teacher.config
            if point.student is not None:
                config = self._config(point)
                open_teacher(teacher, self._data, config)
            if point.quantize.method != "dynamic":
                require_linear(config, point.quantize.method)
        if not is_part_of(self._teacher.tokenizer, self._data.tokenizer):
            raise UserError(
                f"`{dataset}` was prepared with another tokenizer than the one of `{teacher}`",
                code="other-tokenizer",
                hint="name the dataset that the teacher was trained on",
            )
        lists = self._list_bytes()
        self.sizes = [
            expected(
                point,
                self._teacher.config,
                self._tokenizer(point),
                lists=lists,
                ort_format=recipe.target == "phone",
            )
            for point in recipe.points
        ]

    def plan(self, stages: Stages) -> list[dict[str, Any]]:
        """What there is to do: for each point its expected size and its stages, each with whether it is done."""
        return [
            {
                "point": point.name,
                "choice": point.choice,
                "parameters": size.parameters,
                "expected_bytes": size.bundle,
                "fits": not self.recipe.budgets.size_mb or size.bundle <= self.recipe.budgets.size_mb * 1e6,
                "stages": self._stages(point, stages),
            }
            for point, size in zip(self.recipe.points, self.sizes, strict=True)
        ]

    def run(self, stages: Stages) -> Compression:
        """Goes all the way.

        Returns:
            Of the best point; `facts["over"]` says which budgets it breaks when no point keeps all of them.

        Raises:
            GateError: every point is too large before it is made.
            UserError: a stage cannot be gone through.
        """
        began = time.monotonic()
        deadline = began + self.recipe.time_limit if self.recipe.time_limit else float("inf")
        budgets = self.recipe.budgets
        if budgets.size_mb and min(size.bundle for size in self.sizes) > budgets.size_mb * 1e6:
            raise self._too_large()
        teacher = self._bundle_of_teacher(stages)
        reference = self._quality("teacher", teacher, stages)["mrr@10"]
        if reference == 0:
            raise UserError(
                f"the teacher `{self._teacher.path}` finds no query of the validation split: its MRR@10 is 0",
                code="bad-teacher",
                hint="train it longer, or on this dataset",
            )
        found = search(
            self.recipe.points,
            self.sizes,
            budgets=budgets,
            deadline=deadline,
            proxy=lambda point: self._proxy(point, stages),
            make=lambda point: self._make(point, stages, reference),
        )
        best = chosen(found)
        assert best is not None
        bundle, network = self._whole(best.point, stages)
        compared = stages.document(
            "comparison",
            {"teacher": _hash(teacher), "bundle": _hash(bundle), **self._about_data()},
            lambda: measure.comparison(teacher, bundle, self._data, seed=self._seed),
        )
        facts = self._facts(best, found, teacher, bundle, network, compared, stages)
        return Compression(facts, compared, measure.examples(teacher, bundle, self._data), bundle)

    # Stages: each knows its key, and how it is made from the stage before.

    def _bundle_of_teacher(self, stages: Stages) -> Path:
        key = {"checkpoint": _hash(self._teacher.path), "precision": "fp32", **self._about_data()}
        return stages.folder("teacher", key, lambda place: self._quantize(self._teacher.path, place, "fp32"))

    def _whole(self, point: Point, stages: Stages) -> tuple[Path, Path]:
        """The bundle of a point, and the checkpoint that it was made from."""
        network = self._network(point, stages)
        key = {"checkpoint": _hash(network), **asdict(point.quantize), **self._about_data()}
        asked = point.quantize
        bundle = stages.folder(
            "quantize",
            key,
            lambda place: self._quantize(network, place, asked.precision, asked.method, asked.max_drop),
        )
        if self.recipe.target == "phone":
            whole = bundle
            bundle = stages.folder(
                "export", {"bundle": _hash(whole)}, lambda place: export_mobile(whole, place, ort_format=True)
            )
        return bundle, network

    def _network(self, point: Point, stages: Stages, *, short: bool = False) -> Path:
        """The float32 checkpoint of a point; of a short way for a proxy."""
        network = self._teacher.path
        if point.student is not None:
            network = stages.folder(*self._distillation(point, short=short))
        if point.prune is not None:
            prune = replace(point.prune, recover_epochs=0) if short else point.prune
            before = network
            key = {"checkpoint": _hash(before), **asdict(prune), **self._about_data()}
            network = stages.folder(
                "prune",
                key,
                lambda place: prune_checkpoint(
                    before,
                    place,
                    shares=shares_of(prune),
                    dataset=self._data.path,
                    rounds=prune.rounds,
                    recover_epochs=prune.recover_epochs,
                    force=False,
                    seed=self._seed,
                ),
            )
        return network

    def _distillation(self, point: Point, *, short: bool) -> tuple[str, dict[str, Any], Callable[[Path], object]]:
        config = self._config(point)
        if short:
            epochs = max(1, config.train.epochs // PROXY_SHARE)
            config = replace(config, train=replace(config.train, epochs=epochs))
        key = {"teacher": _hash(self._teacher.path), "config": to_toml(config), **self._about_data()}

        def make(place: Path) -> object:
            return distill_model(
                self._data.path,
                place,
                teacher=self._teacher.path,
                config=config,
                device=self._device,
                cache=place.parent / "outputs",
                resume=True,
            )

        return "distill", key, make

    def _quantize(
        self, checkpoint: Path, place: Path, precision: Any, method: Any = "dynamic", max_drop: float | None = None
    ) -> None:
        write_bundle(
            checkpoint,
            place,
            precision=precision,
            method=method,
            max_drop=max_drop,
            dataset=self._data.path,
            force=False,
            seed=self._seed,
        )

    def _proxy(self, point: Point, stages: Stages) -> float:
        """The validation loss of a short way; 0 where there is no way to go before quantization."""
        if point.student is None and point.prune is None:
            return 0.0
        training = folders.read_manifest(self._network(point, stages, short=True), "checkpoint")["training"]
        if point.prune is None:
            return float(training["valid_loss"])
        return float(training["pruning"]["stages"][-1]["nats_per_query"])  # comparable when tokens are gone

    def _quality(self, name: str, bundle: Path, stages: Stages) -> dict[str, Any]:
        key = {"bundle": _hash(bundle), "queries": measure.QUERIES, **self._about_data()}
        return stages.document(f"quality-{name}", key, lambda: measure.quality(bundle, self._data, seed=self._seed))

    def _cost(self, name: str, bundle: Path, stages: Stages, limit: float = float("inf")) -> dict[str, Any]:
        """Kept, unless its p95 is beyond the limit: the machine may have been busy, and is asked again."""
        key = {"bundle": _hash(bundle), "presses": measure.KEY_PRESSES, **self._about_data()}
        return stages.document(
            f"cost-{name}",
            key,
            lambda: measure.cost(bundle, self._data, seed=self._seed),
            keep=lambda found: found["keystroke_ms"]["p95"] <= limit,
        )

    def _make(self, point: Point, stages: Stages, reference: float) -> Measured:
        bundle, _ = self._whole(point, stages)
        limit = self.recipe.budgets.p95_ms or float("inf")
        figures = self._cost("bundle", bundle, stages, limit) | self._quality("bundle", bundle, stages)
        figures["drop"] = 1 - figures["mrr@10"] / reference
        return Measured(point, figures, overdrawn(self.recipe.budgets, figures))

    def _facts(
        self,
        best: Measured,
        found: list[Measured],
        teacher: Path,
        bundle: Path,
        network: Path,
        compared: dict[str, Any],
        stages: Stages,
    ) -> dict[str, Any]:
        """What the manifest says."""
        model = self._teacher.config.model
        before = weight_bytes(model, dict(self._teacher.model.state_dict()), "fp32")
        manifest = folders.read_manifest(bundle, "bundle")
        divergence = stages.document(
            "divergence",
            {"teacher": _hash(self._teacher.path), "student": _hash(network), **self._about_data()},
            lambda: {"found": measure.divergence(self._teacher.path, network, self._data)},
        )["found"]
        teacher_cost = self._cost("teacher", teacher, stages)
        return {
            "recipe": {"name": self.recipe.name, **self.recipe.document},
            "teacher": {
                "manifest_sha256": _hash(self._teacher.path),
                **teacher_cost,
                **self._quality("teacher", teacher, stages),
                "parts": measure.parts(teacher),
                "groups": before,
            },
            "bundle": {
                **best.figures,
                "parts": measure.parts(bundle),
                "groups": _group_bytes(manifest, network),
                "precision": manifest["precision"],
            },
            "budgets": asdict(self.recipe.budgets),
            "over": best.over,
            "smaller": teacher_cost["bytes"] / best.figures["bytes"],
            "graphs_smaller": measure.parts(teacher)["graphs"] / measure.parts(bundle)["graphs"],
            "faster": teacher_cost["keystroke_ms"]["p50"] / best.figures["keystroke_ms"]["p50"],
            "same_first": compared["same_first"],
            "network_divergence": divergence,
            "stages": [
                {"stage": each["stage"], "settings": each["settings"]} for each in self._stages(best.point, stages)
            ],
            "chosen": best.point.name,
            "points": [
                {"point": each.point.name, "choice": each.point.choice, "over": each.over, **each.figures}
                for each in found
            ],
        }

    def _stages(self, point: Point, stages: Stages) -> list[dict[str, Any]]:
        """The way of a point; what comes after a stage that is to be made has no name yet."""
        found: list[dict[str, Any]] = []
        network: Path | None = self._teacher.path
        if point.student is not None:
            stage, key, _ = self._distillation(point, short=False)
            network = stages.place(stage, key) if stages.has(stage, key) else None
            found.append({"stage": stage, "done": network is not None, "settings": asdict(point.student)})
        if point.prune is not None:
            found.append({"stage": "prune", "done": False, "settings": asdict(point.prune)})
            if network is not None:
                key = {"checkpoint": _hash(network), **asdict(point.prune), **self._about_data()}
                network = stages.place("prune", key) if stages.has("prune", key) else None
                found[-1]["done"] = network is not None
        key = {"checkpoint": _hash(network), **asdict(point.quantize), **self._about_data()} if network else {}
        done = network is not None and stages.has("quantize", key)
        found.append({"stage": "quantize", "done": done, "settings": asdict(point.quantize)})
        if self.recipe.target == "phone":
            exported = done and stages.has("export", {"bundle": _hash(stages.place("quantize", key))})
            found.append({"stage": "export", "done": exported, "settings": {"ort_format": True}})
        return found

    def _config(self, point: Point) -> Config:
        assert point.student is not None
        config = point.student.config(self._teacher.config)
        if self._given_seed is None:
            return config
        return replace(config, train=replace(config.train, seed=self._given_seed))

    def _tokenizer(self, point: Point) -> Tokenizer:
        return self._teacher.tokenizer if point.student is None else self._data.tokenizer

    def _about_data(self) -> dict[str, Any]:
        return {"dataset": self._data.manifest["manifest_sha256"], "seed": self._seed}

    def _list_bytes(self) -> int:
        """What every bundle of this dataset carries beside its graphs."""
        lists = lists_of(self._data, Blocklist())
        with tempfile.TemporaryDirectory() as scratch:
            lists.popular.save(Path(scratch) / "popular")
            lists.followers.save(Path(scratch) / "followers")
            saved = sum(file.stat().st_size for file in Path(scratch).iterdir())
        return saved + (self._data.path / TOKENIZER).stat().st_size + OTHER_BYTES

    def _too_large(self) -> GateError:
        size, point = min(zip(self.sizes, self.recipe.points, strict=True), key=lambda each: each[0].bundle)
        which = f" ({point.name})" if point.choice else ""
        return GateError(
            f"`budgets.size_mb` is {self.recipe.budgets.size_mb:g}, and the smallest bundle of the recipe{which} takes "
            f"about {size.bundle / 1e6:.2f} MB",
            code="budget",
            hint="allow more, or let the recipe go further down",
        )


def publish(compression: Compression, out: Path, *, force: bool) -> dict[str, Any]:
    """Copies the bundle to `out` with what is known of its making in the manifest and in the model card.

    Raises:
        UserError: `out` exists.
        GateError: the copy does not pass `verify`.
    """
    with folders.new_folder(out, "bundle", force=force) as folder:
        content = copied(compression.bundle, folder)
        with (folder / "MODEL_CARD.md").open("a", encoding="utf-8") as card:
            card.write("\n" + card_section(compression.facts))
        folders.write_manifest(folder, "bundle", content | {"compression": compression.facts})
        require(verify_bundle(folder), "the compressed bundle does not pass `verify`")
        return folders.read_manifest(folder, "bundle")


def refusal(compression: Compression) -> GateError:
    """The sentence for a recipe of which no point keeps the budgets."""
    facts = compression.facts
    words = ", ".join(f"`budgets.{name}` {facts['budgets'][name]:g}" for name in facts["over"])
    return GateError(
        f"no point of the recipe keeps within {words}; the best, {facts['chosen']}, has "
        f"{figures_in_words(facts['bundle'])} and lies in `{compression.bundle}`",
        code="budget",
        hint="allow more, or let the recipe search further",
    )


def _hash(folder: Path) -> str:
    found: str = folders.read_manifest(folder)["manifest_sha256"]
    return found


def _group_bytes(manifest: dict[str, Any], network: Path) -> dict[str, int]:
    """Bytes of each tensor group of a bundle, which says so itself unless it is all float32."""
    groups = manifest["quantization"].get("groups")
    if groups:
        return {name: entry["bytes"] for name, entry in groups.items()}
    checkpoint = load_checkpoint(network)
    return weight_bytes(checkpoint.config.model, dict(checkpoint.model.state_dict()), "fp32")
