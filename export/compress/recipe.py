"""Recipes: what is done to a teacher, and within which budgets, as TOML.

A recipe names one way (its sections `student`, `prune`, `quantize`), or several: `[search.space]` gives lists of values
for settings, and each combination of them is a *point*. With budgets alone, `DEFAULT_SPACE` is searched.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from export.quantization import Method
from mtn_edge.config import Config, DistillConfig, ModelConfig, TrainConfig, check, override, preset
from mtn_edge.console import duration
from mtn_edge.errors import UserError
from quantize.plan import Precision
from quantize.prune_sparsity import TWO_OF_FOUR, Sparsity

S = TypeVar("S")
"""A section of a recipe."""
Target = Literal["phone", "server"]
SHIPPED = Path(__file__).parent / "recipes"
DEFAULT_SPACE: dict[str, tuple[Any, ...]] = {
    "student.model.d_model": (64, 96, 128),
    "student.model.decoder_layers": (1, 2),
    "quantize.precision": ("int8", "int4"),
}
"""What is searched with budgets alone: students of the preset `tiny`, narrower and shallower."""

INHERITED = ("max_tokens", "max_queries", "dropout", "fusion")
"""Settings of the model that a student takes from its teacher: a recipe suits logs of any kind."""
OWN_TRAINING = ("learning_rate", "warmup_steps", "time_budget", "bpe_dropout", "compile")
"""Settings of the training that it does not: they go with its size, or do not go with a teacher."""


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """What a bundle may cost; 0 for no limit."""

    size_mb: float = 0.0
    """All files of the bundle, in units of 1,000,000 bytes."""
    p95_ms: float = 0.0
    """Milliseconds in which 95 % of key presses are answered, on one thread of the machine that compresses."""
    max_quality_drop: float = 0.0
    """Share of the teacher's MRR@10 (mean of both tasks, validation split) that may be lost."""


@dataclass(frozen=True, kw_only=True)
class Student:
    """A network that learns from the teacher."""

    arch: Literal["mtn", "transformer", "seq2seq", "hred", "tail-lstm"] = "mtn"
    preset: Literal["tiny", "small", "base"] = "tiny"
    passes: int = 1
    """Its epochs for each of the teacher's: distillation goes on giving long after that (Beyer et al. 2022, *Knowledge
    distillation: a good teacher is patient and consistent*, arXiv 2106.05237)."""
    settings: tuple[str, ...] = ()
    """The tables `student.model`, `student.train` and `student.distill`, as `section.key=value`."""

    def config(self, teacher: Config | None = None) -> Config:
        """Its settings, resolved but for the vocabulary.

        Args:
            teacher: what is inherited where the recipe says nothing, see `OWN_TRAINING` and `INHERITED`.
        """
        config = preset(self.preset, self.arch)
        if teacher is not None:
            model = {name: getattr(teacher.model, name) for name in INHERITED}
            train = {name: getattr(config.train, name) for name in OWN_TRAINING}
            config = dataclasses.replace(
                config,
                model=dataclasses.replace(config.model, **model),
                train=dataclasses.replace(teacher.train, epochs=self.passes * teacher.train.epochs, **train),
            )
        config = override(config, list(self.settings))
        return check(dataclasses.replace(config, distill=config.distill or DistillConfig()))


@dataclass(frozen=True, kw_only=True)
class Prune:
    """What is removed; each share is the share that goes, as in `mtn-edge prune`."""

    ffn: float = 0.0
    heads: float = 0.0
    layers: float = 0.0
    vocab: float = 0.0
    rank: float = 0.0
    sparsity: Sparsity = 0.0
    rounds: int = 1
    recover_epochs: int = 2

    @property
    def shares(self) -> dict[str, Any]:
        """What is removed of each kind."""
        return {name: getattr(self, name) for name in ("ffn", "heads", "layers", "vocab", "rank", "sparsity")}


@dataclass(frozen=True, kw_only=True)
class Quantize:
    """Precision, as in `mtn-edge quantize`."""

    precision: Precision = "int8"
    method: Method = "dynamic"
    max_drop: float | None = None


@dataclass(frozen=True)
class Point:
    """One way from the teacher to a bundle."""

    student: Student | None
    prune: Prune | None
    quantize: Quantize
    choice: dict[str, Any]
    """What the search chose, by setting; empty when there is one point."""

    @property
    def name(self) -> str:
        """For people: the chosen values."""
        words = [f"{key.rpartition('.')[2]}={value}" for key, value in self.choice.items()]
        return ", ".join(words) or "the recipe"


