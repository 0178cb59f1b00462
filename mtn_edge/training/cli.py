"""The command `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mtn_edge.config import Config, load_config, override, preset
from mtn_edge.console import ForceFlag, JsonFlag, VerboseFlag, duration, emit, say
from mtn_edge.errors import missing_extra


def train(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `data prepare` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="CHECKPOINT", help="The new checkpoint.")],
    arch: Annotated[
        Literal["mtn", "transformer", "seq2seq", "hred", "tail-lstm"], typer.Option(help="The network.")
    ] = "mtn",
    preset_name: Annotated[
        Literal["tiny", "small", "base"], typer.Option("--preset", help="Settings to start from.")
    ] = "tiny",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, section.key=value; may be repeated.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.toml", help="A file of settings.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto",
    devices: Annotated[int, typer.Option(help="Processes on this machine, each on its own GPU or on the CPU.")] = 1,
    time_budget: Annotated[
        str | None, typer.Option(metavar="SECONDS|10m|2h", help="End within this time, in place of train.time_budget.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the metrics for TensorBoard too.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random, in place of train.seed.")] = None,
    as_json: JsonFlag = False,
    force: ForceFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Train a network on a dataset and write a checkpoint.

    Settings come from the preset, then from --config, then from --set; the later wins. A run that was stopped or
    killed goes on with the same command and --resume.
    """
    config = read_settings(preset_name, arch, config_file, settings, seed=seed, time_budget=time_budget)
    try:
        from mtn_edge.training.run import train_model
    except ImportError as error:
        raise missing_extra(error.name or "torch", "train", "training") from error
    result = train_model(
        dataset,
        output,
        config=config,
        device=device,
        devices=devices,
        tensorboard=tensorboard,
        resume=resume,
        force=force,
    )
    if verbose:
        say("\n".join(f"{key}: {value}" for key, value in result.items()))
    emit(result, as_json=as_json, words=words(result))


def read_settings(
    preset_name: str,
    arch: str,
    config_file: Path | None,
    settings: list[str] | None,
    *,
    seed: int | None,
    time_budget: str | None,
) -> Config:
    """The settings that the options of `train` and `distill` ask for.

    Raises:
        UserError: one of them is unknown or malformed.
    """
    config = preset(preset_name, arch)
    if config_file is not None:
        config = load_config(config_file, config)
    config = override(config, [*(settings or []), f"model.arch={arch}"])
    if seed is not None:
        config = override(config, [f"train.seed={seed}"])
    if time_budget is not None:
        config = override(config, [f"train.time_budget={duration('--time-budget', time_budget)}"])
    return config


def words(result: dict[str, Any]) -> str:
    """What training came to, for people."""
    if result["status"] == "finished already":
        return f"{result['checkpoint']} is finished: nothing to resume, {result['valid_loss']:.4f} nats per token."
    why = " (stopped early)" if result["stopped_early"] else ""
    return (
        f"{result['checkpoint']}: {result['parameters']:,} parameters, {result['steps']:,} steps in "
        f"{result['seconds']:,.0f} s{why}; best at step {result['best_step']:,}: "
        f"{result['valid_loss']:.4f} nats per token on the validation split."
    )
