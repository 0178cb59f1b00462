"""What runs the two networks: ONNX Runtime, on a CPU or a GPU, or TensorRT.

Both give a function from arrays by name to arrays by name, see `export.tensorrt.batch`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from export.tensorrt.batch import BatchEngine
from export.tensorrt.sizes import Sizes


class OnnxNetwork:
    """A network as ONNX on ONNX Runtime.

    Args:
        path: the file.
        providers: of ONNX Runtime, the preferred one first.
        threads: threads of one call.
    """

    def __init__(self, path: Path, *, providers: Sequence[str] = ("CPUExecutionProvider",), threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(str(path), options, providers=list(providers))
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        self._outputs = [entry.name for entry in self._session.get_outputs()]

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch."""
        made = self._session.run(self._outputs, {name: feeds[name] for name in self._inputs})
        return dict(zip(self._outputs, made, strict=True))


class TensorRTNetwork:
    """A network as an engine on the GPU; what it gives stays there.

    Args:
        path: the engine.
        runtime: the module that runs it, `tensorrt` or `tensorrt_rtx`: the manifest says which.
    """

    def __init__(self, path: Path, runtime: str) -> None:
        import torch

        trt = importlib.import_module(runtime)
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))  # must live as long as the engine
        self._engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        self._context = self._engine.create_execution_context()
        self._lock = threading.Lock()  # a context runs one batch at a time
        names = [self._engine.get_tensor_name(number) for number in range(self._engine.num_io_tensors)]
        self._inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        elements = {
            trt.DataType.FLOAT: torch.float32,
            trt.DataType.HALF: torch.float16,
            trt.DataType.INT64: torch.int64,
            trt.DataType.UINT8: torch.uint8,
        }
        self._outputs = {
            name: elements[self._engine.get_tensor_dtype(name)] for name in names if name not in self._inputs
        }

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch.

        Raises:
            RuntimeError: an input lies outside the engine's profile.
        """
        import torch

        given = {name: torch.as_tensor(feeds[name]).cuda(non_blocking=True).contiguous() for name in self._inputs}
        with self._lock:
            for name, tensor in given.items():
                self._context.set_input_shape(name, tuple(tensor.shape))
                self._context.set_tensor_address(name, tensor.data_ptr())
            made = {}
            for name, element in self._outputs.items():
                made[name] = torch.empty(tuple(self._context.get_tensor_shape(name)), dtype=element, device="cuda")
                self._context.set_tensor_address(name, made[name].data_ptr())
            stream = torch.cuda.current_stream()
            if not self._context.execute_async_v3(stream.cuda_stream):
                raise RuntimeError("TensorRT could not run the batch: an input lies outside the engine's profile")
            stream.synchronize()
        return made


def onnx_engine(folder: Path, sizes: Sizes, *, providers: Sequence[str] = ("CPUExecutionProvider",)) -> BatchEngine:
    """The ONNX files of `folder` as one engine."""
    encode, search = (OnnxNetwork(folder / f"{name}.onnx", providers=providers) for name in ("encoder", "search"))
    return BatchEngine(encode, search, sizes)


def tensorrt_engine(folder: Path, sizes: Sizes, runtime: str) -> BatchEngine:
    """The engines of `folder` as one engine on the GPU."""
    encode, search = (TensorRTNetwork(folder / f"{name}.engine", runtime) for name in ("encoder", "search"))

    def answer(feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {name: np.asarray(tensor.cpu()) for name, tensor in search(feeds).items()}

    return BatchEngine(encode, answer, sizes)
