"""A Triton repository of engines, without a GPU: its configurations, and the model that stands in front of the engines.

Where the TensorRT backend would run an engine, PyTorch runs its network, on tensors that must be as configured.
"""

import importlib.util
import json
import re
import subprocess
import sys
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="the engines' networks are PyTorch modules (extra [train])")

from export.tensorrt.batch import search_feeds  # noqa: E402
from export.tensorrt.networks import build_networks  # noqa: E402
from export.tensorrt.serving import open_engines  # noqa: E402
from export.tensorrt.sizes import Sizes  # noqa: E402
from export.triton.repository import export_triton  # noqa: E402
from mtn_edge import folders  # noqa: E402
from mtn_edge.cli import app  # noqa: E402
from mtn_edge.config import ModelConfig  # noqa: E402
from mtn_edge.errors import UserError  # noqa: E402
from mtn_edge.models.build import build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.runtime import completions  # noqa: E402
from mtn_edge.runtime.completions import Completions  # noqa: E402
from mtn_edge.runtime.lists import FOLLOWERS  # noqa: E402
from mtn_edge.runtime.search import Decoding  # noqa: E402
from mtn_edge.runtime.suggester import Suggester  # noqa: E402
from mtn_edge.tokenizer import EOS, Tokenizer  # noqa: E402

RUN = CliRunner()
POPULAR = ("new york hotels", "new york", "berlin hotels", "newer")
DTYPES = {"TYPE_INT64": np.int64, "TYPE_UINT8": np.uint8, "TYPE_FP32": np.float32}


