"""The command that teaches a smaller network: `distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mtn_edge.console import ForceFlag, JsonFlag, VerboseFlag, emit, say
from mtn_edge.errors import missing_extra
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
    emit(result, as_json=as_json, words=_words(result))


def _words(result: dict[str, Any]) -> str:
    about = result["distillation"]
    return (
        f"{training_cli.words(result)}\nThe teacher: {about['teacher_valid_loss']:.4f} nats per token; the student is "
        f"{about['kl']:.4f} nats from it and finds the same token most probable in {about['top1']:.1%} of the cases."
    )
