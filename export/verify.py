"""`verify`: a bundle proves itself wherever it lands, with the base install alone (neither PyTorch nor onnx).

It is whole, this ONNX Runtime opens it, its graphs have the contracted inputs and outputs and the integer products
that it claims, it computes what PyTorch computed where it was made, it answers its golden vectors, and it reads the
session. Each is a check with its value and its bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export import golden, parity
from export.checks import Check, at_most, equal
from export.contract import contract
from export.operators import operator_counter
from mtn_edge.errors import UserError
from mtn_edge.runtime.bundle import Bundle
from mtn_edge.runtime.engine import graph_file
from mtn_edge.runtime.suggester import Suggester

ORT_RANGE = ((1, 26), (1, 29))
"""Oldest ONNX Runtime that runs bundles, and the first that does not (it reports usage home)."""
OVERHEAD_BYTES = 32 << 10
"""What nodes, names and small constants of both graphs may weigh beside the weights."""
ORT_OVERHEAD_BYTES = 96 << 10
"""What they may weigh more in ONNX Runtime's own format."""
PRODUCT_BYTES = 512
"""The same for each product that has nodes and constants beside its one node and its matrix."""
MAX_SIZE = 1.05
"""Largest size of both graphs in weights, the table counted once."""
INTEGER_OPERATORS = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits")
"""Products of quantized matrices: int8, int8 with fixed ranges of the inputs, int4."""
_SECTIONS = {"precision": dict, "quantization": dict, "sizes": dict, "operators": dict, "gates": list}
"""What the checks read in the manifest, besides what every bundle needs to run."""


def verify_bundle(path: Path, *, key: Path | None = None) -> list[Check]:
    """Runs all checks.

    Args:
        path: the bundle.
        key: file of the public key that it must be signed with; None asks for no signature.

    Raises:
        UserError: `path` is no bundle, one of its files is missing, damaged or changed (it is named), or it is not
            signed with the key.
    """
    bundle = Bundle.open(path, key=key)
    for section, kind in _SECTIONS.items():
        if not isinstance(bundle.manifest.get(section), kind):
            raise UserError(
                f"the manifest of `{path}` has no section `{section}`",
                code="bad-manifest",
                hint="make the bundle again",
            )
    try:
        return _checks(bundle)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise UserError(
            f"what the manifest or the golden vectors of `{path}` say cannot be checked ({error!r})",
            code="bad-manifest",
            hint="make the bundle again",
        ) from error


def _checks(bundle: Bundle) -> list[Check]:
    checks = [Check("manifest and sha256 of every file", True, f"{len(bundle.manifest['files'])} files", "all equal")]
    checks.append(_check_version())
    opened = _check_contract(bundle)
    checks += opened
    if not all(check.ok for check in opened):
        return checks
    checks += _check_precision(bundle)
    checks.append(_check_size(bundle))
    checks += _check_answers(bundle)
    failed = [gate["name"] for gate in bundle.manifest["gates"] if not gate["ok"]]
    checks.append(at_most("gates that failed when it was made", len(failed), 0))
    return checks


def _check_version() -> Check:
    import onnxruntime

    low, high = (".".join(map(str, edge)) for edge in ORT_RANGE)
    number = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    found = ORT_RANGE[0] <= number < ORT_RANGE[1]
    return Check("version of onnxruntime", found, onnxruntime.__version__, f">= {low}, < {high}")


def _check_contract(bundle: Bundle) -> list[Check]:
    """Each graph opens, and its inputs and outputs are the contracted ones, every dynamic axis still dynamic."""
    import onnxruntime

    checks = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, wanted in contract(bundle.model).items():
        try:
            file = graph_file(bundle.path, name.removesuffix(".onnx"))
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library raises a class of its own for each fault
            checks.append(Check(f"{name} opens", False, type(error).__name__, "opens"))
            continue
        found = {x.name: (x.type, x.shape) for x in (*session.get_inputs(), *session.get_outputs())}
        wrong = sorted(x for x in {*found, *wanted} if found.get(x) != wanted.get(x))
        checks.append(equal(f"{name}: inputs and outputs not as contracted", ", ".join(wrong) or "none", "none"))
    return checks


def _check_precision(bundle: Bundle) -> list[Check]:
    """Integer products are in the files as often as the manifest says, and no float ones when all are claimed."""
    checks = []
    for name in contract(bundle.model):
        operators = bundle.manifest["operators"][name.removesuffix(".onnx")]
        wanted = sum(operators.get(operator, 0) for operator in INTEGER_OPERATORS)
        count = operator_counter(graph_file(bundle.path, name.removesuffix(".onnx")))
        found = sum(map(count, INTEGER_OPERATORS))
        checks.append(equal(f"{name}: integer products", str(found), str(wanted)))
        if _is_quantized(bundle):
            # The query projection by position is a sum with one weight a token, and stays float; so do the fusion's
            # gate and its weighing of matches. A mixed plan has as many as the manifest says.
            few = 1 if bundle.model["fusion"] == "none" else 2
            most = operators.get("MatMul", 0) if bundle.manifest["quantization"]["mixed"] else few
            checks.append(at_most(f"{name}: float products beside them", count("MatMul"), most))
    return checks


def _is_quantized(bundle: Bundle) -> bool:
    return set(bundle.manifest["precision"].values()) != {"fp32"}


def _check_size(bundle: Bundle) -> Check:
    sizes, files = bundle.manifest["sizes"], bundle.manifest["files"]
    names = [graph_file(bundle.path, name.removesuffix(".onnx")).name for name in contract(bundle.model)]
    graphs = sum(files[name]["bytes"] for name in names)
    overhead = OVERHEAD_BYTES if bundle.model["fusion"] == "none" else 2 * OVERHEAD_BYTES
    overhead += ORT_OVERHEAD_BYTES * all(name.endswith(".ort") for name in names)
    counts = bundle.manifest["operators"].values()
    overhead += PRODUCT_BYTES * sum(count.get(operator, 0) for count in counts for operator in INTEGER_OPERATORS[1:])
    bound = max(MAX_SIZE * sizes["weights"], sizes["weights"] + overhead)
    return at_most("size of the graphs beside their weights, bytes", graphs, int(bound))


def _check_answers(bundle: Bundle) -> list[Check]:
    """The graphs at work: PyTorch's scores, the golden vectors, the session."""
    expected = golden.Golden.load(bundle.path / "golden.json")
    suggester = Suggester.open(bundle.path)
    if _is_quantized(bundle):
        asked = bundle.manifest["quantization"]["asked"]
        checks = parity.check_scores(suggester.engine, suggester.search.constraint, expected.references, asked)
    else:
        checks = parity.check_searches(suggester.engine, suggester.search.constraint, expected.references)
    checks += golden.check_vectors(suggester, expected)
    checks += golden.check_effect(golden.session_effect(suggester, expected.asked), expected.effect)
    return checks


def report(path: Path, checks: list[Check]) -> dict[str, Any]:
    """What `verify --json` prints."""
    return {
        "ok": all(check.ok for check in checks),
        "bundle": str(path),
        "checks": [check.to_json() for check in checks],
    }
