"""What does compression cost, and what does it give? Distilled, pruned, quantized, and by each shipped recipe.

    python benchmarks/compression.py [--corpora simulator,msmarco] [--seeds 3] [--jobs N] [--tables] [-o FILE.json]

A teacher of the preset `small` on each corpus and with each seed; a student of `tiny` with one decoder layer, alone and
taught; the teacher pruned by half and recovered, and a network of that size trained anew; each as float32, some as
int8 and int4. Then `mtn-edge compress` with every shipped recipe on the first teacher. Cells and stages are kept in
`benchmarks/work/compression/`, so the table can be made in parts; the datasets are those of `benchmarks/quality.py`.
Key presses are raced: all answer the same ones in turn, on one thread. Beside FILE.json stands FILE.html with plots.
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

import numpy as np
from comparing.cells import lowered, questions_of
from comparing.corpora import CORPORA, ROOT, Corpus
from comparing.front import race
from comparing.shrinking import ALONE, ANEW, PRECISIONS, PRUNED, TAUGHT, TEACHER, Shrunk, run_shrunk
from comparing.shrinking_page import write_report

from export.compress.recipe import SHIPPED
from mtn_edge.data.dataset import Dataset
from mtn_edge.evaluation.comparison import compare
from mtn_edge.evaluation.summary import columns_of_questions
from mtn_edge.pages.tables import aligned
from mtn_edge.profiling.machine import describe_machine, describe_versions

DATASETS = ROOT / "benchmarks" / "work" / "quality"
WORK = ROOT / "benchmarks" / "work" / "compression"
SMALLER, WITHIN, OF_ITSELF, FASTER, PHONE_MB = 10.0, 0.03, 0.01, 1.8, 5.0
"""Goals: the int8 student beside its float32 teacher in bytes and in MRR@10; int8 beside its own float32 in MRR@10 and
in key presses; a phone's bundle in megabytes."""
RACED = ((TEACHER, "fp32"), (TEACHER, "int8"), (TAUGHT, "fp32"), (TAUGHT, "int8"), (TAUGHT, "int4"), (PRUNED, "int8"))


def main() -> None:
    """Makes what is missing, then the table from all that is done."""
    options = parse_arguments()
    if options.cell:
        corpus, system, seed = options.cell
        run_shrunk(Shrunk(CORPORA[corpus], system, int(seed)), DATASETS, WORK)
        return
    corpora = [CORPORA[name] for name in options.corpora if CORPORA[name].available]
    if not options.tables:
        make(corpora, options)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions("torch"),
        "corpora": {corpus.name: figures_of(corpus, options) for corpus in corpora},
    }
    document["goals"] = [goal for corpus in corpora for goal in goals_of(corpus.name, document["corpora"][corpus.name])]
    for corpus in corpora:
        print(f"\n{corpus.title}\n{words(document['corpora'][corpus.name])}", flush=True)
    for goal in document["goals"]:
        print(f"{'held  ' if goal['ok'] else 'MISSED'} {goal['name']}: {goal['value']:.4g} (bound {goal['bound']:g})")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    write_report(options.output.with_suffix(".html"), document, {corpus.name: corpus.title for corpus in corpora})
    print(f"written: {options.output} and {options.output.with_suffix('.html').name}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", default="simulator,msmarco", help="which, with commas (both)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each network (3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cells at a time, a core each (all)")
    parser.add_argument("--tables", action="store_true", help="only the table, from the cells that are done")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "compression.json")
    options = parser.parse_args()
    options.corpora = options.corpora.split(",")
    return options


def make(corpora: list[Corpus], options: argparse.Namespace) -> None:
    """Runs what is missing, teachers first; students, pruning and recipes once their teacher stands."""
    for corpus in corpora:
        corpus.dataset(DATASETS)
    with ThreadPoolExecutor(options.jobs) as pool:
        for system in PRECISIONS:
            cells = [Shrunk(corpus, system, seed) for seed in range(1, options.seeds + 1) for corpus in corpora]
            list(pool.map(_run, [cell for cell in cells if not cell.is_done(WORK)]))
        list(pool.map(lambda each: _compress(*each), [(corpus, name) for corpus in corpora for name in _recipes()]))


