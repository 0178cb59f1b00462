"""Results of a benchmark as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(path: Path, document: dict[str, Any]) -> None:
    """Puts the document in place whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
