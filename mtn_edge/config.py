"""The settings of a model and of its training: small dataclasses, presets, `--set`, TOML in and out."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mtn_edge.errors import UserError
from mtn_edge.layer_sizes import check_layer_sizes

Fusion = Literal["none", "ngram", "copy", "all"]
"""What is mixed into a network's distribution, see `mtn_edge.models.fusion`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and choices of a network; those that an architecture has no use for are left alone."""

    arch: Literal["mtn", "transformer", "seq2seq", "hred", "tail-lstm"] = "mtn"
    """Which network: the Multiresolution Transformer Network (arXiv 1908.10408) or one of its rivals."""
    vocab_size: int = 4096
    """Tokens; always taken from the dataset's tokenizer."""
    d_model: int = 128
    """Width of every vector between layers; a multiple of `heads`."""
    embedding_rank: int = 0
    """Width of the embedding table (MTN, flat transformer), which maps join to `d_model`; 0 for `d_model` itself."""
    heads: int = 4
    """Attention heads of every attention, each `d_model` / `heads` wide; a pruned network has fewer of that width."""
    ffn: int = 512
    """Units of every feed-forward layer."""
    query_layers: int = 1
    """Layers of the query encoder (over the tokens of one query)."""
    session_layers: int = 1
    """Layers of the masked session encoder (over the queries of a session)."""
    decoder_layers: int = 2
    """Layers of the decoder."""
    units: int = 256
    """State of a recurrent layer (seq2seq, hred, tail-lstm)."""
    levels: Literal[2, 3] = 2
    """Levels of the MTN: tokens and queries, or tokens, queries and the sessions of a user."""
    history_layers: int = 1
    """Layers of the masked encoder over a user's earlier sessions (three levels)."""
    max_sessions: int = 16
    """Earlier sessions of a user that it sees."""
    mixer: Literal["attention", "ssru"] = "attention"
    """How the MTN's decoder mixes the tokens written so far: self-attention, or a simple recurrent unit."""
    share_decoder: bool = False
    """One set of weights for all decoder layers of the MTN."""
    max_session_tokens: int = 256
    """Last tokens of the concatenated session that the flat transformer reads."""
    max_tokens: int = 32
    """Tokens of one query that are read (its last ones) and written (its first ones)."""
    max_queries: int = 32
    """Earlier queries that the session encoder sees."""
    projection: Literal["position", "full"] = "position"
    """Query projection: one weight for each token position, or a full (max_tokens x d_model) x d_model matrix."""
    refinement: Literal["sum", "encoder"] = "encoder"
    """How the session's state reaches a query's tokens: added to what the query encoder made of them, as the paper
    writes it, and then read once more by the same layers (`encoder`), or not."""
    memory: Literal["all", "last"] = "all"
    """What the decoder attends to: the refined tokens of all queries so far, or of the last one only."""
    fusion: Fusion = "none"
    """What is mixed into the network's distribution by a learned gate: an n-gram of the training queries, what the
    session's queries offer to copy, both (`all`), or nothing."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before each sub-layer, or after its residual sum as the paper writes it."""
    dropout: float = 0.1
    """Probability of dropping a sub-layer's output unit in training; 0.3 for a few thousand sessions."""
    memory_heads: int = 0
    """Heads of every cross-attention of a pruned network; 0 for `heads`."""
    layer_heads: tuple[int, ...] = ()
    """Heads of each layer's self-attention in a pruned network, those of the query, session, history and decoder layers
    in turn; empty for `heads` everywhere."""
    layer_ffn: tuple[int, ...] = ()
    """Units of each layer's feed-forward in a pruned network, in that order; empty for `ffn` everywhere."""

    @property
    def decoder_weights(self) -> int:
        """How many decoder layers have weights of their own."""
        return 1 if self.arch == "mtn" and self.share_decoder else self.decoder_layers


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained."""

    epochs: int = 24
    """Passes over the training sessions at most; early stopping may end before."""
    time_budget: float = 0.0
    """Seconds after which training ends with the best weights so far, resumed parts together; 0 for no limit."""
    batch_queries: int = 128
    """Queries in a batch of whole sessions, about."""
    batch_tokens: int = 0
    """Tokens read and written in a batch at most, with padding, in place of `batch_queries`; 0 leaves it to that."""
    accumulate: int = 1
    """Batches whose gradients make one step of the optimizer."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic: float32, or bfloat16 where that is safe; `auto` takes bfloat16 on CUDA."""
    compile: bool = False
    """Compile the loss with `torch.compile`: minutes at the start, faster steps on a GPU."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon for the matrices of the layers and AdamW for the rest, or AdamW for all."""
    learning_rate: float = 3e-3
    """Peak of the schedule: linear warm-up, then a cosine down to a tenth."""
    warmup_steps: int = 200
    """Steps of the warm-up."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices."""
    label_smoothing: float = 0.1
    """Probability mass spread evenly over the vocabulary in the training loss."""
    ngram_mb: float = 1.0
    """Size of the n-gram that is mixed in, at most, in units of 1,000,000 bytes."""
    bpe_dropout: float = 0.0
    """Probability of leaving out a merge when a training query is cut into tokens anew in each epoch; 0.1 is usual."""
    average: float = 0.0
    """Decay of the running mean of the weights, which is validated and published in their place; 0 for none."""
    keep_zeros: bool = False
    """Weights of matrices that are zero when training begins stay zero; set in what `prune --sparsity` wrote."""
    clip_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    validate_every: int = 200
    """Steps between validations, each of which also saves the training state."""
    patience: int = 5
    """Validations without a better result after which training stops."""
    stop_on: Literal["loss", "mrr"] = "loss"
    """The result: the validation loss, or MRR@10 of suggestions and completions as the beam search finds them."""
    valid_queries: int = 4000
    """Queries of the validation split that are scored, at most."""
    mrr_queries: int = 100
    """Queries of the validation split that MRR@10 is measured on, each with nothing typed and half typed."""
    seed: int = 1
    """Seed of weights, order and dropout."""


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """What a network learns from a teacher (docs/compression.md)."""

    truth: float = 0.1
    """Weight of the cross-entropy to the true next token; the teacher's distribution has the rest of 1."""
    temperature: float = 1.0
    """Both distributions are softened by it before they are compared; 1 leaves them as they are."""
    states: float = 0.0
    """Weight of the distance (1 - cosine) between the decoder states of student and teacher, both MTNs."""
    sessions: float = 0.0
    """Weight of the distance between their session vectors."""
    answers: float = 0.0
    """Share of the training sessions that are learnt once more with the teacher's own answers as targets."""
    beam: int = 4
    """Hypotheses of the search for those answers."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that `train` needs to know; written to `config.toml` resolved."""

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    distill: DistillConfig | None = None
    """Of `distill` alone; a setting of the section makes it."""


