"""Giving freed memory back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Hands freed memory back where the C library keeps it for later: glibc does unless it is told not to."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have no such function
        if trim is not None:
            trim(0)
