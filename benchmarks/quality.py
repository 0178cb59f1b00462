"""How good is the MTN beside its rivals of equal size, lists and n-grams, and the best that is possible?

    python benchmarks/quality.py [--quick] [--corpora simulator,msmarco,sgd] [--seeds 3] [--jobs N] [-o FILE.json]

One protocol (docs/evaluation.md), all systems: networks with equal numbers of parameters (within 2 %), each trained
with several seeds; the MTN and the flat Transformer with an n-gram, with copying, with both and with the lists of a
bundle mixed in; lists; n-grams within the bytes of the MTN as int8; on simulated sessions the exact ceiling. A cell
is one system on one corpus with one seed: it takes at most about ten minutes, is kept in `benchmarks/work/quality/`
when it is done, and goes on from its saved state when it was killed, so the table can be made in parts. The real
corpora are read from `shared/data` beside the project and are left out, loudly, where that is missing. Beside FILE.json
stands FILE.html with plots.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from comparing.cells import Cell, cells_of, run_cell
from comparing.corpora import CORPORA, ROOT, Corpus, quick
from comparing.figures import figures_of, goals_of
from comparing.front import front_of
from comparing.page import write_report

from mtn_edge.evaluation.report import words
from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.machine import describe_machine, describe_versions

WORK = ROOT / "benchmarks" / "work" / "quality"


def main() -> None:
    """Makes the cells that are missing, then the tables from all that are done."""
    options = parse_arguments()
    corpora = [quick(CORPORA[name]) if options.quick else CORPORA[name] for name in options.corpora]
    if options.cell:
        cell = Cell(*options.cell[:2], int(options.cell[2]) if options.cell[2] != "-" else None)
        run_cell(cell, next(corpus for corpus in corpora if corpus.name == cell.corpus), options.work)
        return
    for corpus in [corpus for corpus in corpora if not corpus.available]:
        print(f"{corpus.name} is left out: its logs {', '.join(corpus.logs)} are not at hand", flush=True)
        corpora.remove(corpus)
    if not corpora:
        sys.exit("there is no corpus to make a table of")
    cells = {corpus.name: cells_of(corpus, 1 if options.quick else options.seeds) for corpus in corpora}
    if not options.tables:
        make(corpora, cells, options)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions("torch"),
        "goals": [],
        "corpora": {},
    }
    for corpus in corpora:
        found = figures_of(corpus, cells[corpus.name], options.work)
        document["corpora"][corpus.name] = {"title": corpus.title, "about": corpus.about} | found
        document["goals"] += goals_of(corpus, found)
        print(f"\n{corpus.title}\n{words(found['tasks'])}", flush=True)
    versions = [corpus for corpus in corpora if corpus.name.startswith("msmarco")]
    document["front"] = front_of(versions, document["corpora"], options.work) if versions else []
    if document["front"]:
        print_front(document["front"])
    document["rows"] = [_row(corpus, task, name, summary) for corpus, task, name, summary in _all(document)]
    write(options.output, document)
    write_report(options.output.with_suffix(".html"), document)
    print_goals(document["goals"])
    print(f"written: {options.output} and {options.output.with_suffix('.html').name}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, hardly trained, hardly asked: some minutes")
    parser.add_argument("--corpora", default=",".join(CORPORA), help="which, with commas (all)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each network (3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cells at a time, a core each (all)")
    parser.add_argument("--tables", action="store_true", help="only the tables, from the cells that are done")
    parser.add_argument("--work", type=Path, default=WORK, help="where cells are kept")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "quality.json")
    options = parser.parse_args()
    options.corpora = options.corpora.split(",")
    for name in options.corpora:
        if name not in CORPORA:
            parser.error(f"no corpus `{name}`: take any of {', '.join(CORPORA)}")
    return options


def make(corpora: list[Corpus], cells: dict[str, list[Cell]], options: argparse.Namespace) -> None:
    """Runs the cells that are missing, each in a process of its own: the first seed of all corpora first."""
    for corpus in corpora:
        print(f"{corpus.name}: {corpus.dataset(options.work)}", flush=True)
    todo = [cell for corpus in corpora for cell in cells[corpus.name] if not cell.is_done(options.work, corpus)]
    todo.sort(key=lambda cell: cell.seed or 0)
    print(f"{len(todo)} cells to make, {options.jobs} at a time", flush=True)
    failed: list[str] = []
    for worn in (False, True):  # a network is trained before anything is mixed in
        part = [cell for cell in todo if cell.is_worn == worn]
        with ThreadPoolExecutor(options.jobs) as pool:
            failed += [name for name in pool.map(lambda cell: _run(cell, options), part) if name]
    if failed:
        sys.exit(f"these cells failed: {', '.join(failed)}; the others are kept: run the same command again")


def _run(cell: Cell, options: argparse.Namespace) -> str | None:
    """One cell in a process of its own; its name when it failed."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--work", str(options.work), "--corpora", ",".join(options.corpora)]
    command += ["--cell", cell.corpus, cell.system, str(cell.seed or "-"), *(["--quick"] if options.quick else [])]
    log = options.work / cell.corpus / f"{cell.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(command, stdout=output, stderr=output)
    state = "done" if done.returncode == 0 else f"FAILED, see {log}"
    print(f"{cell.corpus} {cell.name}: {time.monotonic() - began:.0f} s, {state}", flush=True)
    return f"{cell.corpus} {cell.name}" if done.returncode else None


def print_front(front: list[dict[str, Any]]) -> None:
    """What choices cost and save, as a table."""
    table = [["MTN", "parameters", "suggest, MRR@10", "complete, MRR@10", "key press"]]
    for row in front:
        name = row["system"] if row["system"] != "mtn" else f"mtn ({row['corpus']})"
        figures = [f"{row[key]:.3f}" for key in ("suggest", "complete")]
        table.append([name, f"{row['parameters']:,}", *figures, f"{row['keystroke']:.2f} x"])
    print(f"\n{aligned(table)}\n")


def write(path: Path, document: dict[str, Any]) -> None:
    """Puts the document in place whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def print_goals(goals: list[dict[str, Any]]) -> None:
    """The goals as a table."""
    table = [["goal", "value", "interval", "bound", "ok"]]
    for each in goals:
        low, high = each["spread"]
        interval = f"{low:.3f} to {high:.3f}" if low != high else ""
        table.append(
            [each["name"], f"{each['value']:.3f}", interval, f"{each['bound']:.2f}", "yes" if each["ok"] else "NO"]
        )
    print(f"\n{aligned(table)}\n")


def _all(document: dict[str, Any]) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [
        (corpus, task, name, summary)
        for corpus, found in document["corpora"].items()
        for task, systems in found["tasks"].items()
        for name, summary in systems.items()
    ]


def _row(corpus: str, task: str, name: str, summary: dict[str, Any]) -> dict[str, Any]:
    """The table's row: one system on one corpus and task."""
    kept = ("mrr@10", "success@1", "success@10", "bleu", "perplexity", "keystrokes_saved", "calibration_error")
    kept = (*kept, "bytes", "seeds")
    return {"corpus": corpus, "task": task, "system": name} | {measure: summary[measure] for measure in kept}


if __name__ == "__main__":
    main()
