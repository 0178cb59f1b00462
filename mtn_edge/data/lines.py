"""Text files to numbered lines in Arrow batches: plain or gzip, LF or CRLF, UTF-8 with a declared fallback.

A line that is not UTF-8 is read as Windows-1252 (bytes without a letter there as Latin-1), and its number is kept.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from mtn_edge.errors import UserError

CHUNK_BYTES = 8 << 20
MAX_LINE_BYTES = 64 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Lines:
    """Some whole lines of a file, one after another."""

    first: int
    """Number of the first of them, from 1."""
    text: Any
    """`pyarrow.StringArray` without line ends."""
    fallback: list[int] = field(default_factory=list)
    """Numbers of the lines that were not UTF-8."""


def read_lines(path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Lines]:
    """Yields the lines of a text file, plain or gzip, in batches of about `chunk_bytes`.

    Raises:
        UserError: the file is missing, unreadable, empty, cut short, or no text.
    """
    first = 1
    try:
        for block in _blocks(path, chunk_bytes):
            lines = _to_lines(block, first)
            yield lines
            first += len(lines.text)
    except OSError as error:  # gzip.BadGzipFile is one
        raise _unreadable(path, error.strerror or str(error)) from error
    except (EOFError, zlib.error) as error:
        raise _unreadable(path, f"the gzip file is cut or damaged: {error}") from error
    if first == 1:
        raise UserError(f"`{path}` is empty", code="empty-log", hint="name a log that holds queries")


def _blocks(path: Path, chunk_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines, each ending in a line feed."""
    if path.is_dir():
        raise UserError(f"`{path}` is a folder, not a log file", code="wrong-kind", hint="name the files in it")
    with path.open("rb") as plain:
        is_gzip = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        with gzip.open(plain) if is_gzip else nullcontext(plain) as source:
            yield from _whole_lines(path, source, chunk_bytes)


def _whole_lines(path: Path, source: BufferedReader | gzip.GzipFile, chunk_bytes: int) -> Iterator[bytes]:
    rest = b""
    at_start = one_line = True
    while chunk := source.read(chunk_bytes):
        if at_start:
            chunk = _check_text(path, chunk)
            at_start = False
        # `rest` holds no line feed: look in the new bytes only.
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            rest += chunk
            if len(rest) > MAX_LINE_BYTES:
                raise _not_text(path, f"it holds a line longer than {MAX_LINE_BYTES:,} bytes")
            continue
        one_line = False
        yield rest + chunk[:end]
        rest = chunk[end:]
    if one_line and b"\r" in rest.rstrip(b"\r"):
        raise _not_text(path, "its lines end in carriage returns alone", hint="end them with line feeds")
    if rest:
        yield rest + b"\n"


def _check_text(path: Path, head: bytes) -> bytes:
    if head.startswith(_UTF16_BOMS):
        raise _not_text(path, "it is UTF-16", hint="convert it to UTF-8")
    if b"\0" in head[: 1 << 16]:
        raise _not_text(path, "it holds zero bytes")
    return head.removeprefix(_UTF8_BOM)


def _to_lines(block: bytes, first: int) -> Lines:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fallback: list[int] = []
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        rows = block[:-1].split(b"\n")
        for index, row in enumerate(rows):
            try:
                row.decode("utf-8")
            except UnicodeDecodeError:
                rows[index] = _decode(row).encode("utf-8")
                fallback.append(first + index)
        block = b"\n".join(rows) + b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 0x0A) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    whole = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block))
    return Lines(first, pc.ascii_rtrim(whole, characters="\r\n"), fallback)


def _decode(row: bytes) -> str:
    return "".join(
        bytes([byte]).decode("cp1252" if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else "latin-1") for byte in row
    )


def _unreadable(path: Path, reason: str) -> UserError:
    return UserError(f"`{path}` cannot be read ({reason})", code="unreadable", hint="name a log file that can be read")


def _not_text(path: Path, reason: str, hint: str = "name a plain or gzip text file") -> UserError:
    return UserError(f"`{path}` is not a text log: {reason}", code="wrong-format", hint=hint)
