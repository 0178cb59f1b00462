"""The commands that make and check what is deployed: `quantize`, `verify`, `export mobile|tensorrt|triton`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag, emit
from mtn_edge.errors import EXIT_GATE, missing_extra

app = typer.Typer(help="Take a bundle to where it runs.", no_args_is_help=True, rich_markup_mode=None)


def quantize(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="What `train` wrote.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE", help="The new bundle.")],
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights, activations quantized as they come.")] = False,
    int4: Annotated[bool, typer.Option("--int4", help="4-bit weights in blocks of 32, the table in 8 bits.")] = False,
    fp32: Annotated[bool, typer.Option("--fp32", help="32-bit weights, equal to PyTorch.")] = False,
    method: Annotated[
        Literal["dynamic", "static", "qat"] | None,
        typer.Option(
            help="Of --int8: activations quantized as they come, by ranges found on --data, or trained for on --data.",
            show_default="dynamic",
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            help="Largest share of MRR that may be lost on --data's validation split; dear groups stay larger.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET", help="For held-out comparisons and the list of popular completions.", show_default=False
        ),
    ] = None,
    ngram_from: Annotated[
        Path | None,
        typer.Option(
            "--ngram-from",
            metavar="DATASET",
            help="Count the n-gram anew from the queries of this dataset.",
            show_default=False,
        ),
    ] = None,
    blocklist: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Words and phrases never to suggest, one a line; tokens of the vocabulary stay.",
            show_default=False,
        ),
    ] = None,
    hash_blocklist: Annotated[
        bool, typer.Option("--hash-blocklist", help="Put hashes of them into the bundle instead of the words.")
    ] = False,
    seed: SeedOption = 1,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Make a bundle from a checkpoint: graphs for ONNX Runtime that are compared with PyTorch before they are kept."""
    if int8 + int4 + fp32 != 1:
        raise typer.BadParameter("give one of --int8, --int4 and --fp32")
    if method is not None and not int8:
        raise typer.BadParameter(f"--method {method} goes with --int8")
    if max_drop is not None and fp32:
        raise typer.BadParameter("--max-drop goes with --int8 or --int4")
    if max_drop is not None and not 0 <= max_drop < 1:
        raise typer.BadParameter(f"--max-drop is {max_drop:g}, and it must be at least 0 and below 1")
    for flag, needs in (("--max-drop", max_drop is not None), (f"--method {method}", method in ("static", "qat"))):
        if needs and data is None:
            raise typer.BadParameter(f"{flag} needs --data")
    if hash_blocklist and blocklist is None:
        raise typer.BadParameter("--hash-blocklist needs --blocklist")
    for package in ("torch", "onnx", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "making a bundle")
    from export.bundle import write_bundle

    manifest = write_bundle(
        checkpoint,
        output,
        precision="int8" if int8 else "int4" if int4 else "fp32",
        method=method or "dynamic",
        max_drop=max_drop,
        dataset=data,
        ngram_from=ngram_from,
        blocklist=blocklist,
        hash_blocklist=hash_blocklist,
        force=force,
        seed=seed,
    )
    total = sum(entry["bytes"] for entry in manifest["files"].values())
    document = {
        "bundle": str(output),
        "bytes": total,
        **{name: manifest[name] for name in ("precision", "quantization", "sizes", "quality", "gates")},
    }
    held = f"{len(manifest['gates'])} gates held"
    emit(document, as_json=as_json, words=f"{output}: {total / 1e6:.2f} MB, {held}; see {output / 'MODEL_CARD.md'}")


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="What `quantize` wrote.", show_default=False)],
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="PUBLIC.pem", help="The key that it must be signed with.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Check a bundle where it lies: hashes, graphs, PyTorch's scores, golden vectors, and that the session matters."""
    from export.checks import table
    from export.verify import report, verify_bundle

    checks = verify_bundle(bundle, key=key)
    document = report(bundle, checks)
    words = f"{table(checks)}\n{bundle}: {'verified' if document['ok'] else 'FAILED'}"
    emit(document, as_json=as_json, words=words)
    if not document["ok"]:
        raise typer.Exit(EXIT_GATE)


