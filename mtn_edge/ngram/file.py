"""An n-gram on disk: one safetensors file, bound to the tokenizer whose numbers it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtn_edge.errors import UserError
from mtn_edge.folders import sha256_file
from mtn_edge.ngram.counting import ORDER
from mtn_edge.ngram.model import CODES, Level, NGram

NAME = "ngram.safetensors"
FORMAT_VERSION = 1
_ABOUT = "about"
_UNIGRAM = "unigram"
_TYPES = {"sizes": ("uint8", "uint16"), "tokens": ("uint16",), "codes": ("uint8",), "values": ("float32",)}

Arrays = dict[str, NDArray[Any]]


def save(model: NGram, file: Path, tokenizer: Path) -> None:
    """Writes an n-gram; the same n-gram gives the same bytes.

    Args:
        model: the n-gram.
        file: where to write.
        tokenizer: the `tokenizer.json` in whose tokens it was counted.
    """
    from safetensors.numpy import save as to_bytes

    arrays: Arrays = {_UNIGRAM: model.unigram}
    for order, level in enumerate(model.levels, start=2):
        arrays |= {f"{name}.{order}": part for name, part in level._asdict().items()}
    about = {
        "format_version": FORMAT_VERSION,
        "tokenizer_sha256": sha256_file(tokenizer),
        "vocab_size": len(model.unigram),
        "order": len(model.levels) + 1,
    }
    head = {_ABOUT: json.dumps(about)}  # one entry: the library writes several in any order
    file.write_bytes(to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()}, head))


def load(file: Path, tokenizer: Path) -> NGram:
    """Opens an n-gram.

    Args:
        file: what `save` wrote.
        tokenizer: the `tokenizer.json` that its numbers must belong to.

    Raises:
        UserError: it is missing or damaged, of a newer version, or of another tokenizer.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            about = json.loads((opened.metadata() or {})[_ABOUT])
            version = int(about["format_version"])
            if version > FORMAT_VERSION:
                raise UserError(
                    f"`{file}` has format version {version}, newer than {FORMAT_VERSION}, the newest that is read here",
                    code="newer-version",
                    hint="upgrade mtn-edge",
                )
            if about["tokenizer_sha256"] != sha256_file(tokenizer):
                raise UserError(
                    f"`{file}` was counted in the tokens of another tokenizer than `{tokenizer}`",
                    code="misfit",
                    hint="build the n-gram from a dataset with this tokenizer",
                )
            arrays: Arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            return _model(arrays, int(about["vocab_size"]), int(about["order"]))
    except (OSError, SafetensorError, LookupError, ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"`{file}` is no readable n-gram ({error})", code="damaged", hint="copy it again or build it again"
        ) from error


def _model(arrays: Arrays, vocab_size: int, order: int) -> NGram:
    """The n-gram of some arrays.

    Raises:
        ValueError: they are not what an n-gram consists of.
        KeyError: one is missing.
    """
    if not 2 <= order <= ORDER:
        raise ValueError(f"its order is {order}")
    unigram = _array(arrays, _UNIGRAM, ("float32",))
    if len(unigram) != vocab_size or not _is_distribution(unigram):
        raise ValueError("its single tokens are no distribution")
    levels = []
    rows = vocab_size
    for number in range(2, order + 1):
        level = Level(**{name: _array(arrays, f"{name}.{number}", types) for name, types in _TYPES.items()})
        if not _is_sound(level, rows, vocab_size):
            raise ValueError(f"its grams of order {number} contradict one another")
        levels.append(level)
        rows = len(level.tokens)
    return NGram(unigram, tuple(levels))


def _array(arrays: Arrays, name: str, types: tuple[str, ...]) -> NDArray[Any]:
    array = arrays[name]
    if array.dtype.name not in types or array.ndim != 1:
        raise ValueError(f"its `{name}` is {array.dtype} of {array.ndim} dimensions")
    return array


def _is_distribution(values: NDArray[np.float32]) -> bool:
    return bool((values >= 0).all()) and abs(float(values.sum(dtype=np.float64)) - 1) < 1e-3


def _is_sound(level: Level, rows: int, vocab_size: int) -> bool:
    """Whether the parts of a level belong together and no row gives away more than all."""
    sizes, tokens, codes, values = level
    if len(sizes) != rows or not int(sizes.sum(dtype=np.int64)) == len(tokens) == len(codes) or len(values) != CODES:
        return False
    if not ((values >= 0) & (values <= 1)).all() or (tokens >= vocab_size).any():
        return False
    row = np.repeat(np.arange(rows), sizes)
    ascending = np.diff(row * vocab_size + tokens) > 0
    return bool(ascending.all()) and bool((np.bincount(row, values[codes], rows) <= 1).all())


def facts(model: NGram) -> dict[str, Any]:
    """Contexts, entries, entries of the longest row, and bytes by order, for manifests and for `inspect`."""
    single = {"order": 1, "contexts": 1, "entries": len(model.unigram), "longest": len(model.unigram)}
    orders = [single | {"bytes": model.unigram.nbytes}]
    orders += [
        {
            "order": order,
            "contexts": int(np.count_nonzero(level.sizes)),
            "entries": len(level.tokens),
            "longest": int(level.sizes.max(initial=0)),
            "bytes": sum(part.nbytes for part in level),
        }
        for order, level in enumerate(model.levels, start=2)
    ]
    return {"bytes": model.nbytes, "orders": orders}