def preset(name: str, arch: str = "mtn") -> Config:
    """The settings of a preset: `tiny` (phones), `small`, `base` (servers and teachers).

    Args:
        name: the preset.
        arch: the network; a rival gets the size at which it has as many parameters as the MTN of that preset, within
            2 %, with 4,096 tokens (`models.build.match_parameters` finds it for other vocabularies).

    Raises:
        UserError: no such preset.
    """
    match name:
        case "tiny":
            config = Config()
        case "small":
            config = Config(
                model=ModelConfig(d_model=256, ffn=1024, query_layers=3, session_layers=2, decoder_layers=2),
                train=TrainConfig(learning_rate=1e-3, warmup_steps=400),
            )
        case "base":
            config = Config(
                model=ModelConfig(d_model=512, heads=8, ffn=2048, query_layers=6, session_layers=2, decoder_layers=4),
                train=TrainConfig(learning_rate=5e-4, warmup_steps=1000),
            )
        case _:
            raise UserError(
                f"`--preset {name}` is unknown", code="unknown-preset", hint="take one of tiny, small, base"
            )
    sizes = [f"model.{key}={size}" for key, size in _SIZES[name].get(arch, {}).items()]
    return override(config, [f"model.arch={arch}", *sizes])


_SIZES: dict[str, dict[str, dict[str, int]]] = {
    "tiny": {
        "transformer": {"ffn": 488},
        "seq2seq": {"units": 272},
        "hred": {"units": 232},
        "tail-lstm": {"d_model": 64, "units": 224},
    },
    "small": {
        "transformer": {"ffn": 1012},
        "seq2seq": {"units": 704},
        "hred": {"units": 612},
        "tail-lstm": {"d_model": 64, "units": 864},
    },
    "base": {
        "transformer": {"ffn": 2040},
        "seq2seq": {"units": 1892},
        "hred": {"units": 1656},
        "tail-lstm": {"d_model": 64, "units": 2808},
    },
}
"""Sizes of the rivals in each preset, where they differ from the MTN's."""