@app.command("mobile")
def mobile(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT|BUNDLE", help="A bundle, or what to make an int8 one of.", show_default=False
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE", help="The new bundle.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DATASET", help="For the bundle of a checkpoint.", show_default=False)
    ] = None,
    ort_format: Annotated[
        bool, typer.Option("--ort-format", help="Graphs for a reduced build of ONNX Runtime, which reads no ONNX.")
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="PRIVATE.pem", help="Sign with this Ed25519 key.", show_default=False),
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Copy a bundle for a device: in ONNX Runtime's own format, signed, and verified again."""
    from export.mobile import OPERATORS_AND_TYPES, export_mobile

    manifest = export_mobile(source, output, ort_format=ort_format, dataset=data, sign_with=sign, force=force)
    total = sum(entry["bytes"] for entry in manifest["files"].values())
    words = f"{output}: {total / 1e6:.2f} MB, verified, {'signed' if sign is not None else 'not signed'}"
    if ort_format:
        words += (
            f"\nfor a runtime with these operators alone, in a checkout of ONNX Runtime: ./build.sh --config MinSizeRel"
            f" --minimal_build extended --include_ops_by_config {output / OPERATORS_AND_TYPES}"
            " --enable_reduced_operator_type_support"
        )
    document = {"bundle": str(output), "bytes": total, "signed": sign is not None, "ort_format": ort_format}
    emit(document, as_json=as_json, words=words)


@app.command("triton")
def triton(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="ENGINES|BUNDLE",
            help="A bundle, to be served on CPUs, or engines for TensorRT, on GPUs.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REPOSITORY", help="The new model repository.")],
    model_name: Annotated[
        str, typer.Option("--model-name", metavar="NAME", help="What clients call the model.")
    ] = "suggest",
    instances: Annotated[int, typer.Option(help="Processes that answer, each on one core.", min=1)] = 1,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Write a model repository for Triton: a bundle behind its Python backend or engines behind its TensorRT one."""
    from export.triton.repository import export_triton

    manifest = export_triton(source, output, model_name=model_name, instances=instances, force=force)
    total = sum(entry["bytes"] for entry in manifest["files"].values())
    document = {"repository": str(output), "bytes": total, "model_name": model_name, "instances": instances}
    words = f"{output}: {total / 1e6:.2f} MB; serve it with tritonserver --model-repository {output}"
    emit(document, as_json=as_json, words=words)


@app.command("tensorrt")
def tensorrt(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="What `train` wrote.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="ENGINES", help="The new folder.")],
    precision: Annotated[
        Literal["fp32", "fp16", "int8"], typer.Option(help="32 bits, equal to PyTorch; 16 bits; 8 bits from ONNX.")
    ] = "fp32",
    max_batch: Annotated[int, typer.Option("--max-batch", help="Key presses of a batch at most.")] = 64,
    beam: Annotated[int, typer.Option(help="Hypotheses of a search, and suggestions at most.")] = 8,
    steps: Annotated[int, typer.Option(help="Tokens that a search writes at most, with the end.")] = 12,
    builder: Annotated[
        Literal["torch-tensorrt", "tensorrt", "tensorrt-rtx"] | None,
        typer.Option(help="Who builds the engines.", show_default="the first that is installed"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DATASET", help="For the ranges of int8, the lists and the floors.", show_default=False),
    ] = None,
    blocklist: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Words and phrases never to suggest, one a line.", show_default=False),
    ] = None,
    seed: SeedOption = 1,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Build engines for GPU servers: a batch of key presses is one call."""
    for package in ("torch", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "building engines")
    from export.tensorrt.write import write_engines

    manifest = write_engines(
        checkpoint,
        output,
        precision=precision,
        builder=builder,
        beam=beam,
        steps=steps,
        max_batch=max_batch,
        dataset=data,
        blocklist=blocklist,
        force=force,
        seed=seed,
    )
    total = sum(entry["bytes"] for entry in manifest["files"].values())
    document = {
        "engines": str(output),
        "bytes": total,
        **{name: manifest[name] for name in ("precision", "builder", "profiles", "gates")},
    }
    built = f"built by {manifest['builder']['name']} {manifest['builder']['version']}"
    emit(document, as_json=as_json, words=f"{output}: {total / 1e6:.2f} MB, {built}; see `mtn-edge inspect {output}`")
