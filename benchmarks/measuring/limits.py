"""What no search on this machine can beat: reading the decoder at each step, and its integer products.

Both rates are measured here and now on one core, so that a busy or slow machine has lower limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from peers.python_beam import open_graph

from export.graph_builder import GraphBuilder
from quantize.plan import Weights

FAR_ABOVE_CACHES = 256 * 2**20
"""Bytes of a buffer that no cache holds."""
SIDE, ROWS = 1024, 256
"""Of the large integer product: [rows, side] times [side, side]."""
REPEATS = 9


@dataclass(frozen=True)
class Limits:
    """The decoder's size and the machine's rates."""

    decoder_bytes: int
    """Weights that each step reads: the decoder's layers without cross-attention keys and values, the output table."""
    read_gb_s: float
    """One core reading a buffer of the decoder's size again and again: from whichever cache or memory holds it."""
    memory_gb_s: float
    """One core reading a buffer far above the caches."""
    int8_gmac_s: float
    """10^9 multiply-adds a second of a large MatMulInteger on one core."""

    def memory_ms(self, steps: float) -> float:
        """Milliseconds to read the decoder `steps` times."""
        return steps * self.decoder_bytes / self.read_gb_s / 1e6

    def arithmetic_ms(self, multiplications: float) -> float:
        """Milliseconds of so many int8 multiply-adds."""
        return multiplications / self.int8_gmac_s / 1e6

    def to_json(self) -> dict[str, Any]:
        """The rates and sizes by name."""
        return asdict(self)


def measure_limits(weights: Weights) -> Limits:
    """The size from the graphs' int8 weights, rates from this machine."""
    read = [weights[name] for name in weights if name.startswith(("decoder_layers.", "embedding"))]
    size = sum(each.nbytes for each in read)
    return Limits(
        decoder_bytes=size,
        read_gb_s=_read_rate(size),
        memory_gb_s=_read_rate(FAR_ABOVE_CACHES),
        int8_gmac_s=_int8_rate(),
    )


def _read_rate(size: int) -> float:
    """10^9 bytes a second of the quickest of several readings of `size` bytes."""
    buffer = np.arange(size // 8, dtype=np.int64)
    passes = max(1, 4 * 2**20 // size)
    return passes * buffer.nbytes / _quickest(lambda: [buffer.sum() for _ in range(passes)]) / 1e9


def _int8_rate() -> float:
    random = np.random.default_rng(1)
    graph = GraphBuilder("product")
    matrix = graph.constant(random.integers(-127, 128, (SIDE, SIDE), dtype=np.int8))
    product = graph.node("MatMulInteger", graph.input("x", onnx.TensorProto.UINT8, [ROWS, SIDE]), matrix)
    graph.output(product, "y", onnx.TensorProto.INT32, [ROWS, SIDE])
    session = open_graph(graph.model())
    x = random.integers(0, 256, (ROWS, SIDE), dtype=np.uint8)
    return ROWS * SIDE * SIDE / _quickest(lambda: session.run(None, {"x": x})) / 1e9


def _quickest(call: Callable[[], object]) -> float:
    """Seconds of the quickest of several calls after a first one: others' work on the machine only adds."""
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)
