"""The machine and the versions behind a measurement."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import psutil


def describe_machine() -> dict[str, str | int | float]:
    """Processor, cores that this process may use, memory (GB) and system."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def describe_versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the distributions that matter to speed, with those of `packages`."""
    names = ("mtn-edge", "onnxruntime", "numpy", "tokenizers", *packages)
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
