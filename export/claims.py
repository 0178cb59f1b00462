"""What a bundle's manifest claims of its graphs, read before anything is held against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from export.reading import Reader, WrongValueError, by_name, each, field, flag, one_of, text, whole
from mtn_edge.errors import UserError
from mtn_edge.runtime.bundle import Bundle
from quantize.plan import Precision

_MOST = 1 << 40
"""No size and no number of nodes is larger."""
_COUNT = whole(0, _MOST)
_PRECISIONS = ("fp32", "int8", "int4")


@dataclass(frozen=True)
class Claims:
    """Of a manifest, what the checks of `verify` are about."""

    operators: dict[str, dict[str, int]]
    """How many nodes of each kind each graph has."""
    weights: int
    """Bytes of the weights in both graphs, the table counted once."""
    precision: dict[str, str]
    """Of each group of weights."""
    asked: Precision
    """What the bundle was quantized to."""
    mixed: bool
    """Whether some groups were left in a higher precision."""
    failed_gates: int
    """Of those that were to hold when it was made."""

    @property
    def is_quantized(self) -> bool:
        """Whether some weights are integers."""
        return set(self.precision.values()) != {"fp32"}

    @classmethod
    def of(cls, bundle: Bundle, graphs: list[str]) -> Claims:
        """Reads them.

        Args:
            bundle: the bundle.
            graphs: names of the graphs that it must speak of.

        Raises:
            UserError: one is missing, or is not what it must be.
        """
        manifest = bundle.manifest
        try:
            return cls(
                operators=field(manifest, "operators", _of_each(graphs, by_name(_COUNT))),
                weights=field(manifest, "sizes", lambda sizes: field(sizes, "weights", _COUNT)),
                precision=field(manifest, "precision", by_name(one_of(*_PRECISIONS))),
                asked=cast("Precision", field(manifest, "quantization", _asked)),
                mixed=field(manifest, "quantization", lambda made: field(made, "mixed", flag)),
                failed_gates=field(manifest, "gates", each(_gate)).count(False),
            )
        except WrongValueError as error:
            raise UserError(
                f"the manifest of `{bundle.path}` cannot be checked ({error})",
                code="bad-manifest",
                hint="make the bundle again",
            ) from error


def _of_each(names: list[str], read: Reader[dict[str, int]]) -> Reader[dict[str, dict[str, int]]]:
    return lambda section: {name: field(section, name, read) for name in names}


def _asked(section: Any) -> str:
    return field(section, "asked", one_of(*_PRECISIONS))


def _gate(value: Any) -> bool:
    field(value, "name", text)
    return field(value, "ok", flag)
