"""What is lost at each border that a bundle crosses? The table of docs/deploy.md, measured on one bundle.

    python benchmarks/borders.py BUNDLE [-o FILE.json]

The borders that were crossed when the bundle was made stand in its manifest. Those from there on are crossed here:
`verify` on this machine, the copy in ONNX Runtime's own format, and the golden vectors in both.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from measuring.inputs import ROOT
from measuring.results import write

from export.checks import Check
from export.golden import Golden
from export.mobile import export_mobile
from export.parity import largest
from export.verify import verify_bundle
from mtn_edge.folders import read_manifest
from mtn_edge.profiling.machine import describe_machine, describe_versions
from mtn_edge.runtime.suggester import Suggester

BORDERS = (
    ("PyTorch = graph", "PyTorch → float32 graphs"),
    ("PyTorch ~", "PyTorch → quantized graphs"),
    ("int8 ~ fp32", "float32 → int8 graphs"),
    ("quantized", "float32 → int8 graphs"),
    ("size of the quantized", "float32 → int8 graphs"),
    ("session", "float32 → int8 graphs"),
)
"""How the names of a manifest's gates begin, and the border that each stands at."""
ORT = 1e-5
"""Largest difference of a score between the two formats."""


def main() -> None:
    """Measures, writes the JSON document, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "borders.json")
    options = parser.parse_args()
    manifest = read_manifest(options.bundle, "bundle")
    rows = [made(gate) for gate in manifest["gates"]]
    rows += [landed(check, "`.onnx` bundle → this machine") for check in verify_bundle(options.bundle)]
    with tempfile.TemporaryDirectory() as scratch:
        export_mobile(options.bundle, Path(scratch) / "ort", ort_format=True)
        rows += [landed(check, "`.ort` bundle → this machine") for check in verify_bundle(Path(scratch) / "ort")]
        rows += formats(options.bundle, Path(scratch) / "ort")
    document = {
        "machine": describe_machine(),
        "versions": describe_versions("onnxruntime"),
        "protocol": {
            "bundle": manifest["manifest_sha256"],
            "weights": manifest["sizes"]["weights"],
            "precision": manifest["quantization"]["asked"],
        },
        "goals": [{key: row[key] for key in ("name", "value", "bound", "ok")} for row in rows],
        "rows": rows,
    }
    write(options.output, document)
    print(table(rows))


def made(gate: dict[str, Any]) -> dict[str, Any]:
    """The row of a gate that the bundle passed when it was made."""
    border = next((border for begin, border in BORDERS if gate["name"].startswith(begin)), "making the bundle")
    return {"border": border, **gate}


def landed(check: Check, border: str) -> dict[str, Any]:
    """The row of a check of `verify`."""
    return {"border": border, **check.to_json()}


def formats(onnx: Path, ort: Path) -> list[dict[str, Any]]:
    """The golden key presses on both: lists that differ, and the largest difference of a score."""
    golden = Golden.load(onnx / "golden.json", read_manifest(onnx)["model"])
    suggesters = Suggester.open(onnx), Suggester.open(ort)
    differ, apart = 0, [0.0]
    for vector in golden.vectors:
        one, other = (suggester.session(vector.session).suggest(vector.typed).suggestions for suggester in suggesters)
        differ += [each.text for each in one] != [each.text for each in other]
        apart += [abs(a.score - b.score) for a, b in zip(one, other, strict=False)]
    border = "`.onnx` → `.ort`"
    return [
        {"border": border, "name": "lists that differ", "value": differ, "bound": "<= 0", "ok": differ == 0},
        {
            "border": border,
            "name": "score of a suggestion",
            "value": largest(apart),
            "bound": f"<= {ORT:g}",
            "ok": largest(apart) <= ORT,
        },
    ]


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as docs/deploy.md shows them: those with a number."""
    lines = ["| border | what is compared | measured | bound |", "|---|---|---|---|"]
    before = None
    for row in (row for row in rows if isinstance(row["value"], int | float)):
        border, before = ("" if row["border"] == before else row["border"]), row["border"]
        value = f"{row['value']:,}" if isinstance(row["value"], int) else f"{row['value']}"
        lines.append(f"| {border} | {row['name']} | {value}{'' if row['ok'] else ' (MISSED)'} | {row['bound']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
