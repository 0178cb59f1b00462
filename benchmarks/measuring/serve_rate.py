"""Key presses a second of one folder of engines, and of ONNX Runtime on its ONNX; `gpu_serve.sh` calls it for several.

Key presses come from a dataset's test split: the session before a query, and a part of that query typed. A batch is
measured from arrays in the host's memory to arrays there. Before it is timed, each system must find what PyTorch finds
in float32.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import torch

from export.bundle import prefixes_of
from export.checks import Check
from export.held_out import dataset_pairs
from export.tensorrt import agreement
from export.tensorrt.batch import BatchEngine, KeyPress
from export.tensorrt.networks import build_networks
from export.tensorrt.runners import onnx_engine, tensorrt_engine
from export.tensorrt.sizes import Sizes
from export.tensorrt.write import presses_of, suggester_of
from mtn_edge.data.dataset import Dataset
from mtn_edge.decoding.torch_engine import TorchEngine
from mtn_edge.folders import check_files, read_manifest
from mtn_edge.models.mtn import MTN
from mtn_edge.profiling.machine import describe_machine
from mtn_edge.training.checkpoint import load_checkpoint

PACKAGES = (
    *("mtn-edge", "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu"),
    *("tensorrt", "torch-tensorrt", "tensorrt-rtx"),
)
PRESSES = 1024
FASTER = 2.0
"""Key presses a second of TensorRT over ONNX Runtime's at the largest batch, at least."""


def main() -> None:
    """Adds the rows and goals of one folder to the JSON document."""
    options = parse_arguments()
    torch.set_num_threads(1)
    manifest = read_manifest(options.engines, "engines")
    check_files(options.engines, manifest)
    sizes, precision = Sizes(**manifest["sizes"]), manifest["precision"]
    checkpoint = load_checkpoint(options.checkpoint)
    local = build_networks(cast(MTN, checkpoint.model), sizes).engine(sizes)
    suggester = suggester_of(checkpoint, local, sizes)
    constraint, prefixes = suggester.search.constraint, prefixes_of(checkpoint.tokenizer)
    cases = agreement.record(TorchEngine(checkpoint.model), local, sizes, constraint, prefixes, seed=1)
    presses = presses_of(suggester, sizes, dataset_pairs(Dataset.open(options.data).sessions("test"), PRESSES, 1))

    rates: dict[str, float] = {}
    for name, engine in systems(options.engines, sizes, manifest, options.device).items():
        checks = agreement.check(engine, sizes, cases, precision, name)
        rows = [
            {"system": name, "precision": precision, **rate(engine, presses, batch, options.seconds)}
            for batch in batches(sizes.max_batch)
        ]
        rates[name] = rows[-1]["presses_per_second"]
        add(options.output, rows, [goal(check) for check in checks])
        for row in rows:
            print(
                f"{name}, {precision}, batch {row['batch']}: {row['presses_per_second']:,.0f} key presses/s, "
                f"{row['batch_ms']:.2f} ms a batch",
                flush=True,
            )
    if {"TensorRT", "ONNX Runtime cuda"} <= rates.keys():
        ratio = rates["TensorRT"] / rates["ONNX Runtime cuda"]
        name = f"{precision}: key presses/s of TensorRT over ONNX Runtime's, batch {sizes.max_batch} (at least)"
        add(options.output, [], [{"name": name, "value": ratio, "bound": FASTER, "ok": ratio >= FASTER}])


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=Path, help="what `mtn-edge export tensorrt` wrote")
    parser.add_argument("--checkpoint", type=Path, required=True, help="what they were built from")
    parser.add_argument("--data", type=Path, required=True, help="a dataset in the tokens of the checkpoint")
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--seconds", type=float, required=True, help="time for each size of batch")
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser.parse_args()


def systems(folder: Path, sizes: Sizes, manifest: dict[str, Any], device: str) -> dict[str, BatchEngine]:
    """What can run the networks here, by name."""
    if device == "cpu":
        return {"ONNX Runtime cpu": onnx_engine(folder, sizes)}
    import onnxruntime

    found = {"TensorRT": tensorrt_engine(folder, sizes, manifest["builder"]["runtime"])}
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        found["ONNX Runtime cuda"] = onnx_engine(folder, sizes, providers=["CUDAExecutionProvider"])
    else:
        print("ONNX Runtime has no CUDA provider here (package onnxruntime-gpu): no peer", flush=True)
    return found


def batches(largest: int) -> list[int]:
    """1, 2, 4 and so on up to `largest`."""
    sizes = [1]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    return sizes


def rate(engine: BatchEngine, presses: list[KeyPress], batch: int, seconds: float) -> dict[str, Any]:
    """Runs batches, each of other key presses, after three that do not count."""
    times: list[float] = []
    start = 0
    while len(times) < 8 or sum(times) < seconds:
        chosen = [presses[(start + place) % len(presses)] for place in range(batch)]
        start += batch
        began = time.perf_counter()
        engine.run(chosen)
        times.append(time.perf_counter() - began)
    counted = sorted(times[3:])
    typical = statistics.median(counted)
    return {
        "batch": batch,
        "batches": len(counted),
        "batch_ms": 1000 * typical,
        "batch_ms_p99": 1000 * counted[min(len(counted) - 1, int(0.99 * len(counted)))],
        "presses_per_second": batch / typical,
    }


def goal(check: Check) -> dict[str, Any]:
    """A check of agreement as a goal of the document."""
    return {"name": check.name, "value": check.value, "bound": check.bound, "ok": check.ok}


def add(path: Path, rows: list[dict[str, Any]], goals: list[dict[str, Any]]) -> None:
    """Writes the document anew with more rows and goals."""
    fresh = {"machine": describe_machine(), "gpu": gpu(), "versions": versions(), "goals": [], "rows": []}
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else fresh
    document["rows"] += rows
    document["goals"] += goals
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def versions() -> dict[str, str]:
    """Of the packages that matter and are installed: ONNX Runtime has one name for CPUs and another for GPUs."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def gpu() -> str | None:
    """The GPU's name."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


if __name__ == "__main__":
    main()