@dataclass(frozen=True)
class Recipe:
    """What was asked for."""

    name: str
    target: Target
    budgets: Budgets
    time_limit: float
    """Seconds after which the search tries nothing new; 0 for no limit."""
    points: tuple[Point, ...]
    document: dict[str, Any]
    """The TOML document itself."""


def load_recipe(name: str) -> Recipe:
    """Reads a recipe.

    Args:
        name: a file, or the name of one in `SHIPPED`, which a file or folder of that name does not hide.

    Raises:
        UserError: there is no such recipe, it is not valid TOML, or holds an unknown key (the nearest is named), a
            value out of range, or budgets that contradict themselves.
    """
    shipped = {file.stem: file for file in SHIPPED.glob("*.toml")}
    path = shipped.get(name, Path(name))
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"`--recipe {name}` is neither a recipe that comes with mtn-edge nor a file that can be read "
            f"({error.strerror})",
            code="missing",
            hint=f"name a TOML file, or one of {', '.join(sorted(shipped))}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"`{path}` is not valid TOML ({error})", code="bad-recipe", hint="mend the file") from error
    return read_recipe(document, path.stem)


def read_recipe(document: Mapping[str, Any], name: str) -> Recipe:
    """A recipe from its document, see `load_recipe`."""
    _require_known(document)
    target = _convert("target", document.get("target", "phone"), Target)
    budgets = _read("budgets", document.get("budgets", {}), Budgets)
    search = document.get("search", {})
    _require_known_keys("search", search, ("time_limit", "space"))
    space = search.get("space")
    if space is not None and not isinstance(space, Mapping):
        raise _bad("search.space", space, "a table: [search.space]")
    if space is None and not any(section in document for section in ("student", "prune", "quantize")):
        space = DEFAULT_SPACE
    points = tuple(_points(document, space or {}))
    time_limit = duration("search.time_limit", str(search.get("time_limit", 0)))
    recipe = Recipe(name, target, budgets, time_limit, points, copy.deepcopy(dict(document)))
    _require_sense(recipe)
    return recipe


def _points(document: Mapping[str, Any], space: Mapping[str, Any]) -> Iterator[Point]:
    for key, values in space.items():
        if key not in _SEARCHED:
            if isinstance(values, Mapping):
                raise _bad(f"search.space.{key}", values, 'a list: names are quoted there, "prune.ffn" = [0.25, 0.5]')
            raise _unknown(f"search.space.{key}", [f"search.space.{name}" for name in _SEARCHED])
        if not isinstance(values, list | tuple) or not values:
            raise _bad(f"search.space.{key}", values, "a list of values")
    for values in itertools.product(*space.values()):
        choice = dict(zip(space, values, strict=True))
        chosen: dict[str, Any] = copy.deepcopy(dict(document))
        for key, value in choice.items():
            *sections, last = key.split(".")
            place = chosen
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        _require_known(chosen)
        student = _read_student(chosen["student"]) if "student" in chosen else None
        prune = _read("prune", chosen["prune"], Prune) if "prune" in chosen else None
        if prune is not None and space and not any(prune.shares.values()):
            prune = None  # a list of shares may begin with 0: this point is not pruned
        yield Point(student, prune, _read("quantize", chosen.get("quantize", {}), Quantize), choice)


def _read_student(table: Mapping[str, Any]) -> Student:
    own = {key: value for key, value in table.items() if key in ("arch", "preset", "passes")}
    settings = tuple(
        f"{section}.{key}={value}" for section in _STUDENT for key, value in table.get(section, {}).items()
    )
    student = dataclasses.replace(_read("student", own, Student), settings=settings)
    student.config()  # says what does not fit
    return student


_STUDENT: dict[str, Any] = {"model": ModelConfig, "train": TrainConfig, "distill": DistillConfig}
_SECTIONS: dict[str, Any] = {"budgets": Budgets, "prune": Prune, "quantize": Quantize}
_KNOWN = (
    *("target", "student.arch", "student.preset", "student.passes", "search.time_limit", "search.space"),
    *(f"{name}.{key.name}" for name, section in _SECTIONS.items() for key in dataclasses.fields(section)),
    *(f"student.{name}.{key.name}" for name, section in _STUDENT.items() for key in dataclasses.fields(section)),
)
_SEARCHED = tuple(name for name in _KNOWN if name.startswith(("student.", "prune.", "quantize.")))
"""What `[search.space]` can have values for."""


