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
from export.claims import Claims
from export.contract import Port, contract
from export.golden import Golden
from export.operators import bytes_stored_twice, read_graph
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


def verify_bundle(path: Path, *, key: Path | None = None) -> list[Check]:
    """Runs all checks.

    Args:
        path: the bundle.
        key: file of the public key that it must be signed with; None asks for no signature.

    Raises:
        UserError: `path` is no bundle, one of its files is missing, damaged or changed (it is named), it is not signed
            with the key, or its manifest or golden vectors hold something else than they must.
    """
    bundle = Bundle.open(path, key=key)
    ports = _ports(bundle)
    claims = Claims.of(bundle, [name.removesuffix(".onnx") for name in ports])
    expected = Golden.load(bundle.path / "golden.json", bundle.model)
    checks = [Check("manifest and sha256 of every file", True, f"{len(bundle.manifest['files'])} files", "all equal")]
    checks.append(_check_version())
    opened = _check_contract(bundle, ports)
    checks += opened
    if not all(check.ok for check in opened):
        return checks
    checks += _check_contents(bundle, claims)
    checks.append(_check_size(bundle, claims))
    checks += _check_answers(bundle, claims, expected)
    checks.append(at_most("gates that failed when it was made", claims.failed_gates, 0))
    return checks


def _ports(bundle: Bundle) -> dict[str, dict[str, Port]]:
    """What the graphs of such a model must be."""
    try:
        return contract(bundle.model)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, UserError) as error:
        raise UserError(
            f"the `model` section of the manifest of `{bundle.path}` is that of no network ({error!r:.200})",
            code="bad-manifest",
            hint="make the bundle again",
        ) from error


def _check_version() -> Check:
    import onnxruntime

    low, high = (".".join(map(str, edge)) for edge in ORT_RANGE)
    number = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    found = ORT_RANGE[0] <= number < ORT_RANGE[1]
    return Check("version of onnxruntime", found, onnxruntime.__version__, f">= {low}, < {high}")


def _check_contract(bundle: Bundle, ports: dict[str, dict[str, Port]]) -> list[Check]:
    """Each graph opens, and its inputs and outputs are the contracted ones, every dynamic axis still dynamic."""
    import onnxruntime

    checks = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, wanted in ports.items():
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


def _check_contents(bundle: Bundle, claims: Claims) -> list[Check]:
    """Integer products are in the files as often as the manifest says, and no float ones when all are claimed; nothing
    large is in them twice."""
    checks = []
    graphs = {graph: read_graph(graph_file(bundle.path, graph)) for graph in claims.operators}
    for graph, contents in graphs.items():
        name, claimed, operators = f"{graph}.onnx", claims.operators[graph], contents.operators
        wanted = sum(claimed.get(operator, 0) for operator in INTEGER_OPERATORS)
        found = sum(operators[operator] for operator in INTEGER_OPERATORS)
        checks.append(equal(f"{name}: integer products", str(found), str(wanted)))
        if claims.is_quantized:
            # The query projection by position is a sum with one weight a token, and stays float; so do the fusion's
            # gate and its weighing of matches. A mixed plan has as many as the manifest says.
            few = 1 if bundle.model["fusion"] == "none" else 2
            most = claimed.get("MatMul", 0) if claims.mixed else few
            checks.append(at_most(f"{name}: float products beside them", operators["MatMul"], most))
    checks.append(at_most("large tensors stored twice, bytes", bytes_stored_twice(list(graphs.values())), 0))
    return checks


def _check_size(bundle: Bundle, claims: Claims) -> Check:
    files = bundle.manifest["files"]
    names = [graph_file(bundle.path, graph).name for graph in claims.operators]
    graphs = sum(files[name]["bytes"] for name in names)
    overhead = OVERHEAD_BYTES if bundle.model["fusion"] == "none" else 2 * OVERHEAD_BYTES
    overhead += ORT_OVERHEAD_BYTES * all(name.endswith(".ort") for name in names)
    counts = claims.operators.values()
    overhead += PRODUCT_BYTES * sum(count.get(operator, 0) for count in counts for operator in INTEGER_OPERATORS[1:])
    bound = max(MAX_SIZE * claims.weights, claims.weights + overhead)
    return at_most("size of the graphs beside their weights, bytes", graphs, int(bound))


def _check_answers(bundle: Bundle, claims: Claims, expected: Golden) -> list[Check]:
    """The graphs at work: PyTorch's scores, the golden vectors, the session."""
    suggester = Suggester.open(bundle.path)
    try:
        return _answers(suggester, claims, expected)
    except Exception as error:  # the library has no common exception for graphs that cannot run; ours are no answer
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        return [Check("the graphs run", False, type(error).__name__, "run")]


def _answers(suggester: Suggester, claims: Claims, expected: Golden) -> list[Check]:
    engine, constraint = suggester.engine, suggester.search.constraint
    if claims.is_quantized:
        checks = parity.check_scores(engine, constraint, expected.references, claims.asked)
    else:
        checks = parity.check_searches(engine, constraint, expected.references)
    checks += golden.check_vectors(suggester, expected)
    return checks + golden.check_effect(golden.session_effect(suggester, expected.asked), expected.effect)


def report(path: Path, checks: list[Check]) -> dict[str, Any]:
    """What `verify --json` prints."""
    return {
        "ok": all(check.ok for check in checks),
        "bundle": str(path),
        "checks": [check.to_json() for check in checks],
    }
