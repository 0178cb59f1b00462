"""The commands that make a smaller network: `distill`, `prune`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mtn_edge.console import ForceFlag, JsonFlag, SeedOption, VerboseFlag, emit, say
from mtn_edge.errors import UserError, missing_extra
from mtn_edge.training import cli as training_cli


def distill(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `data prepare` wrote.")],
    teacher: Annotated[Path, typer.Option("--teacher", metavar="CHECKPOINT", help="What to learn from.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="CHECKPOINT", help="The new checkpoint.")],
    arch: Annotated[
        Literal["mtn", "transformer", "seq2seq", "hred", "tail-lstm"], typer.Option(help="The student's network.")
    ] = "mtn",
    preset_name: Annotated[
        Literal["tiny", "small", "base"], typer.Option("--preset", help="The student's settings to start from.")
    ] = "tiny",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, section.key=value; may be repeated.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.toml", help="A file of settings.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto",
    time_budget: Annotated[
        str | None, typer.Option(metavar="SECONDS|10m|2h", help="End within this time, in place of train.time_budget.")
    ] = None,
    teacher_cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the teacher's outputs here, for other students too.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random, in place of train.seed.")] = None,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Train a smaller network, the student, on a dataset and on what a trained one says about it.

    Settings as in `train`, and those of [distill]. --set model.decoder_layers=1 makes the student's decoder, which
    each key press runs, shallower. A run that was stopped or killed goes on with the same command and --resume.
    """
    config = training_cli.read_settings(preset_name, arch, config_file, settings, seed=seed, time_budget=time_budget)
    try:
        from quantize.distill import distill_model
    except ImportError as error:
        raise missing_extra(error.name or "torch", "train", "distillation") from error
    result = distill_model(
        dataset,
        output,
        teacher=teacher,
        config=config,
        device=device,
        cache=teacher_cache,
        resume=resume,
        force=force,
    )
    if verbose:
        say("\n".join(f"{key}: {value}" for key, value in result.items()))
    emit(result, as_json=as_json, words=_distilled(result))


def _distilled(result: dict[str, Any]) -> str:
    about = result["distillation"]
    return (
        f"{training_cli.words(result)}\nThe teacher: {about['teacher_valid_loss']:.4f} nats per token; the student is "
        f"{about['kl']:.4f} nats from it and finds the same token most probable in {about['top1']:.1%} of the cases."
    )


def prune(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="What `train` wrote.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="CHECKPOINT", help="The new checkpoint.")],
    ffn: Annotated[float, typer.Option(metavar="SHARE", help="Share of all feed-forward units to remove.")] = 0.0,
    heads: Annotated[float, typer.Option(metavar="SHARE", help="Share of all attention heads to remove.")] = 0.0,
    layers: Annotated[float, typer.Option(metavar="SHARE", help="Share of each stack's layers to remove.")] = 0.0,
    vocab: Annotated[float, typer.Option(metavar="SHARE", help="Share of the tokens to remove.")] = 0.0,
    rank: Annotated[float, typer.Option(metavar="SHARE", help="Share of the embedding's width to remove.")] = 0.0,
    sparsity: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|2:4",
            help="Share of each matrix' weights to set to zero, or two of every four: a smaller download, no speed.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET",
            help="Measure importance by gradients on it, count tokens in it, and recover on it.",
            show_default=False,
        ),
    ] = None,
    recover_epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training split after each round; 0 for no recovery.", show_default="2 with --data"
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Remove in so many parts, with a recovery after each.", min=1)] = 1,
    seed: SeedOption = 1,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Remove the least important parts of a network for good, and train what is left for a while.

    Every SHARE is the share that is removed: --ffn 0.3 removes 30 % of the feed-forward units and keeps 70 %. Without
    --data the importance of a part is the size of its weights, the tokens learnt last go first, and nothing recovers.
    --sparsity alone removes nothing: weights become zero and stay zero.
    """
    if not (ffn or heads or layers or vocab or rank or sparsity):
        raise typer.BadParameter(
            "nothing is to be removed: give one of --ffn, --heads, --layers, --vocab, --rank, --sparsity"
        )
    if recover_epochs is None:
        recover_epochs = 2 if data is not None else 0
    if recover_epochs < 0:
        raise typer.BadParameter(f"--recover-epochs is {recover_epochs}, and it must be at least 0")
    if data is None and recover_epochs:
        raise UserError("`--recover-epochs` was given without data", code="no-data", hint="name a dataset with --data")
    for package in ("torch", "lightning", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "pruning")
    from quantize.prune import prune_checkpoint
    from quantize.prune_sparsity import parse_sparsity
    from quantize.prune_steps import Shares

    zeros = parse_sparsity(sparsity) if sparsity else 0.0
    report = prune_checkpoint(
        checkpoint,
        output,
        shares=Shares(ffn=ffn, heads=heads, layers=layers, vocab=vocab, rank=rank, sparsity=zeros),
        dataset=data,
        rounds=rounds,
        recover_epochs=recover_epochs,
        force=force,
        seed=seed,
    )
    emit(report, as_json=as_json, words=_pruned(report))


def _pruned(report: dict[str, Any]) -> str:
    asked = " ".join(f"--{name} {share}" for name, share in report["removed"].items())
    before, after = report["before"]["parameters"], report["after"]["parameters"]
    words = f"{report['checkpoint']}: after {asked}, {after:,} of {before:,} parameters are left"
    if report["stages"]:
        first, last = (report["stages"][place]["nats_per_query"] for place in (0, -1))
        words = f"{words}; {last:.3f} nats per query on the validation split, {first:.3f} before"
    return f"{words}.{_zeros(report['zeros'])}" if "zeros" in report else f"{words}."


def _zeros(about: dict[str, Any]) -> str:
    before, after = (about["int8_deflated_bytes"][when] / 1e6 for when in ("before", "after"))
    return (
        f"\n{about['zeros']:.1%} of the {about['weights']:,} weights of the layers' matrices are zero. Download, all "
        f"weights as int8 and deflated: {after:.2f} MB, {before:.2f} MB before. Latency: {about['onnxruntime']}. "
        f"TensorRT: {about['tensorrt']}."
    )
