"""The model of a Triton repository, without a server: what stands between Triton's tensors and the runtime."""

import importlib.util
import json
import shutil
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from export.triton.repository import config, export_triton
from mtn_edge import folders
from mtn_edge.cli import app
from mtn_edge.errors import UserError
from mtn_edge.runtime.suggester import NOTHING_ASKED, Suggester

RUN = CliRunner()


class FakeTensor:
    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> Any:
        return self.array


class FakeError(Exception):
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        super().__init__(message)
        self.code = code


class FakeResponse:
    def __init__(self, output_tensors: list[FakeTensor], error: FakeError | None = None) -> None:
        self.arrays = {tensor.name: tensor.array for tensor in output_tensors}
        self.error = error


def fake_utils() -> types.ModuleType:
    """As much of `triton_python_backend_utils` as the model needs; a request is a dictionary of arrays."""
    module: Any = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.InferenceResponse, module.TritonError = FakeTensor, FakeResponse, FakeError
    module.TritonModelException = FakeError
    module.get_input_tensor_by_name = lambda request, name: FakeTensor(name, request[name]) if name in request else None
    return module


@pytest.fixture(scope="module")
def repository(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("triton") / "repository"
    arguments = ["export", "triton", str(tiny_bundle), "-o", str(out), "--model-name", "my-model", "--json"]
    result = RUN.invoke(app, arguments, catch_exceptions=False)
    document = json.loads(result.stdout)
    assert (document["model_name"], document["instances"]) == ("my-model", 1)
    return out


def load(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model, as Triton makes one."""
    monkeypatch.setitem(__import__("sys").modules, "triton_python_backend_utils", fake_utils())
    spec = importlib.util.spec_from_file_location("model", repository / "my-model" / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_name": "my-model"})
    return model


@pytest.fixture
def model(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return load(repository, monkeypatch)


def texts(*rows: list[str | bytes]) -> Any:
    raw = [[text.encode() if isinstance(text, str) else text for text in row] for row in rows]
    return np.array(raw, dtype=np.object_).reshape(len(rows), -1)


def numbers(*values: float, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype=dtype).reshape(-1, 1)


def test_rows_and_requests_are_answered_as_the_bundle_answers(model: Any, tiny_bundle: Path) -> None:
    sessions = ["paris hotels", "paris weather"], ["jaguar price"], []
    typed = "paris ", "Jag", "b"
    rows = texts(*[[*session, *[""] * (2 - len(session))] for session in sessions])
    together = {"TYPED": texts(*[[text] for text in typed]), "SESSION": rows, "COUNT": numbers(5, 1, 0)}
    alone = {"TYPED": texts(["москва "])}
    first, second = model.execute([together, alone])
    suggester = Suggester.open(tiny_bundle)
    assert first.error is None
    for row, (session, text, count) in enumerate(zip(sessions, typed, (5, 1, 0), strict=True)):
        result = suggester.session(session).suggest(text, count)
        width = len(first.arrays["TEXTS"][row])
        padding = width - len(result.suggestions)
        assert first.arrays["TEXTS"][row].tolist() == [x.text.encode() for x in result.suggestions] + [b""] * padding
        assert first.arrays["SCORES"][row].tolist() == [x.score for x in result.suggestions] + [0.0] * padding
        assert first.arrays["REASON"][row].tolist() == [(result.reason or "").encode()]
    assert first.arrays["REASON"][2].tolist() == [NOTHING_ASKED.encode()]
    found = suggester.session().suggest("москва ", 8).suggestions
    assert second.arrays["TEXTS"].tolist() == [[x.text.encode() for x in found]]
    assert second.arrays["SOURCES"].tolist() == [[x.source.encode() for x in found]]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"TYPED": texts([b"par\xff"])}, "a text of `TYPED` is no UTF-8"),
        ({"TYPED": texts(["par"]), "SESSION": texts(["x", b"\xc3"])}, "a text of `SESSION` is no UTF-8"),
        ({"TYPED": texts(["p" * 16_001])}, "has 16,001 bytes, and it must be at most 16,000"),
        (
            {"TYPED": texts(["par"]), "SESSION": texts(["x"] * 1_001)},
            "holds 1,001 queries, and it must be at most 1,000",
        ),
        ({"TYPED": texts(["par"]), "COUNT": numbers(-1)}, "`COUNT` is -1, and it must be 0 to 1,000"),
        ({"TYPED": texts(["par"]), "COUNT": numbers(1_001)}, "`COUNT` is 1,001"),
        ({"TYPED": texts(["par"]), "DEADLINE_MS": numbers(-1, dtype=np.float32)}, "`DEADLINE_MS` is -1"),
        ({"TYPED": texts(["par"]), "DEADLINE_MS": numbers(np.nan, dtype=np.float32)}, "`DEADLINE_MS` is nan"),
    ],
)
def test_a_bad_request_is_told_alone(model: Any, bad: dict[str, Any], sentence: str) -> None:
    good = {"TYPED": texts(["par"]), "COUNT": numbers(3)}
    before, refused, after = model.execute([good, bad, good])
    assert sentence in str(refused.error)
    assert (refused.error.code, refused.arrays) == ("invalid", {})
    assert before.error is after.error is None
    assert before.arrays["TEXTS"].tolist() == after.arrays["TEXTS"].tolist()
    assert before.arrays["TEXTS"].shape == (1, 3)


def test_a_fault_of_ours_is_told_to_its_request_alone(model: Any) -> None:
    broken = {"TYPED": None}
    refused, good = model.execute([broken, {"TYPED": texts(["par"])}])
    assert refused.error.code == "internal"
    assert good.error is None


def test_a_deadline_that_has_passed_leaves_popular_queries(model: Any) -> None:
    request = {"TYPED": texts(["par"]), "DEADLINE_MS": numbers(0, dtype=np.float32)}
    (answer,) = model.execute([request])
    assert answer.arrays["REASON"].tolist() == [[b"the deadline passed before the model had answered"]]
    assert set(answer.arrays["SOURCES"][0]) == {b"completions"}


def test_a_damaged_bundle_keeps_the_model_from_being_served(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(repository, tmp_path / "copy"))
    graph = copy / "my-model" / "1" / "bundle" / "encode.onnx"
    graph.write_bytes(graph.read_bytes()[:-1])
    with pytest.raises(FakeError, match=r"encode.onnx` is missing, damaged or changed"):
        load(copy, monkeypatch)


def test_the_repository_is_whole_and_knows_what_is_in_it(repository: Path, tiny_bundle: Path) -> None:
    manifest = folders.read_manifest(repository, "repository")
    folders.check_files(repository, manifest)
    inside = repository / "my-model" / "1" / "bundle"
    assert manifest["lineage"] == {"bundle": folders.read_manifest(tiny_bundle)["manifest_sha256"]}
    assert {file.name: file.read_bytes() for file in inside.iterdir()} == {
        file.name: file.read_bytes() for file in tiny_bundle.iterdir()
    }
    assert "my-model/1/bundle/manifest.json" in manifest["files"]
    assert 'MODEL = "my-model"' in (repository / "client_example.py").read_text()
    assert RUN.invoke(app, ["inspect", str(repository)], catch_exceptions=False).stdout.startswith(
        f"{repository}: a repository of"
    )


def test_a_repository_that_was_served_is_replaced_by_force_and_no_other(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.triton.repository.verify_bundle", lambda _: [])
    out = tmp_path / "repository"
    export_triton(tiny_bundle, out)
    compiled = out / "suggest" / "1" / "__pycache__" / "model.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"compiled")
    with pytest.raises(UserError, match="exists already"):
        export_triton(tiny_bundle, out)
    export_triton(tiny_bundle, out, instances=3, force=True)
    assert not compiled.exists()
    assert "count: 3" in (out / "suggest" / "config.pbtxt").read_text()
    compiled.parent.mkdir()
    stranger = compiled.with_name("thesis.pyc")
    stranger.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"thesis.pyc`, which mtn-edge did not write"):
        export_triton(tiny_bundle, out, force=True)
    assert stranger.exists()


def test_what_is_no_bundle_and_no_name_is_refused(
    tiny_dataset: Path, tiny_bundle: Path, repository: Path, tmp_path: Path
) -> None:
    for source, sentence in (
        (
            tiny_dataset,
            "is of the kind `dataset`, and a model repository is made from a bundle or from engines; make one",
        ),
        (repository, "is of the kind `repository`"),
        (tmp_path / "none", "does not exist"),
    ):
        with pytest.raises(UserError, match=sentence):
            export_triton(source, tmp_path / "out")
    for name in ("", "a b", "../x", "x/y", "é", "-x"):
        with pytest.raises(UserError, match="is no name"):
            export_triton(tiny_bundle, tmp_path / "out", model_name=name)
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_names_the_model_and_its_instances() -> None:
    text = config("other", 4)
    assert 'name: "other"' in text
    assert "count: 4" in text
    assert text.count("{") == text.count("}")
