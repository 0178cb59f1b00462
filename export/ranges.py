"""Fixed ranges of the inputs of a checkpoint's int8 products: every calibrator tried, the best one taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from export.sessions import batches_of, read_sessions
from export.simulation import TABLE, simulated
from export.weights import graph_name, table_factor
from mtn_edge.console import say
from mtn_edge.data.batches import Batch
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.training.checkpoint import Checkpoint
from quantize import inc
from quantize.int8 import Activation
from quantize.plan import uniform_plan
from quantize.qat import require_linear
from quantize.sensitivity import mean_kl
from quantize.static import CALIBRATORS, calibrated, observe

SESSIONS = 1000
"""Training sessions that are observed, at most."""
MIN_SESSIONS = 32
"""Fewer show too little of what a device will meet."""
LIBRARY = "neural-compressor"
"""How its calibrators are called, with their algorithm."""


def find_ranges(
    checkpoint: Checkpoint, data: Dataset, valid: Sequence[Batch]
) -> tuple[dict[str, Activation], dict[str, Any]]:
    """Calibrates on training sessions, and compares the calibrators on validation sessions.

    Args:
        checkpoint: the network.
        data: its sessions.
        valid: batches of validation sessions.

    Returns:
        How the inputs of each matrix are quantized, and figures for the manifest.

    Raises:
        UserError: the network is recurrent, or there are too few sessions.
    """
    require_linear(checkpoint.config, "static")
    sessions = read_sessions(data, "train", SESSIONS)
    if len(sessions) < MIN_SESSIONS:
        raise UserError(
            f"`--method static` is calibrated on {MIN_SESSIONS} training sessions at least, and `{data.path}` has "
            f"{len(sessions)}",
            code="few-sessions",
            hint="prepare a larger log, or take --method dynamic",
        )
    found = _candidates(checkpoint, batches_of(sessions, checkpoint))
    model, config, plan = checkpoint.model, checkpoint.config.model, uniform_plan("int8")
    costs = {name: mean_kl(model, simulated(model, config, plan, ranges), valid) for name, ranges in found.items()}
    best = min(costs, key=lambda name: costs[name])
    say("; ".join(f"{name}: KL {cost:.3g}" for name, cost in costs.items()) + f"; taking {best}")
    facts = {
        "calibrator": best,
        "calibrators": {name: float(f"{cost:.4g}") for name, cost in costs.items()},
        "sessions": len(sessions),
    }
    return found[best], {"calibration": facts}


def _candidates(checkpoint: Checkpoint, batches: Sequence[Batch]) -> dict[str, dict[str, Activation]]:
    """The ranges of each calibrator, by the matrices of the graphs."""
    model, config = checkpoint.model, checkpoint.config.model
    named = {
        module: graph_name(f"{name}.weight", config)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
    say(f"observing the products on {len(batches)} batches of training sessions")
    seen = observe(model, batches, named, TABLE)
    found: dict[str, Callable[[], Mapping[str, Activation]]] = {
        name: lambda name=name: calibrated(seen, name)  # type: ignore[misc]
        for name in CALIBRATORS
    }
    if inc.is_installed():
        for algorithm in inc.ALGORITHMS:
            found[f"{LIBRARY} {algorithm}"] = lambda algorithm=algorithm: inc.calibrate(  # type: ignore[misc]
                model, batches, named, TABLE, algorithm
            )
    else:
        say(f'{LIBRARY} is not installed and not compared; `pip install "mtn-edge[inc]"` adds it')
    return {name: _for_graphs(make(), table_factor(config)) for name, make in found.items()}


def _for_graphs(ranges: Mapping[str, Activation], factor: float) -> dict[str, Activation]:
    """The table meets smaller states in the graphs than in the network."""
    table = ranges[TABLE]
    return {**ranges, TABLE: replace(table, scale=table.scale / factor)}
