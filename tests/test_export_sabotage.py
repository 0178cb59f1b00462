"""Every check of `verify` is seen failing on a bundle that was sabotaged for it, with exit status 3.

The saboteur makes the manifest agree with the files again: nothing but the check itself stands in the way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx", reason="graphs are edited with the extra [train]")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from export.mobile import _convert, export_mobile  # noqa: E402
from export.operators import bytes_stored_twice, read_graph  # noqa: E402
from mtn_edge import folders  # noqa: E402
from mtn_edge.cli import app  # noqa: E402
from mtn_edge.errors import EXIT_GATE  # noqa: E402

RUN = CliRunner()
Sabotage = Callable[[Path], None]
OWN = {"kind", "format_version", "mtn_edge_version", "files", "manifest_sha256"}


def remanifest(path: Path, **changed: Any) -> None:
    """Makes the manifest agree with the files, and say something else where asked."""
    manifest = folders.read_manifest(path, "bundle")
    (path / folders.MANIFEST).unlink()
    content = {key: value for key, value in manifest.items() if key not in OWN}
    folders.write_manifest(path, "bundle", content | changed)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())


def largest(model: Any) -> Any:
    """The table: the largest constant of the search."""
    return max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))


def no_graph(bundle: Path) -> None:
    (bundle / "suggest.onnx").write_bytes(b"no graph")


def another_name(bundle: Path) -> None:
    def change(model: Any) -> None:
        model.graph.output[0].name += "_"
        for node in model.graph.node:
            for place, name in enumerate(node.output):
                if f"{name}_" == model.graph.output[0].name:
                    node.output[place] += "_"

    edit(bundle / "encode.onnx", change)


def heavy(bundle: Path) -> None:
    edit(bundle / "encode.onnx", lambda model: setattr(model, "doc_string", "x" * 100_000))


def table_twice(bundle: Path) -> None:
    """Transposed, as an optimizer would fold it, and within the allowance for nodes."""

    def change(model: Any) -> None:
        table = numpy_helper.to_array(largest(model))
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(table.T), "again"))

    edit(bundle / "suggest.onnx", change)


def wrong_scale(bundle: Path) -> None:
    """What the first feed-forward layer of the decoder gives becomes half as large again."""

    def change(model: Any) -> None:
        loop = next(node for node in model.graph.node if node.op_type == "Loop")
        products = [node for node in loop.attribute[0].g.node if node.op_type == "DynamicQuantizeMatMul"]
        scale = next(tensor for tensor in model.graph.initializer if tensor.name == products[-2].input[2])
        scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(3), scale.name))

    edit(bundle / "suggest.onnx", change)


def only_at_first(bundle: Path) -> None:
    """A graph that was specialised: it opens, and runs with one settled token alone."""

    def change(model: Any) -> None:
        graph = model.graph
        producer = next(node for node in graph.node if "mass" in node.output)
        producer.output[list(producer.output).index("mass")] = "free_mass"
        graph.initializer.append(numpy_helper.from_array(np.array([1], dtype=np.int64), "one_token"))
        graph.initializer.append(numpy_helper.from_array(np.array(0, dtype=np.float32), "nothing"))
        graph.node.extend(
            [
                helper.make_node("Reshape", ["start_tokens", "one_token"], ["frozen"]),
                helper.make_node("Cast", ["frozen"], ["frozen_real"], to=TensorProto.FLOAT),
                helper.make_node("Squeeze", ["frozen_real"], ["frozen_scalar"]),
                helper.make_node("Mul", ["frozen_scalar", "nothing"], ["zero_mass"]),
                helper.make_node("Add", ["free_mass", "zero_mass"], ["mass"]),
            ]
        )

    edit(bundle / "suggest.onnx", change)


def golden(change: Callable[[dict[str, Any]], None]) -> Sabotage:
    def sabotage(bundle: Path) -> None:
        document = json.loads((bundle / "golden.json").read_bytes())
        change(document)
        (bundle / "golden.json").write_text(json.dumps(document))

    return sabotage


def pair_of(document: dict[str, Any], *, near: bool) -> dict[str, Any]:
    """A golden vector whose first two suggestions are, or are not, a near tie."""
    vectors = (vector for vector in document["vectors"] if len(vector["suggestions"]) > 1)
    return next(vector for vector in vectors if vector["suggestions"][0]["near_tie"] is near)


def turned(document: dict[str, Any]) -> None:
    first, second = pair_of(document, near=False)["suggestions"][:2]
    first["text"], second["text"] = second["text"], first["text"]


def near_tie_turned(document: dict[str, Any]) -> None:
    first, second = pair_of(document, near=True)["suggestions"][:2]
    first["text"], second["text"] = second["text"], first["text"]


def no_vectors(document: dict[str, Any]) -> None:
    document["vectors"] = []


def louder(document: dict[str, Any]) -> None:
    document["effect"] = {"swapped": 99.0, "cut": 99.0}


def other_reference(document: dict[str, Any]) -> None:
    for case in document["references"]:
        case["scores"] = [score - len(row) for row, score in zip(case["tokens"], case["scores"], strict=True)]


SABOTAGES: dict[str, tuple[Sabotage, set[str]]] = {
    "a file that is no graph": (no_graph, {"suggest.onnx opens"}),
    "an output of another name": (another_name, {"encode.onnx: inputs and outputs not as contracted"}),
    "100 KB of nothing": (heavy, {"size of the graphs beside their weights, bytes"}),
    "the table twice": (table_twice, {"large tensors stored twice, bytes"}),
    "a wrong scale": (wrong_scale, {"PyTorch ~ int8 graph: score of a token, mean", "golden vectors: score"}),
    "a frozen axis": (only_at_first, {"the graphs run"}),
    "suggestions turned around": (
        golden(turned),
        {"golden vectors: suggestions out of order", "golden vectors: score"},
    ),
    "no vectors": (golden(no_vectors), {"golden vectors: key presses"}),
    "a session effect that is not there": (
        golden(louder),
        {"session swapped: change of a score", "session cut: change of a score"},
    ),
    "scores of another network": (golden(other_reference), {"PyTorch ~ int8 graph: score of a token, mean"}),
}


def checked(bundle: Path) -> tuple[int, set[str]]:
    """The exit status of `verify` and the checks that failed."""
    result = RUN.invoke(app, ["verify", str(bundle), "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert document["ok"] is (result.exit_code == 0)
    return result.exit_code, {check["name"] for check in document["checks"] if not check["ok"]}


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


@pytest.mark.parametrize("name", SABOTAGES)
def test_verify_finds_the_sabotage_and_leaves_with_three(name: str, bundle: Path) -> None:
    sabotage, wanted = SABOTAGES[name]
    sabotage(bundle)
    remanifest(bundle)
    status, failed = checked(bundle)
    assert status == EXIT_GATE
    assert wanted <= failed


def test_a_gate_that_failed_when_the_bundle_was_made_fails_verify(bundle: Path) -> None:
    gates = folders.read_manifest(bundle)["gates"]
    remanifest(bundle, gates=[gates[0] | {"ok": False}, *gates[1:]])
    assert checked(bundle) == (EXIT_GATE, {"gates that failed when it was made"})


def test_another_runtime_fails_verify(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.__version__", "1.29.0")
    assert checked(bundle) == (EXIT_GATE, {"version of onnxruntime"})


def test_a_claim_of_fewer_products_fails_verify(bundle: Path) -> None:
    operators = folders.read_manifest(bundle)["operators"]
    operators["suggest"]["DynamicQuantizeMatMul"] -= 1
    remanifest(bundle, operators=operators)
    assert checked(bundle) == (EXIT_GATE, {"suggest.onnx: integer products"})


def test_near_ties_may_swap(bundle: Path) -> None:
    golden(near_tie_turned)(bundle)
    remanifest(bundle)
    assert checked(bundle) == (0, set())


def test_an_ort_bundle_with_the_graph_of_another_network_fails_verify(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "ort"
    export_mobile(bundle, out, ort_format=True)
    assert checked(out) == (0, set())
    wrong_scale(bundle)
    _convert(bundle / "suggest.onnx", out / "suggest.ort")
    remanifest(out)
    status, failed = checked(out)
    assert status == EXIT_GATE
    assert {"PyTorch ~ int8 graph: score of a token, mean", "golden vectors: score"} <= failed


def test_a_table_folded_by_the_optimizer_of_the_runtime_is_found(bundle: Path, tmp_path: Path) -> None:
    """Without care, converting to the runtime's own format stores the table again, transposed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(bundle / "suggest.onnx", options, providers=["CPUExecutionProvider"])
    assert bytes_stored_twice([read_graph(bundle / "suggest.onnx")]) == 0
    assert bytes_stored_twice([read_graph(tmp_path / "folded.ort")]) > 10_000


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda document: document.update(tolerance="x"), "`tolerance`: 'x' stands where a number must stand"),
        (lambda document: document["references"][0].update(beam=0), "`beam`: 0 stands where a whole number from 1 to"),
        (lambda document: document["references"][0].update(tokens=[[10**6]]), "stands where a whole number from 0 to"),
        (lambda document: document["references"][0].update(scores=[]), "stands where a list of"),
        (lambda document: document["references"][0].update(prefix="x" * 5000), "and the model cannot write it"),
        (lambda document: document["references"][0].update(prefix="\0"), "and the model cannot write it"),
        (lambda document: document["references"][0].update(session=[[5]] * 99), "it is longer than the model reads"),
        (lambda document: document["vectors"][0].pop("typed"), "`typed` is missing"),
        (lambda document: document["vectors"][0].update(typed="\ud800"), "stands where a text must stand"),
        (lambda document: document["asked"].append(["x"]), "stands where a list of 2 must stand"),
    ],
)
def test_golden_vectors_that_hold_something_else_are_refused(
    change: Callable[[dict[str, Any]], object], sentence: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden(lambda document: void(change(document)))(bundle)
    remanifest(bundle)
    result = RUN.invoke(app, ["verify", str(bundle)])
    assert getattr(result.exception, "code", None) == "bad-golden", result.exception
    assert sentence in str(result.exception)


def void(_: object) -> None: ...


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"gates": {}}, r"`gates`: {} stands where a list must stand"),
        ({"gates": [{"name": "x", "ok": 1}]}, "`ok`: 1 stands where true or false must stand"),
        ({"sizes": {"weights": -1}}, "`weights`: -1 stands where a whole number"),
        ({"precision": {"decoder": "int7"}}, "stands where one of fp32, int8, int4 must stand"),
        ({"quantization": {"asked": "int8"}}, "`mixed` is missing"),
        ({"operators": {"encode": {}}}, "`suggest` is missing"),
    ],
)
def test_a_manifest_that_claims_nothing_sound_is_refused(changed: dict[str, Any], sentence: str, bundle: Path) -> None:
    remanifest(bundle, **changed)
    result = RUN.invoke(app, ["verify", str(bundle)])
    assert getattr(result.exception, "code", None) == "bad-manifest", result.exception
    assert sentence in str(result.exception)


def test_a_fault_of_ours_is_not_taken_for_a_damaged_bundle(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("export.parity.check_scores", wrong)
    result = RUN.invoke(app, ["verify", str(bundle)])
    assert isinstance(result.exception, KeyError)
