"""The runner that a phone needs: a ZIP file in the shape of an APK, with `classes.dex` and ONNX Runtime's libraries.

`android_demo/tools/build_profiler.sh` makes it; the runner's source is `android_demo/profiler`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from mtn_edge.errors import UserError

MAIN = "dev.mtnedge.profiler.Main"
DEFAULT = Path(__file__).parents[2] / "android_demo" / "build" / "profiler.jar"
"""Where the build puts it in a checkout."""
CLASSES = "classes.dex"
LIBRARIES = ("libonnxruntime.so", "libonnxruntime4j_jni.so")
LEAST_API = 24
"""Android 7: what the library asks for."""
_BUILD = "make it with android_demo/tools/build_profiler.sh of the source tree, or name one with --runner"


def unpack(runner: Path, abi: str, folder: Path) -> list[Path]:
    """Writes the files that a phone needs.

    Args:
        runner: the ZIP file.
        abi: the instruction set of the phone.
        folder: where to.

    Raises:
        UserError: there is no such file, it is something else, or it holds no library for `abi`.
    """
    if not runner.is_file():
        raise UserError(f"there is no runner `{runner}`", code="runner-missing", hint=_BUILD)
    try:
        with zipfile.ZipFile(runner) as archive:
            names = set(archive.namelist())
            members = [CLASSES, *(f"lib/{abi}/{library}" for library in LIBRARIES)]
            held = sorted({name.split("/")[1] for name in names if name.startswith("lib/") and name.count("/") == 2})
            if CLASSES not in names or not held:
                raise UserError(f"`{runner}` is no runner: it lacks {CLASSES} or lib/", code="runner-bad", hint=_BUILD)
            if not names.issuperset(members):
                raise UserError(
                    f"the phone is of the kind {abi}, and `{runner}` is for {', '.join(held)}",
                    code="runner-abi",
                    hint=f'name that kind when you build it: build_profiler.sh --abis "{" ".join((*held, abi))}"',
                )
            for member in members:
                (folder / Path(member).name).write_bytes(archive.read(member))
            return [folder / Path(member).name for member in members]
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"`{runner}` cannot be read as a ZIP file ({error})", code="runner-bad", hint=_BUILD) from error
