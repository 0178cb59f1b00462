"""How large a bundle will be, before anything is trained: its tensors filled with noise, and quantized."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from export.compress.recipe import Point, Prune
from export.verify import ORT_OVERHEAD_BYTES, OVERHEAD_BYTES
from export.weights import graph_tensors
from mtn_edge.config import Config, ModelConfig
from mtn_edge.models.build import build, count_parameters
from mtn_edge.tokenizer import Tokenizer
from quantize.plan import Precision, apply_plan, bytes_of, uniform_plan
from quantize.prune_steps import Network, Shares, check_shares, remove


class Expected(NamedTuple):
    """What is known of a point beforehand."""

    parameters: int
    bundle: int
    """Bytes of all files, about; an n-gram as large as it may become."""


def shares_of(prune: Prune) -> Shares:
    """What goes, as `mtn-edge prune` has it."""
    return Shares(**prune.shares)


def expected(point: Point, teacher: Config, tokenizer: Tokenizer, *, lists: int, ort_format: bool) -> Expected:
    """The size of a point.

    Args:
        point: what is done.
        teacher: the settings of the teacher, which is compressed itself where there is no student.
        tokenizer: the dataset's.
        lists: bytes of what every bundle of this dataset carries beside its graphs.
        ort_format: whether the graphs will be in ONNX Runtime's own format.

    Raises:
        UserError: a share of the pruning does not suit the network.
    """
    config = teacher if point.student is None else point.student.config(teacher)
    config = replace(config, model=replace(config.model, vocab_size=len(tokenizer)))
    model, weights = config.model, dict(build(config.model).state_dict())
    if point.prune is not None:
        shares = shares_of(point.prune)
        network = Network(config, weights, tokenizer, model, model)
        check_shares(model, shares)
        network = remove(network, shares, done=1.0, examples=None)
        model, weights = network.model, network.weights
    ngram = int(config.train.ngram_mb * 1e6) if model.fusion in ("ngram", "all") else 0
    tensors = sum(weight_bytes(model, weights, point.quantize.precision).values())
    overhead = OVERHEAD_BYTES + ORT_OVERHEAD_BYTES * ort_format
    return Expected(count_parameters(model), tensors + ngram + overhead + lists)


def weight_bytes(model: ModelConfig, weights: dict[str, Tensor], precision: Precision) -> dict[str, int]:
    """Bytes of each tensor group of the graphs when all matrices have one precision."""
    rng = np.random.default_rng(0)
    noise = {name: rng.standard_normal(tensor.shape, dtype=np.float32) for name, tensor in weights.items()}
    return bytes_of(apply_plan(graph_tensors(noise, model), uniform_plan(precision)))
