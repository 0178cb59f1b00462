"""Puts dex files and native libraries into an APK, aligned for phones with pages of 16 KB.

    pack_apk.py BASE ADD OUT

OUT holds the entries of BASE and the files under the folder ADD, and is to be signed then. Native libraries and what
BASE stores are stored: libraries start on 16 KB, so that the linker maps them out of the APK, all else on 4 bytes. The
times are fixed: the same input gives the same bytes.
"""

import struct
import sys
import zipfile
from pathlib import Path

PAGE = 16384
ALIGNMENT_EXTRA = 0xD935
"""The ZIP extra field in which apksigner looks for an alignment to keep; without, it moves libraries to 4 KB."""


def put(apk: zipfile.ZipFile, name: str, content: bytes, method: int) -> None:
    """Adds one entry."""
    info = zipfile.ZipInfo(name, (1981, 1, 1, 1, 1, 2))
    info.compress_type = method
    if method == zipfile.ZIP_STORED:
        unit = PAGE if name.endswith(".so") else 4
        assert apk.fp is not None
        pad = -(apk.fp.tell() + zipfile.sizeFileHeader + len(name.encode())) % unit
        while pad < 6:  # the field's own size
            pad += unit
        info.extra = struct.pack("<HHH", ALIGNMENT_EXTRA, pad - 4, unit) + bytes(pad - 6)
    apk.writestr(info, content)


def pack(base: Path, add: Path, out: Path) -> None:
    """Writes OUT."""
    with zipfile.ZipFile(base) as source, zipfile.ZipFile(out, "w") as apk:
        for info in source.infolist():
            put(apk, info.filename, source.read(info), info.compress_type)
        for path in sorted(path for path in add.rglob("*") if path.is_file()):
            method = zipfile.ZIP_STORED if path.suffix == ".so" else zipfile.ZIP_DEFLATED
            put(apk, path.relative_to(add).as_posix(), path.read_bytes(), method)


if __name__ == "__main__":
    pack(*(Path(argument) for argument in sys.argv[1:]))