def load_config(path: Path, base: Config) -> Config:
    """`base` with the settings of a TOML file over it.

    Raises:
        UserError: the file cannot be read, is no TOML, or holds an unknown key or a value of the wrong type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"`{path}` cannot be read ({error.strerror})", code="missing", hint="name a TOML file"
        ) from error
    except ValueError as error:
        raise UserError(f"`{path}` is not valid TOML ({error})", code="bad-config", hint="mend the file") from error
    for section, values in document.items():
        if not isinstance(values, dict):
            raise UserError(
                f"`{section}` in `{path}` stands outside a section",
                code="bad-config",
                hint="write it under [model], [train] or [distill]",
            )
        for key, value in values.items():
            base = _set(base, f"{section}.{key}", value)
    return base


def override(config: Config, settings: list[str]) -> Config:
    """`config` with `section.key=value` settings of the command line over it.

    Raises:
        UserError: a setting is malformed, its key unknown, or its value of the wrong type.
    """
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign:
            raise UserError(f"`--set {setting}` has no `=`", code="bad-setting", hint="write --set section.key=value")
        config = _set(config, key.strip(), text.strip())
    return config


def check(config: Config) -> Config:
    """Returns `config` when its values fit together.

    Raises:
        UserError: a value is out of range; the sentence names it.
    """
    model, train = config.model, config.train
    if config.distill is not None:
        _check_distill(config.distill, model, train)
    positive = {
        f"model.{name}": getattr(model, name)
        for name in (
            "vocab_size",
            "d_model",
            "heads",
            "ffn",
            "query_layers",
            "session_layers",
            "decoder_layers",
            "units",
            "history_layers",
            "max_sessions",
            "max_session_tokens",
            "max_tokens",
            "max_queries",
        )
    } | {
        f"train.{name}": getattr(train, name)
        for name in (
            "epochs",
            "batch_queries",
            "accumulate",
            "validate_every",
            "patience",
            "valid_queries",
            "mrr_queries",
        )
    }
    for name, value in positive.items():
        if value < 1:
            raise _bad_value(name, value, "at least 1")
    check_layer_sizes(model)
    _check_rank(model)
    if model.d_model % model.heads:
        raise _bad_value("model.d_model", model.d_model, f"a multiple of model.heads ({model.heads})")
    if not 0 < train.ngram_mb < math.inf:
        raise _bad_value("train.ngram_mb", train.ngram_mb, "above 0 and finite")
    if not 0 <= train.seed < 1 << 32:
        raise _bad_value("train.seed", train.seed, "at least 0 and below 4294967296")
    if model.fusion in ("ngram", "all") and model.vocab_size > 1 << 16:
        raise _bad_value("model.vocab_size", model.vocab_size, "at most 65536 with an n-gram mixed in")
    if model.share_decoder and model.norm == "post":
        raise _bad_value("model.share_decoder", True, "false with model.norm post, whose last layer is scaled apart")
    if model.max_queries < 2:
        raise _bad_value("model.max_queries", model.max_queries, "at least 2")
    rates = {"model.dropout": model.dropout} | {
        f"train.{name}": getattr(train, name) for name in ("label_smoothing", "bpe_dropout", "average")
    }
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise _bad_value(name, rate, "at least 0 and below 1")
    for name, rate in {"train.learning_rate": train.learning_rate, "train.clip_norm": train.clip_norm}.items():
        if not rate > 0:
            raise _bad_value(name, rate, "above 0")
    for name in ("warmup_steps", "weight_decay", "batch_tokens", "time_budget"):
        if not getattr(train, name) >= 0:
            raise _bad_value(f"train.{name}", getattr(train, name), "at least 0")
    for name in ("learning_rate", "clip_norm", "weight_decay", "time_budget"):
        if math.isinf(getattr(train, name)):
            raise _bad_value(f"train.{name}", getattr(train, name), "finite")
    return config


def _check_rank(model: ModelConfig) -> None:
    if model.embedding_rank and model.arch not in ("mtn", "transformer"):
        rule = f"0 with model.arch {model.arch}: an MTN and a flat transformer alone can have another"
        raise _bad_value("model.embedding_rank", model.embedding_rank, rule)
    if not 0 <= model.embedding_rank <= model.d_model:
        raise _bad_value("model.embedding_rank", model.embedding_rank, f"from 0 to model.d_model ({model.d_model})")


def _check_distill(distill: DistillConfig, model: ModelConfig, train: TrainConfig) -> None:
    for name in ("truth", "answers"):
        if not 0 <= getattr(distill, name) <= 1:
            raise _bad_value(f"distill.{name}", getattr(distill, name), "from 0 to 1")
    for name in ("states", "sessions"):
        weight = getattr(distill, name)
        if not 0 <= weight < math.inf:
            raise _bad_value(f"distill.{name}", weight, "at least 0 and finite")
        if weight and model.arch != "mtn":
            raise _bad_value(f"distill.{name}", weight, f"0 with model.arch {model.arch}: only MTNs have it")
    if not 0 < distill.temperature < math.inf:
        raise _bad_value("distill.temperature", distill.temperature, "above 0 and finite")
    if distill.beam < 1:
        raise _bad_value("distill.beam", distill.beam, "at least 1")
    if train.compile:
        raise _bad_value("train.compile", train.compile, "false with a teacher, whose outputs are read from a file")
    if train.bpe_dropout:
        raise _bad_value(
            "train.bpe_dropout", train.bpe_dropout, "0 with a teacher, who is asked once about each query as it is cut"
        )


def to_toml(config: Config) -> str:
    """The resolved settings as TOML, every key present."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        if getattr(config, section.name) is None:
            continue
        lines.append(f"[{section.name}]")
        for key, value in dataclasses.asdict(getattr(config, section.name)).items():
            lines.append(f"{key} = {_toml(value)}")
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value).replace("'", '"')