def _run(cell: Shrunk) -> None:
    """One cell in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--cell", cell.corpus.name, cell.system, str(cell.seed)]
    log = WORK / cell.corpus.name / f"{cell.name('fp32')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(command, stdout=output, stderr=output)
    state = "done" if done.returncode == 0 else f"FAILED, see {log}"
    print(f"{cell.corpus.name} {cell.system} {cell.seed}: {time.monotonic() - began:.0f} s, {state}", flush=True)


def _recipes() -> list[str]:
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def _compress(corpus: Corpus, recipe: str) -> None:
    """One shipped recipe on the first teacher; the page and the outcome are kept."""
    folder = WORK / corpus.name / "recipes"
    outcome = folder / f"{recipe}.json"
    if outcome.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    teacher = Shrunk(corpus, TEACHER, 1).checkpoint(WORK)
    command = [sys.executable, "-m", "mtn_edge", "compress", str(corpus.dataset(DATASETS)), "--teacher", str(teacher)]
    command += ["--recipe", recipe, "-o", str(folder / recipe), "--cache", str(WORK / corpus.name / "stages")]
    command += ["--report", str(folder / f"{recipe}.html"), "--force", "--json"]
    with (folder / f"{recipe}.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True)
    if done.returncode in (0, 3):
        outcome.write_text(done.stdout, encoding="utf-8")
    print(f"{corpus.name}, recipe {recipe}: status {done.returncode}", flush=True)


def figures_of(corpus: Corpus, options: argparse.Namespace) -> dict[str, Any]:
    """Rows of all systems whose cells are done, paired differences, the race, the recipes."""
    data = Dataset.open(corpus.dataset(DATASETS))
    questions = questions_of(corpus, data)
    found: dict[str, list[Any]] = {}
    for system, precisions in PRECISIONS.items():
        cells = [Shrunk(corpus, system, seed) for seed in range(1, options.seeds + 1)]
        for precision in precisions:
            loaded = [cell.load(WORK, precision) for cell in cells if cell.is_done(WORK)]
            if loaded:
                found[f"{system}, {precision}"] = loaded
    rows = {}
    for name, loaded in found.items():
        about = loaded[0][1]
        mrr = {
            task: [float(columns_of_questions(answers[task])[0].columns[:, 0].mean()) for answers, _ in loaded]
            for task in questions
        }
        losses = [each["valid_loss"] for _, each in loaded]
        rows[name] = {key: about[key] for key in ("parameters", "bytes")} | {"mrr@10": mrr, "valid_loss": losses}
    pairs = [(f"{TAUGHT}, fp32", f"{ALONE}, fp32"), (f"{PRUNED}, fp32", f"{ANEW}, fp32")]
    pairs += [(f"{TAUGHT}, int8", f"{TEACHER}, fp32")]
    pairs += [(f"{name}, int8", f"{name}, fp32") for name in (TEACHER, TAUGHT, PRUNED)]
    differences = []
    for own, other in pairs:
        for task, asked in questions.items() if own in found and other in found else ():
            count = min(len(found[own]), len(found[other]))
            given = [[answers[task] for answers, _ in found[name][:count]] for name in (own, other)]
            compared = compare(asked, given[0], given[1], seed=1)["mrr@10"]
            differences.append({"system": own, "against": other, "task": task, "seeds": count, **compared})
    return {
        "rows": rows,
        "differences": differences,
        "race": _race(corpus, data),
        "recipes": {
            name: json.loads(file.read_text(encoding="utf-8").replace(f"{ROOT}/", ""))
            for name in _recipes()
            if (file := WORK / corpus.name / "recipes" / f"{name}.json").is_file()
        },
    }


def _race(corpus: Corpus, data: Dataset) -> dict[str, dict[str, float]]:
    """Milliseconds of a key press, and the median of its ratio to the teacher's in float32."""
    done = [(name, precision) for name, precision in RACED if Shrunk(corpus, name, 1).is_done(WORK)]
    if not done:
        return {}
    suggesters = [lowered(Shrunk(corpus, name, 1).checkpoint(WORK), precision) for name, precision in done]  # type: ignore[arg-type]
    times = race(suggesters, data.sessions("test"))
    return {
        f"{name}, {precision}": {
            "p50_ms": 1000 * float(np.median(row)),
            "p95_ms": 1000 * float(np.percentile(row, 95)),
            "faster": float(np.median(times[0] / row)),
        }
        for (name, precision), row in zip(done, times, strict=True)
    }


