"""Writing one HTML page: templates beside this file, plots as inline SVG, the file in place whole or not at all."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from mtn_edge import __version__
from mtn_edge.errors import UserError, missing_extra
from mtn_edge.folders import refuse_unwritable

GENERATOR = '<meta name="generator" content="mtn-edge'
"""Stands in the head of every page, so that a page of this tool is known from other files."""

_HEAD_BYTES = 1024


def prepare_page(path: Path, *, force: bool) -> None:
    """Says early, before any work, that no page can be written to `path`.

    Raises:
        UserError: the packages for reports are not installed, `path` exists and may not be replaced, or nothing can be
            written there.
    """
    for package in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "report", "--report")
    if path.is_dir():
        raise UserError(f"`{path}` is a folder", code="exists", hint="name a file with --report")
    if not path.exists():
        refuse_unwritable(path, hint="choose another --report")
        return
    if not force:
        raise UserError(
            f"`{path}` exists already and nothing is overwritten",
            code="exists",
            hint="choose another name with --report, or replace it with --force",
        )
    with path.open("rb") as handle:
        if GENERATOR.encode() not in handle.read(_HEAD_BYTES):
            raise UserError(
                f"`{path}` is not a page that mtn-edge wrote, so --force does not replace it",
                code="not-ours",
                hint="choose another name with --report, or remove it yourself",
            )


def write_page(path: Path, template: str, values: dict[str, Any], *, templates: Path | None = None) -> None:
    """Renders `template` (a file of this folder) and puts it in place.

    Args:
        path: the HTML file; its folder is made when it is missing.
        template: name of the template, which extends `base.html`.
        templates: a folder of other templates than those of this one.
        values: what the template shows; text is escaped, `plots.Svg` is not.

    Raises:
        UserError: the file cannot be written.
    """
    import jinja2

    own = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([own] if templates is None else [templates, own]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template(template).render(values | {"generator": f"mtn-edge {__version__}"})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(html)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"`{path}` cannot be written ({error.strerror})", code="not-writable", hint="choose another --report"
        ) from error
