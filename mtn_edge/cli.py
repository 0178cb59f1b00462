"""The command line: joins the commands of the three packages, and turns every fault into one sentence and a status."""

from __future__ import annotations

import json
import sys
import traceback

import typer
from typer.exceptions import TyperException

from export.cli import app as export_app
from export.cli import quantize, verify
from export.compress.cli import compress
from mtn_edge.data.cli import app as data_app
from mtn_edge.demo import demo
from mtn_edge.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_USAGE, UserError
from mtn_edge.evaluation.cli import evaluate
from mtn_edge.profiling.cli import profile
from mtn_edge.runtime import cli as runtime_cli
from mtn_edge.training.cli import train
from quantize.cli import distill, prune

app = typer.Typer(
    name="mtn-edge",
    help="From a search log to a few megabytes that suggest the next query, within milliseconds of a key press.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("suggest")(runtime_cli.suggest)
app.command("inspect")(runtime_cli.inspect)
app.command("doctor")(runtime_cli.doctor)
app.add_typer(data_app, name="data")
app.command("prune")(prune)
app.command("quantize")(quantize)
app.command("compress")(compress)
app.command("verify")(verify)
app.add_typer(export_app, name="export")
app.command("train")(train)
app.command("distill")(distill)
app.command("evaluate")(evaluate)
app.command("profile")(profile)
app.command("demo")(demo)


def main() -> None:
    """Entry point of `mtn-edge`."""
    verbose, as_json = (bool({*sys.argv[1:]} & flags) for flags in ({"-v", "--verbose"}, {"--json"}))
    try:
        status = app(standalone_mode=False)
        if status == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
    except UserError as error:
        _tell(error.message, error.code, error.hint, as_json=as_json, verbose=verbose)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _tell("interrupted", "interrupted", "", as_json=as_json, verbose=verbose)
        sys.exit(EXIT_INTERRUPTED)
    except TyperException as error:
        if error.format_message().startswith("Usage:"):  # no arguments at all: the help is the message
            print(error.format_message(), file=sys.stderr)
            sys.exit(EXIT_USAGE)
        _tell(error.format_message().rstrip("."), "usage", "see --help", as_json=as_json, verbose=verbose)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_FAULT)
    except Exception as error:
        _tell(
            f"unexpected fault: {error!r}",
            "internal",
            "run again with -v and report it",
            as_json=as_json,
            verbose=verbose,
        )
        sys.exit(EXIT_FAULT)
    sys.exit(status if isinstance(status, int) else 0)


def _tell(message: str, code: str, hint: str, *, as_json: bool, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint}}, ensure_ascii=False))
    else:
        print(f"error: {message}{'; ' + hint if hint else ''}.", file=sys.stderr)