def _require_known(document: Mapping[str, Any]) -> None:
    """Refuses keys that mean nothing, at any depth."""
    for key, value in document.items():
        if key == "target":
            continue
        if key not in ("student", "search", *_SECTIONS):
            raise _unknown(key, ["target", "student", "search", *_SECTIONS])
        if not isinstance(value, Mapping):
            raise _bad(key, value, f"a table: [{key}]")
        known = [name.split(".")[1] for name in _KNOWN if name.startswith(f"{key}.")]
        _require_known_keys(key, value, known)
        for section in _STUDENT if key == "student" else ():
            table = value.get(section, {})
            if not isinstance(table, Mapping):
                raise _bad(f"{key}.{section}", table, f"a table: [{key}.{section}]")
            known = [field.name for field in dataclasses.fields(_STUDENT[section])]
            _require_known_keys(f"{key}.{section}", table, known)


def _require_known_keys(section: str, table: Any, known: Any) -> None:
    if not isinstance(table, Mapping):
        raise _bad(section, table, f"a table: [{section}]")
    for key in table:
        if key not in known:
            raise _unknown(f"{section}.{key}", _KNOWN)


def _read(name: str, table: Mapping[str, Any], section: Callable[..., S]) -> S:
    hints = get_type_hints(section)
    return section(**{key: _convert(f"{name}.{key}", value, hints[key]) for key, value in table.items()})


def _convert(key: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise _bad(key, value, f"one of {', '.join(get_args(hint))}")
        return value
    if hint == Sparsity and value == TWO_OF_FOUR:
        return value
    wanted = int if hint is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted) or (isinstance(value, float) and math.isnan(value)):
        rule = "a whole number" if hint is int else "a number"
        raise _bad(key, value, f"{rule} or {TWO_OF_FOUR}" if hint == Sparsity else rule)
    return value if hint is int else float(value)


def _require_sense(recipe: Recipe) -> None:
    budgets = recipe.budgets
    for field in dataclasses.fields(budgets):
        value = getattr(budgets, field.name)
        if not 0 <= value < math.inf:
            raise _bad(f"budgets.{field.name}", value, "at least 0 (0 for no limit) and finite")
    if budgets.max_quality_drop >= 1:
        raise _bad("budgets.max_quality_drop", budgets.max_quality_drop, "a share below 1: 0.03 is 3 %")
    for point in recipe.points:
        quantize, prune = point.quantize, point.prune
        if point.student is not None and point.student.passes < 1:
            raise _bad("student.passes", point.student.passes, "at least 1")
        if quantize.method != "dynamic" and quantize.precision != "int8":
            raise _bad("quantize.method", quantize.method, f"dynamic with quantize.precision {quantize.precision}")
        if quantize.max_drop is not None:
            if not 0 <= quantize.max_drop < 1 or quantize.precision == "fp32":
                raise _bad("quantize.max_drop", quantize.max_drop, "a share below 1, with int8 or int4")
            if budgets.max_quality_drop and quantize.max_drop > budgets.max_quality_drop:
                raise UserError(
                    f"`quantize.max_drop` ({quantize.max_drop:g}) lets quantization alone lose more than "
                    f"`budgets.max_quality_drop` ({budgets.max_quality_drop:g}) allows in all",
                    code="contradiction",
                    hint="make one of them fit the other",
                )
        if prune is not None:
            for name, share in prune.shares.items():
                if share != TWO_OF_FOUR and not 0 <= share < 1:
                    raise _bad(f"prune.{name}", share, "the share that is removed, at least 0 and below 1")
            if not any(prune.shares.values()):
                raise UserError(
                    f"`[prune]` removes nothing, and one of {', '.join(prune.shares)} must be above 0",
                    code="bad-recipe",
                    hint="give a share, or leave the section out",
                )
            for name, least in {"rounds": 1, "recover_epochs": 0}.items():
                if getattr(prune, name) < least:
                    raise _bad(f"prune.{name}", getattr(prune, name), f"at least {least}")


def _unknown(key: str, known: Any) -> UserError:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.3)
    return UserError(
        f"`{key}` in the recipe is not a setting",
        code="unknown-setting",
        hint=f"the nearest is `{near[0]}`" if near else "see docs/compression.md",
    )


def _bad(key: str, value: Any, rule: str) -> UserError:
    return UserError(f"`{key}` in the recipe is {value!r}, and it must be {rule}", code="bad-recipe", hint="change it")
