"""What engines are made for: the fixed sizes, and for each dynamic axis the least, the usual and the greatest length.

A request beyond the greatest lengths cannot be run; TensorRT optimizes for the usual ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mtn_edge.config import ModelConfig
from mtn_edge.decoding.prefix_constraint import MOST_STATES, STATES
from mtn_edge.errors import UserError
from mtn_edge.layer_sizes import head_width, memory_heads

BEAM, STEPS, MAX_BATCH = 8, 12, 64
USUAL_QUERIES, USUAL_LETTERS, USUAL_SETTLED = 4, 8, 3


class Axis(NamedTuple):
    """Lengths of a dynamic axis."""

    least: int
    usual: int
    most: int


Shape = tuple[int | str, ...]
"""Of an input; a text names a dynamic axis."""


Profile = dict[str, list[list[int]]]
"""Each input's least, usual and greatest shape."""


class Port(NamedTuple):
    """An input of a network."""

    shape: Shape
    element: str
    """`int64`, `uint8`, `float32`, or `real`: the precision of the network."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of one pair of engines; the `sizes` section of their manifest."""

    vocab_size: int
    max_tokens: int
    max_queries: int
    d_model: int
    layers: int
    """Decoder layers with weights of their own."""
    heads: int
    """Of the cross-attention."""
    head_width: int
    memory: str
    """`all`, or `last`: what the decoder reads of a session."""
    beam: int
    steps: int
    """Tokens that a search writes at most, with `<eos>`."""
    max_batch: int

    @classmethod
    def of(cls, config: ModelConfig, *, beam: int, steps: int, max_batch: int) -> Sizes:
        """The sizes for a model.

        Raises:
            UserError: one is out of range, or the engines do not know such a network.
        """
        _require_supported(config)
        for name, value, most in (
            ("--beam", beam, min(64, config.vocab_size)),
            ("--steps", steps, config.max_tokens + 1),
            ("--max-batch", max_batch, 1024),
        ):
            if not 1 <= value <= most:
                raise UserError(
                    f"`{name}` is {value}, and it must be 1 to {most}", code="bad-setting", hint="change that setting"
                )
        return cls(
            vocab_size=config.vocab_size,
            max_tokens=config.max_tokens,
            max_queries=config.max_queries,
            d_model=config.d_model,
            layers=config.decoder_weights,
            heads=memory_heads(config),
            head_width=head_width(config),
            memory=config.memory,
            beam=beam,
            steps=steps,
            max_batch=max_batch,
        )

    @property
    def axes(self) -> dict[str, Axis]:
        """The dynamic axes: batch, queries of a session with the start query, memory, settled tokens, states."""
        slots = self.max_tokens if self.memory == "all" else 0  # a query's places in the memory
        usual = min(USUAL_QUERIES, self.max_queries + 1)
        return {
            "batch": Axis(1, max(1, self.max_batch // 4), self.max_batch),
            "queries": Axis(1, usual, self.max_queries + 1),
            "memory": Axis(
                self.max_tokens, usual * slots or self.max_tokens, (self.max_queries + 1) * slots or self.max_tokens
            ),
            "settled": Axis(1, min(USUAL_SETTLED, self.max_tokens), self.max_tokens + 1),
            "states": Axis(1, STATES + 1 + USUAL_LETTERS, MOST_STATES),
        }

    @property
    def encoder(self) -> dict[str, Port]:
        """Inputs of the encoder."""
        return {"queries": Port(("batch", "queries", self.max_tokens), "int64")}

    @property
    def search(self) -> dict[str, Port]:
        """Inputs of the search."""
        memory: int | str = "memory" if self.memory == "all" else self.max_tokens
        keys = Port(("batch", self.layers, self.heads, memory, self.head_width), "real")
        return {
            "memory_keys": keys,
            "memory_values": keys,
            "memory_bias": Port(("batch", self.heads, memory), "real"),
            "memory_state": Port(("batch", self.d_model), "real"),
            "start_tokens": Port(("batch", "settled"), "int64"),
            "next_state": Port(("batch", "states", self.vocab_size), "uint8"),
            "start_state": Port(("batch",), "int64"),
            "max_steps": Port(("batch",), "int64"),
            "floor": Port(("batch",), "float32"),
        }

    def profile(self, ports: dict[str, Port]) -> Profile:
        """Each input's least, usual and greatest shape."""
        axes = self.axes
        return {
            name: [[axes[side][edge] if isinstance(side, str) else side for side in port.shape] for edge in range(3)]
            for name, port in ports.items()
        }


def _require_supported(config: ModelConfig) -> None:
    """Engines are for the product's network: an MTN of two levels, with self-attention, that nothing is mixed into."""
    for name, value, wanted in (
        ("arch", config.arch, "mtn"),
        ("levels", config.levels, 2),
        ("mixer", config.mixer, "attention"),
        ("fusion", config.fusion, "none"),
    ):
        if value != wanted:
            raise UserError(
                f"`model.{name}` of the checkpoint is {value}, and TensorRT engines are built for {wanted}",
                code="unsupported-model",
                hint="serve its bundle with ONNX Runtime (`mtn-edge quantize`), or train a network with that setting",
            )