def goals_of(corpus: str, figures: dict[str, Any]) -> list[dict[str, Any]]:
    """What compression should reach."""
    rows, goals = figures["rows"], []

    def goal(name: str, value: float, bound: float, *, at_most: bool = False) -> None:
        ok = value <= bound if at_most else value >= bound
        goals.append({"name": f"{corpus}: {name}", "value": value, "bound": bound, "ok": bool(ok)})

    student, teacher = f"{TAUGHT}, int8", f"{TEACHER}, fp32"
    if student in rows and teacher in rows:
        goal("int8 student smaller than its fp32 teacher", rows[teacher]["bytes"] / rows[student]["bytes"], SMALLER)
        for task in rows[student]["mrr@10"]:
            goal(f"{task}, MRR@10 lost by the int8 student", _lost(rows, student, teacher, task), WITHIN, at_most=True)
    for name in (TEACHER, TAUGHT, PRUNED):
        own, other = f"{name}, int8", f"{name}, fp32"
        for task in rows[own]["mrr@10"] if own in rows else ():
            goal(f"{task}, MRR@10 lost by int8, {name}", _lost(rows, own, other, task), OF_ITSELF, at_most=True)
    for each in figures["differences"]:
        if each["against"] in (f"{ALONE}, fp32", f"{ANEW}, fp32"):
            goal(f"{each['task']}, {each['system']} - {each['against']}, lower end", each["ci95"][0], 0.0)
    timed = figures["race"]
    for name in (TEACHER, TAUGHT):
        if f"{name}, int8" in timed:
            ratio = timed[f"{name}, fp32"]["p50_ms"] / timed[f"{name}, int8"]["p50_ms"]
            goal(f"int8 faster than fp32, {name}", ratio, FASTER)
    phone = figures["recipes"].get("phone", {})
    if "compression" in phone:
        goal("MB of the phone's bundle", phone["compression"]["bundle"]["bytes"] / 1e6, PHONE_MB, at_most=True)
    return goals


def _lost(rows: dict[str, Any], own: str, other: str, task: str) -> float:
    return 1 - float(np.mean(rows[own]["mrr@10"][task]) / np.mean(rows[other]["mrr@10"][task]))


def words(figures: dict[str, Any]) -> str:
    """The figures of a corpus as tables of plain text."""
    table = [["", "parameters", "weights, MB", "suggest", "complete", "valid, nats", "key press p50", "faster"]]
    for name, row in figures["rows"].items():
        timed = figures["race"].get(name)
        table.append(
            [
                name,
                f"{row['parameters']:,}",
                f"{row['bytes'] / 1e6:.2f}",
                *(f"{np.mean(row['mrr@10'][task]):.4f}" for task in ("suggest", "complete")),
                f"{np.mean(row['valid_loss']):.3f}",
                f"{timed['p50_ms']:.2f} ms" if timed else "-",
                f"{timed['faster']:.2f}" if timed else "-",
            ]
        )
    lines = [aligned(table)]
    lines += [
        f"{each['task']}: {each['system']} - {each['against']}: {each['difference']:+.4f} "
        f"[{each['ci95'][0]:+.4f}, {each['ci95'][1]:+.4f}], {each['seeds']} seeds"
        for each in figures["differences"]
    ]
    for name, outcome in figures["recipes"].items():
        if "compression" in outcome:
            facts = outcome["compression"]
            bundle = facts["bundle"]
            lines.append(
                f"recipe {name}: {bundle['bytes'] / 1e6:.2f} MB ({facts['smaller']:.1f} times smaller), "
                f"p95 {bundle['keystroke_ms']['p95']:.1f} ms, MRR@10 {-bundle['drop']:+.1%}"
            )
        else:
            lines.append(f"recipe {name}: {outcome['error']['message']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
