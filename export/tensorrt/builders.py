"""Who builds an engine: Torch-TensorRT from a program of PyTorch, or TensorRT and TensorRT for RTX from ONNX.

An engine of TensorRT holds for its version and the kind of GPU that it was built on. One for RTX is finished on the
machine that runs it, and so it can be built without a GPU. TensorRT takes precisions from the network's own types.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from export.tensorrt.lowering import exported
from export.tensorrt.networks import Lowered, Precision
from export.tensorrt.sizes import Sizes
from mtn_edge.errors import GateError, UserError, missing_extra

BuilderName = Literal["torch-tensorrt", "tensorrt", "tensorrt-rtx"]
CACHE = "timing.cache"
"""What was measured while engines were built; a second build on the same GPU takes it up."""
_MODULES = {"torch-tensorrt": "torch_tensorrt", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
_EXTRAS = {"torch-tensorrt": "tensorrt", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt-rtx"}


@dataclass(frozen=True)
class Builder:
    """A package that builds engines, loaded."""

    name: BuilderName
    module: Any

    @property
    def runtime(self) -> str:
        """The module that runs its engines; Torch-TensorRT comes in two packages, one of them for RTX."""
        if self.name == "torch-tensorrt":
            return "tensorrt_rtx" if _is_installed("torch-tensorrt-rtx") else "tensorrt"
        return _MODULES[self.name]

    def facts(self) -> dict[str, Any]:
        """For the manifest: versions, and the GPU that the engines are for."""
        return {
            "name": self.name,
            "version": self.module.__version__,
            "runtime": self.runtime,
            "runtime_version": importlib.import_module(self.runtime).__version__,
            "gpu": "any that TensorRT for RTX supports" if self.runtime == "tensorrt_rtx" else _gpu(),
        }

    def build(self, lowered: Lowered, sizes: Sizes, onnx: Path, cache: Path, precision: Precision, out: Path) -> None:
        """Builds an engine.

        Args:
            lowered: the network.
            sizes: what it was made for.
            onnx: the same network.
            cache: file of timings, read and written (not by TensorRT for RTX).
            precision: of the network.
            out: the engine's file.

        Raises:
            GateError: the package refuses the network.
        """
        exact = precision == "fp32"
        if self.name == "torch-tensorrt":
            out.write_bytes(_from_program(self.module, lowered, sizes, cache, exact=exact))
        else:
            out.write_bytes(_from_onnx(self, lowered, onnx, cache, exact=exact))


def find_builder(asked: BuilderName | None, precision: Precision) -> Builder:
    """The builder that was asked for, or the first that is installed and can be loaded.

    Raises:
        UserError: there is none, or it does not build that precision.
    """
    if asked == "torch-tensorrt" and precision == "int8":
        raise UserError(
            "`--builder torch-tensorrt` was given with `--precision int8`, which is built from ONNX",
            code="bad-setting",
            hint="take --builder tensorrt",
        )
    able = [name for name in get_args(BuilderName) if not (name == "torch-tensorrt" and precision == "int8")]
    names: list[BuilderName] = [asked] if asked is not None else able
    faults: list[UserError] = []
    for name in names:
        if importlib.util.find_spec(_MODULES[name]) is not None:
            try:
                return Builder(name, _load(name))
            except UserError as fault:
                faults.append(fault)
    if faults:
        raise faults[0]
    first = names[0]
    raise missing_extra(_MODULES[first], _EXTRAS[first], f"building TensorRT engines ({precision})")


def _load(name: BuilderName) -> Any:
    try:
        return importlib.import_module(_MODULES[name])
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise UserError(
            f"the package `{_MODULES[name]}` is installed and cannot be loaded ({reason})",
            code="no-driver",
            hint="it needs an NVIDIA driver; without one take `--builder tensorrt-rtx`, with the extra `tensorrt-rtx`",
        ) from error


def _from_program(torch_tensorrt: Any, lowered: Lowered, sizes: Sizes, cache: Path, *, exact: bool) -> bytes:
    network = lowered.network.cuda()
    try:
        program = exported(lowered._replace(network=network), sizes, device="cuda")
        dtypes = {
            argument.name: argument.meta["val"].dtype
            for argument in program.graph.nodes
            if argument.op == "placeholder"
        }
        inputs = [
            torch_tensorrt.Input(min_shape=least, opt_shape=usual, max_shape=most, dtype=dtypes[name], name=name)
            for name, (least, usual, most) in lowered.profile.items()
        ]
        engine: bytes = torch_tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine(
            program,
            arg_inputs=inputs,
            arg_input_binding_names=tuple(lowered.ports),
            output_binding_names=lowered.outputs,
            disable_tf32=exact,
            attn_bias_is_causal=False,
            immutable_weights=True,
            timing_cache_path=str(cache),
        )
        return engine
    except RuntimeError as error:
        raise _refused(lowered, "Torch-TensorRT", str(error)) from error
    finally:
        network.cpu()


def _from_onnx(builder: Builder, lowered: Lowered, onnx: Path, cache: Path, *, exact: bool) -> bytes:
    trt = builder.module
    logger = trt.Logger(trt.Logger.ERROR)
    maker = trt.Builder(logger)
    network = maker.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx.read_bytes()):
        raise _refused(lowered, builder.name, parser.get_error(0).desc())
    config = maker.create_builder_config()
    if exact:
        config.clear_flag(trt.BuilderFlag.TF32)
    profile = maker.create_optimization_profile()
    for name, (least, usual, most) in lowered.profile.items():
        profile.set_shape(name, least, usual, most)
    config.add_optimization_profile(profile)
    keeps_times = builder.name == "tensorrt"
    if keeps_times:
        known = cache.read_bytes() if cache.is_file() else b""
        config.set_timing_cache(config.create_timing_cache(known), ignore_mismatch=False)
    engine = maker.build_serialized_network(network, config)
    if engine is None:
        raise _refused(lowered, builder.name, "no engine was built")
    if keeps_times:
        cache.write_bytes(bytes(config.get_timing_cache().serialize()))
    return bytes(engine)


def _refused(lowered: Lowered, builder: str, reason: str) -> GateError:
    return GateError(
        f"{builder} refuses the {lowered.name}: {(reason.splitlines() or ['no reason given'])[0]}",
        code="engine-refused",
        hint="nothing was written; see docs/tensorrt.md for the versions that go together",
    )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _gpu() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} (compute capability {major}.{minor})"