def _set(config: Config, key: str, value: Any) -> Config:
    section_name, _, name = key.partition(".")
    if section_name == "distill" and config.distill is None:
        config = dataclasses.replace(config, distill=DistillConfig())
    sections = [s.name for s in dataclasses.fields(config) if getattr(config, s.name) is not None]
    known = [f"{section}.{f.name}" for section in sections for f in dataclasses.fields(getattr(config, section))]
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
        raise UserError(
            f"`{key}` is not a setting",
            code="unknown-setting",
            hint=f"the nearest is `{near[0]}`" if near else "see docs/settings.md",
        )
    section = getattr(config, section_name)
    hint = get_type_hints(type(section))[name]
    return dataclasses.replace(
        config, **{section_name: dataclasses.replace(section, **{name: _convert(key, value, hint)})}
    )


def _convert(key: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        choices = {str(choice): choice for choice in get_args(hint)}
        if str(value) not in choices:
            raise _bad_value(key, value, f"one of {', '.join(choices)}")
        return choices[str(value)]
    if hint is bool:
        if str(value).lower() not in ("true", "false"):
            raise _bad_value(key, value, "true or false")
        return str(value).lower() == "true"
    if get_origin(hint) is tuple:
        parts = value if isinstance(value, list) else [part for part in str(value).split(",") if part.strip()]
        return tuple(_convert(key, part, get_args(hint)[0]) for part in parts)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _bad_value(key, value, _RULES[hint])
    try:
        if hint is int and isinstance(value, float):
            raise ValueError(value)
        return hint(value)
    except ValueError as error:
        raise _bad_value(key, value, _RULES[hint]) from error


_RULES: dict[type, str] = {int: "a whole number", float: "a number", str: "a text"}


def _bad_value(key: str, value: Any, rule: str) -> UserError:
    return UserError(f"`{key}` is {value!r}, and it must be {rule}", code="bad-setting", hint="change that setting")