class Made:
    """A folder of engines and their networks, of random weights."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(5)
        tokenizer = Tokenizer.train(["new york hotels", "new york weather", "berlin hotels"] * 4, 280)
        config = ModelConfig(
            vocab_size=len(tokenizer), d_model=32, heads=2, ffn=48, max_tokens=7, max_queries=3, decoder_layers=1
        )
        model = build(config).eval()
        assert isinstance(model, MTN)
        for parameter in model.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.1)
        with torch.no_grad():  # an end of text that is not too rare
            model.decoder_norm.bias += 4 * model.logits(torch.eye(config.d_model))[:, EOS]
        self.sizes = Sizes.of(config, beam=8, steps=5, max_batch=6)
        engine = build_networks(model, self.sizes).engine(self.sizes)
        self.networks = {"encoder": engine._encode, "search": engine._search}
        self.folder = folder / "engines"
        self.folder.mkdir()
        tokenizer.save(self.folder / "tokenizer.json")
        Completions([(text, 9 - place) for place, text in enumerate(POPULAR)]).save(self.folder / completions.FILE)
        Completions(()).save(self.folder / FOLLOWERS)
        (self.folder / "blocklist.txt").write_text("berlin\n")
        for part in self.networks:
            (self.folder / f"{part}.engine").write_bytes(b"engine of the " + part.encode())
            (self.folder / f"{part}.onnx").write_bytes(b"onnx")
        self.write("tensorrt")

    def write(self, runtime: str) -> None:
        content = {
            "precision": "fp32",
            "sizes": asdict(self.sizes),
            "decoding": asdict(Decoding(beam=8, max_steps=5, min_probability_complete=0.001)),
            "builder": {"name": runtime, "version": "10", "runtime": runtime, "gpu": "some"},
            "lineage": {"checkpoint": "0" * 64},
        }
        folders.write_manifest(self.folder, "engines", content)

    def suggester(self) -> Suggester:
        """The same without a server: each search alone."""
        served = open_engines(self.folder, self.networks["encoder"], self.networks["search"])
        served.suggester.engine = served.suggester.search.engine = served.engine._engine
        return served.suggester


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def repository(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("triton") / "repository"
    asked = ["export", "triton", str(made.folder), "-o", str(out), "--model-name", "my-model", "--instances", "2"]
    result = RUN.invoke(app, [*asked, "--json"], catch_exceptions=False)
    assert json.loads(result.stdout)["model_name"] == "my-model"
    return out


class FakeTensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def as_numpy(self) -> Any:
        return self._array


class FakeError(Exception):
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        super().__init__(message)
        self.code = code

    def message(self) -> str:
        return str(self)


class FakeResponse:
    def __init__(self, output_tensors: list[FakeTensor], error: FakeError | None = None) -> None:
        self.arrays = {tensor._name: tensor._array for tensor in output_tensors}
        self.error_of = error

    def has_error(self) -> bool:
        return self.error_of is not None

    def error(self) -> FakeError:
        assert self.error_of is not None
        return self.error_of


def ports(repository: Path, model: str, side: str) -> dict[str, tuple[Any, list[int], bool]]:
    """Element, sides and whether it is one number a row, of each input or output as the configuration says."""
    text = (repository / model / "config.pbtxt").read_text()
    section = text.split(f"{side} [")[1].split("\n]")[0]
    found = re.findall(r'name: "(\w+)" data_type: (\w+) dims: \[ ([^\]]*) \]( reshape { shape: \[ \] })?', section)
    return {name: (DTYPES[kind], [int(x) for x in dims.split(",")], bool(flat)) for name, kind, dims, flat in found}


class Backend:
    """As much of Triton as the model in front of the engines needs."""

    def __init__(self, made: Made, repository: Path) -> None:
        self.made, self.repository = made, repository
        self.calls: list[tuple[str, int]] = []
        self.is_broken = False
        module: Any = types.ModuleType("triton_python_backend_utils")
        module.Tensor, module.InferenceResponse, module.TritonError = FakeTensor, FakeResponse, FakeError
        module.TritonModelException = FakeError
        module.TRITONSERVER_MEMORY_CPU, module.TRITONSERVER_MEMORY_GPU = 0, 1
        module.PreferredMemory = lambda place, device: (place, device)
        module.InferenceRequest = lambda **given: types.SimpleNamespace(exec=lambda: self.run(**given))
        module.get_input_tensor_by_name = lambda given, name: FakeTensor(name, given[name]) if name in given else None
        module.get_output_tensor_by_name = lambda answer, name: FakeTensor(name, answer.arrays[name])
        self.module = module

    def run(self, model_name: str, requested_output_names: list[str], inputs: list[Any], **_: Any) -> FakeResponse:
        if self.is_broken:
            return FakeResponse([], FakeError("out of memory"))
        wanted = ports(self.repository, model_name, "input")
        assert {tensor._name for tensor in inputs} >= set(wanted)
        feeds = {}
        for tensor in inputs:
            if tensor._name not in wanted:
                continue
            array, (element, sides, is_flat) = tensor._array, wanted[tensor._name]
            assert array.dtype == element
            assert len(array.shape) == 1 + len(sides)
            assert all(side in (-1, found) for side, found in zip(sides, array.shape[1:], strict=True))
            feeds[tensor._name] = array.reshape(-1) if is_flat else array
        self.calls.append((model_name, len(array)))
        answer = self.made.networks[model_name.rpartition("-")[2]](feeds)
        outputs = ports(self.repository, model_name, "output")
        assert set(requested_output_names) == set(outputs)
        tensors = []
        for name, (element, sides, is_flat) in outputs.items():
            array = answer[name][:, None] if is_flat else answer[name]
            assert array.dtype == element
            assert all(side in (-1, found) for side, found in zip(sides, array.shape[1:], strict=True))
            tensors.append(FakeTensor(name, array))
        return FakeResponse(tensors)


@pytest.fixture
def backend(made: Made, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Backend(made, repository)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend.module)
    monkeypatch.delitem(sys.modules, "export.triton.model", raising=False)  # it holds the module that it was given
    return backend


def load(repository: Path) -> Any:
    spec = importlib.util.spec_from_file_location("front", repository / "my-model" / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_name": "my-model"})
    return model


def request(*rows: tuple[str | bytes, list[str]], count: int = 8, **more: Any) -> dict[str, Any]:
    width = max(len(session) for _, session in rows)
    raw = [text if isinstance(text, bytes) else text.encode() for text, _ in rows]
    sessions = [[query.encode() for query in [*session, *[""] * (width - len(session))]] for _, session in rows]
    given = {
        "TYPED": np.array(raw, dtype=np.object_)[:, None],
        "COUNT": np.full((len(rows), 1), count, dtype=np.int32),
    }
    return given | ({"SESSION": np.array(sessions, dtype=np.object_)} if width else {}) | more


def test_a_batch_is_two_calls_and_every_answer_is_the_one_of_a_search_alone(
    backend: Backend, made: Made, repository: Path
) -> None:
    model, alone = load(repository), made.suggester()
    asked = [("ne", []), ("", ["new york", "berlin hotels"]), ("new york ho", ["weather"] * 9), ("berlin", [])]
    first, second = model.execute([request(*asked[:3]), request(asked[3])])
    # The denied text needs no search.
    assert backend.calls == [("my-model-encoder", 3), ("my-model-search", 3)]
    for row, (typed, session) in enumerate(asked[:3]):
        wanted = alone.session(session).suggest(typed, 8)
        texts = [text for text in first.arrays["TEXTS"][row].tolist() if text]
        assert texts == [each.text.encode() for each in wanted.suggestions]
        scores = first.arrays["SCORES"][row][: len(texts)]
        np.testing.assert_allclose(scores, [each.score for each in wanted.suggestions], atol=1e-5)
        assert first.arrays["REASON"][row, 0].decode() == (wanted.reason or "")
    assert b"model" in first.arrays["SOURCES"]
    assert not first.has_error()
    assert second.arrays["TEXTS"].shape == (1, 0)


def test_more_key_presses_than_the_engines_take_are_several_batches(backend: Backend, repository: Path) -> None:
    model = load(repository)
    many = request(*[("n" if number % 2 else "w", []) for number in range(15)])
    (answer,) = model.execute([many])
    assert [size for _, size in backend.calls[::2]] == [6, 6, 3]
    assert len({tuple(row) for row in answer.arrays["TEXTS"].tolist()}) == 2


def test_what_is_wrong_with_one_request_is_told_to_it_alone(backend: Backend, repository: Path) -> None:
    model = load(repository)
    good, bad = request(("ne", [])), request((b"\xff", []))
    wide = request(("ne", []), count=9)
    late = request(("ne", []), DEADLINE_MS=np.zeros((1, 1), dtype=np.float32))
    answers = model.execute([good, bad, wide, late, good])
    assert [answer.has_error() for answer in answers] == [False, True, True, False, False]
    assert "no UTF-8" in str(answers[1].error())
    assert "a beam of 9 was asked for, and the engine has one of 8" in str(answers[2].error())
    assert answers[2].error().code == "invalid"
    assert b"deadline" in answers[3].arrays["REASON"][0, 0]
    assert answers[0].arrays["TEXTS"].tolist() == answers[4].arrays["TEXTS"].tolist()


def test_an_engine_that_fails_is_told_and_the_next_request_is_answered(backend: Backend, repository: Path) -> None:
    model = load(repository)
    backend.is_broken = True
    (broken,) = model.execute([request(("ne", []))])
    assert "`my-model-encoder` did not answer: out of memory" in str(broken.error())
    assert broken.error().code == "internal"
    backend.is_broken = False
    (answer,) = model.execute([request(("ne", []))])
    assert not answer.has_error()
    model.finalize()


def test_the_configurations_of_the_engines(made: Made, repository: Path) -> None:
    for part in ("encoder", "search"):
        text = (repository / f"my-model-{part}" / "config.pbtxt").read_text()
        assert 'backend: "tensorrt"' in text
        assert "max_batch_size: 6\n" in text
        assert "KIND_GPU" in text
        assert "dynamic_batching" in text
        assert text.count("zero_data: true") == len(ports(repository, f"my-model-{part}", "input"))
        assert (repository / f"my-model-{part}" / "1" / "model.plan").read_bytes() == b"engine of the " + part.encode()
    assert ports(repository, "my-model-encoder", "input") == {"queries": (np.int64, [-1, 7], False)}
    assert set(ports(repository, "my-model-search", "input")) == set(made.sizes.search)
    front = (repository / "my-model" / "config.pbtxt").read_text()
    assert "max_batch_size: 6\n" in front
    assert "count: 2" in front
    assert "model_warmup" not in front  # it would call engines that are not loaded yet
    inside = {file.name for file in (repository / "my-model" / "1" / "engines").iterdir()}
    assert inside == {"manifest.json", "tokenizer.json", "blocklist.txt", completions.FILE, FOLLOWERS}
    folders.check_files(repository, folders.read_manifest(repository, "repository"))


def test_a_damaged_list_keeps_the_model_from_being_served(backend: Backend, repository: Path) -> None:
    file = repository / "my-model" / "1" / "engines" / "tokenizer.json"
    raw = file.read_bytes()
    file.write_bytes(raw[:-1])
    try:
        with pytest.raises(FakeError, match=r"tokenizer.json` is missing, damaged or changed"):
            load(repository)
    finally:
        file.write_bytes(raw)


def test_engines_that_triton_cannot_load_are_refused(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.write("tensorrt_rtx")
    with pytest.raises(UserError, match=r"are for `tensorrt_rtx`, and Triton's backend loads those for `tensorrt`"):
        export_triton(made.folder, tmp_path / "out")
    made.write("tensorrt")
    (made.folder / "search.engine").write_bytes(b"cut")
    with pytest.raises(UserError, match=r"search.engine` is missing, damaged or changed"):
        export_triton(made.folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_model_in_front_needs_no_pytorch() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx', 'safetensors', 'pyarrow', 'onnxruntime']))\n"
        "import export.tensorrt.serving"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_arrays_of_no_key_press_are_asked_for_by_nobody(made: Made) -> None:
    served = open_engines(made.folder, made.networks["encoder"], made.networks["search"])
    assert served.engine.run([]) == []
    with pytest.raises(ValueError, match="max"):
        search_feeds([])
