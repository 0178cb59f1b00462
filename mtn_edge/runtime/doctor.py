"""Is everything here that mtn-edge needs, and what is each missing part for?"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mtn_edge import __version__

BASE = ("numpy", "onnxruntime", "prompt-toolkit", "psutil", "tokenizers", "typer")
EXTRAS = {
    "train": (
        ("duckdb", "ibis-framework", "lightning", "onnx", "sacrebleu", "safetensors", "tomli-w", "torch"),
        "preparing data, training, quantizing and running checkpoints",
    ),
    "report": (("jinja2", "matplotlib"), "HTML reports with plots"),
    "sign": (("cryptography",), "signing bundles and checking signatures"),
    "inc": (("neural-compressor",), "calibration by Neural Compressor, beside our own (quantize --method static)"),
    "spark": (("pyspark",), "preparing data on a Spark cluster"),
    "tensorrt": (("onnxscript", "torch-tensorrt"), "TensorRT engines for GPU servers"),
    "tensorrt-rtx": (("onnxscript", "torch-tensorrt-rtx"), "TensorRT engines for GPU workstations"),
}
ONNXRUNTIME_FROM, ONNXRUNTIME_BELOW = (1, 26), (1, 29)
"""The supported versions; official builds from 1.29 on report usage home."""
_INT8_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def examine() -> dict[str, Any]:
    """Versions, extras, processor and GPU; `ok` is false when bundles cannot be run as they should."""
    base = {name: _version(name) for name in BASE}
    runtime = _onnxruntime(base["onnxruntime"])
    extras: dict[str, Any] = {}
    for extra, (packages, purpose) in EXTRAS.items():
        found = {name: _version(name) for name in packages}
        extras[extra] = {"for": purpose, "installed": None not in found.values(), "packages": found}
    return {
        "ok": None not in base.values() and runtime["ok"],
        "mtn_edge": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "base": base,
        "onnxruntime": runtime,
        "extras": extras,
        "cpu": _cpu(),
        "gpus": _gpus(),
    }


def words(document: dict[str, Any]) -> str:
    """`examine`'s document for people."""
    cpu, runtime = document["cpu"], document["onnxruntime"]
    lines = [
        f"mtn-edge {document['mtn_edge']}, Python {document['python']}, {document['platform']}",
        "base: " + _packages(document["base"]),
        f"onnxruntime: {runtime['version'] or 'missing'}, supported {runtime['supported']}: "
        + ("ok" if runtime["ok"] else "NOT SUPPORTED"),
    ]
    for extra, found in document["extras"].items():
        state = "installed" if found["installed"] else f'missing (pip install "mtn-edge[{extra}]")'
        lines.append(f"[{extra}] for {found['for']}: {state}: {_packages(found['packages'])}")
    flags = "unknown" if cpu["int8_flags"] is None else ", ".join(cpu["int8_flags"]) or "none"
    lines.append(f"CPU: {cpu['model']}, {cpu['cores']} cores, instructions for int8: {flags}")
    if cpu["note"]:
        lines.append(f"     {cpu['note']}")
    lines.append("GPU: " + ("; ".join(document["gpus"]) or "none found (training and bundles run on the CPU)"))
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(found: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(missing)'}" for name, version in found.items())


def _onnxruntime(version: str | None) -> dict[str, Any]:
    low, high = (".".join(map(str, bound)) for bound in (ONNXRUNTIME_FROM, ONNXRUNTIME_BELOW))
    numbers = tuple(int(number) for number in re.findall(r"\d+", version or "")[:2])
    ok = ONNXRUNTIME_FROM <= numbers < ONNXRUNTIME_BELOW
    return {"version": version, "supported": f">={low},<{high}", "ok": ok}


def _cpu() -> dict[str, Any]:
    """The processor; flags are None where the system does not list them."""
    import psutil

    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.is_file() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    listed = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    flags = [flag for flag in _INT8_FLAGS if flag in listed[1].split()] if listed else None
    slow = flags is not None and "avx2" in flags and not any("vnni" in flag for flag in flags)
    return {
        "model": model[1] if model else platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=True),
        "int8_flags": flags,
        "note": "AVX2 without VNNI: int8 is slower here than it could be, and as exact" if slow else None,
    }


def _gpus() -> list[str]:
    """Name and memory of each NVIDIA GPU, as its own tool lists them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(  # noqa: S603 (a fixed command)
            [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]
