"""The engines' ONNX on ONNX Runtime, and engines built without a GPU by TensorRT for RTX; they run on a GPU only."""

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="the engines' networks are PyTorch modules (extra [train])")
pytest.importorskip("onnxscript", reason="PyTorch writes ONNX with onnxscript (extra [tensorrt] or [tensorrt-rtx])")

from export.tensorrt import agreement, builders  # noqa: E402
from export.tensorrt.lowering import check_onnx, exported, write_onnx  # noqa: E402
from export.tensorrt.networks import Lowered, Networks, Precision, build_networks, in_half, in_int8, lowered  # noqa: E402
from export.tensorrt.runners import onnx_engine  # noqa: E402
from export.tensorrt.sizes import Sizes  # noqa: E402
from mtn_edge.cli import app  # noqa: E402
from mtn_edge.config import ModelConfig  # noqa: E402
from mtn_edge.decoding.prefix_constraint import PrefixConstraint  # noqa: E402
from mtn_edge.decoding.torch_engine import TorchEngine  # noqa: E402
from mtn_edge.errors import UserError  # noqa: E402
from mtn_edge.models.build import build  # noqa: E402
from mtn_edge.models.mtn import MTN  # noqa: E402
from mtn_edge.tokenizer import Tokenizer  # noqa: E402

RUN = CliRunner()
PREFIXES = ("", "ne", "new york ho")
rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason="engines are built without a GPU by TensorRT for RTX (extra [tensorrt-rtx])",
)


class Written:
    """Networks of random weights as ONNX, with what PyTorch finds."""

    def __init__(self, folder: Path, precision: Precision) -> None:
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
        self.folder, self.sizes = folder, Sizes.of(config, beam=3, steps=3, max_batch=4)
        self.precision = precision
        networks = build_networks(model, self.sizes)
        constraint = PrefixConstraint(tokenizer.token_bytes, tokenizer.encode)
        engine = networks.engine(self.sizes)
        self.cases = agreement.record(TorchEngine(model), engine, self.sizes, constraint, PREFIXES, seed=2)
        if precision == "fp16":
            networks = in_half(networks)
        if precision == "int8":
            networks = in_int8(networks, self.sizes, [case.press for case in self.cases])
        self.networks: Networks = networks
        self.parts: list[Lowered] = lowered(networks, self.sizes)
        for part in self.parts:
            write_onnx(exported(part, self.sizes), part, self.file(part))

    def file(self, part: Lowered) -> Path:
        return self.folder / f"{part.name}.onnx"


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("int8"), "int8")


@pytest.fixture(scope="module")
def fp32(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("fp32"), "fp32")


@pytest.fixture(scope="module")
def fp16(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("fp16"), "fp16")


@pytest.fixture(params=["fp32", "fp16", "int8"])
def written(request: pytest.FixtureRequest) -> Written:
    found: Written = request.getfixturevalue(request.param)
    return found


def check_written(written: Written) -> None:
    """ONNX Runtime finds what PyTorch finds, and every axis that was to stay open is open."""
    for part in written.parts:
        assert check_onnx(written.file(part), part) == []
    engine = onnx_engine(written.folder, written.sizes)
    checks = agreement.check(engine, written.sizes, written.cases, written.precision, "ONNX")
    assert [check for check in checks if not check.ok] == []


def test_onnx_in_int8_finds_what_its_network_finds(int8: Written) -> None:
    check_written(int8)
    ours, theirs = onnx_engine(int8.folder, int8.sizes), int8.networks.engine(int8.sizes)
    for case in int8.cases:
        found, wanted = ours.run([case.press])[0], theirs.run([case.press])[0]
        assert found.scores.tolist() == pytest.approx(wanted.scores.tolist(), abs=2e-2)  # one rounding step apart


def test_onnx_in_int8_rounds_every_product_with_weights(int8: Written) -> None:
    import onnx
    from onnx import TensorProto

    for part in int8.parts:
        graph = onnx.load(str(int8.file(part))).graph
        stored = {tensor.name: tensor for tensor in graph.initializer}
        made_by = {output: node for node in graph.node for output in node.output}
        dequantized = [
            [made_by[name].op_type if name in made_by else "input" for name in node.input]
            for node in graph.node
            if node.op_type == "MatMul"
            and made_by.get(node.input[1]) is not None
            and made_by[node.input[1]].op_type == "DequantizeLinear"
        ]
        assert dequantized
        assert all(kinds == ["DequantizeLinear", "DequantizeLinear"] for kinds in dequantized)
        assert not any(node.op_type in ("MatMul", "Gemm") and node.input[1] in stored for node in graph.node)
        assert any(tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 2 for tensor in stored.values())


@pytest.mark.slow
def test_onnx_finds_what_pytorch_finds(written: Written) -> None:
    check_written(written)


@rtx
@pytest.mark.slow
def test_every_corner_of_the_profiles_builds(written: Written, tmp_path: Path) -> None:
    builder = builders.find_builder("tensorrt-rtx", written.precision)
    for part in written.parts:
        profiles = [part.profile]
        profiles += [{name: [shapes[edge]] * 3 for name, shapes in part.profile.items()} for edge in (0, 2)]
        for profile in profiles:
            engine, cache = tmp_path / f"{part.name}.engine", tmp_path / "cache"
            cut = part._replace(profile=profile)
            builder.build(cut, written.sizes, written.file(part), cache, written.precision, engine)
            assert engine.stat().st_size > 10_000
            engine.unlink()


@rtx
@pytest.mark.slow
def test_export_writes_a_folder_that_inspect_knows(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "engines"
    asked = ["export", "tensorrt", str(tiny_checkpoint), "-o", str(out), "--steps", "2", "--max-batch", "4"]
    made = RUN.invoke(app, [*asked, "--builder", "tensorrt-rtx", "--json"], catch_exceptions=False)
    document = json.loads(made.stdout)
    assert document["precision"] == "fp32"
    assert all(gate["ok"] for gate in document["gates"])
    manifest = json.loads(RUN.invoke(app, ["inspect", str(out), "--json"], catch_exceptions=False).stdout)
    assert manifest["kind"] == "engines"
    assert manifest["builder"]["name"] == "tensorrt-rtx"
    held = {"encoder.engine", "search.engine", "encoder.onnx", "search.onnx", "tokenizer.json", "blocklist.txt"}
    assert held <= set(manifest["files"])
    with pytest.raises(UserError, match="is a set of engines, not a bundle or checkpoint"):
        RUN.invoke(app, ["suggest", str(out), "-p", "a"], catch_exceptions=False)
    with pytest.raises(UserError, match="exists already"):
        RUN.invoke(app, asked, catch_exceptions=False)
