"""Writes `docs/settings.md` from the dataclasses of `mtn_edge/config.py`: `python docs/settings.py`."""

import ast
import dataclasses
import inspect
import itertools
from pathlib import Path

from mtn_edge import config as settings
from mtn_edge.config import DistillConfig, preset

PAGE = Path(__file__).with_suffix(".md")
PRESETS = ("tiny", "small", "base")


def render() -> str:
    """The page: a table of settings for each section, with the value of every preset."""
    lines = [
        "# Settings",
        "",
        "`train` and `distill` take them from a preset, then from `--config FILE.toml`, then from",
        "`--set section.key=value`; the later wins. The resolved ones lie in the checkpoint's `config.toml`. Written",
        "by `python docs/settings.py`.",
    ]
    configs = [dataclasses.replace(preset(name), distill=DistillConfig()) for name in PRESETS]
    for section in dataclasses.fields(configs[0]):
        kind = type(getattr(configs[0], section.name))
        lines += [
            "",
            f"## [{section.name}]",
            "",
            "| setting | " + " | ".join(PRESETS) + " | meaning |",
            "|---|---|---|---|---|",
        ]
        for key, sentence in _sentences(kind).items():
            values = " | ".join(str(getattr(getattr(config, section.name), key)) for config in configs)
            lines.append(f"| `{section.name}.{key}` | {values} | {sentence} |")
    return "\n".join(lines) + "\n"


def _sentences(kind: type) -> dict[str, str]:
    """The sentence under each field of a dataclass of `mtn_edge/config.py`."""
    tree = ast.parse(inspect.getsource(settings))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    return {
        field.target.id: " ".join(sentence.value.value.split())
        for field, sentence in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(sentence, ast.Expr)
        and isinstance(sentence.value, ast.Constant)
        and isinstance(sentence.value.value, str)
    }


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
