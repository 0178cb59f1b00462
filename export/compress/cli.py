"""The command `compress`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mtn_edge.console import ForceFlag, JsonFlag, VerboseFlag, emit, say
from mtn_edge.errors import InterruptedRunError, UserError, missing_extra


def compress(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What the teacher was trained on.")],
    teacher: Annotated[Path, typer.Option("--teacher", metavar="CHECKPOINT", help="What is compressed.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE", help="The new bundle.")],
    recipe: Annotated[
        str, typer.Option(metavar="FILE.toml|NAME", help="What to do within which budgets: phone, phone-tiny, server.")
    ],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and how large.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the stages here, for other recipes too.", show_default=False),
    ] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to train.")] = "auto",
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of everything random, in place of student.train.seed.", min=0, max=2**32 - 1),
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    verbose: VerboseFlag = False,  # noqa: ARG001 (read by `main`)
) -> None:
    """Turn a teacher into the smallest bundle that keeps within budgets: distil, prune, quantize, export, measure.

    A run that was stopped or killed goes on with the same command. Without a bundle that keeps all budgets the command
    ends with status 3, and says where the best one lies.
    """
    for package in ("torch", "onnx", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", "compression")
    import shutil

    from export.compress.recipe import load_recipe
    from export.compress.report import plan_in_words, words, write_report
    from export.compress.run import Compressor, publish, refusal
    from export.compress.stages import Stages
    from mtn_edge import folders

    wanted = load_recipe(recipe)
    folders.refuse_overwrite(output, force=force, inputs=(dataset, teacher))
    if report is not None:
        from mtn_edge.pages.page import prepare_page

        prepare_page(report, force=force)
    work = cache if cache is not None else output.parent / f".{output.name}.compress"
    if output.resolve() in (work.resolve(), *work.resolve().parents):
        raise UserError(
            f"`--cache {work}` lies where the bundle is to be, `{output}`, which must be free",
            code="exists",
            hint="choose another folder for one of them",
        )
    if not output.exists():
        folders.refuse_unwritable(output, hint="choose another folder with -o")
    compressor = Compressor(dataset, teacher, wanted, device=device, seed=seed)
    if dry_run:
        plan = compressor.plan(Stages(work))
        emit({"recipe": wanted.name, "points": plan}, as_json=as_json, words=plan_in_words(plan))
        return
    with Stages(work) as stages:
        try:
            found = compressor.run(stages)
        except (KeyboardInterrupt, InterruptedRunError) as error:
            raise InterruptedRunError(
                f"compression was interrupted, and what is done is kept in `{work}`",
                code="interrupted",
                hint="go on with the same command",
            ) from error
        if report is not None:
            write_report(report, found.facts, found.comparison, found.examples, teacher=teacher.resolve().name)
            say(f"report: {report}")
        if found.facts["over"]:
            raise refusal(found)
        publish(found, output, force=force)
        if cache is None:
            shutil.rmtree(work)
    document: dict[str, Any] = {"bundle": str(output), "compression": found.facts}
    text = f"{words(found.facts)}\n\n{output}: see {output / 'MODEL_CARD.md'}"
    emit(document, as_json=as_json, words=text)
