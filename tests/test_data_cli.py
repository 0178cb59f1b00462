"""`mtn-edge data`: documents, words, exit statuses."""

import contextlib
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")


def data(*arguments: str | Path) -> SimpleNamespace:
    """Runs the entry point with these arguments, in this process for speed."""
    from mtn_edge.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["mtn-edge", "data", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as exit_info:
            main()
    finally:
        sys.argv = before
    return SimpleNamespace(returncode=exit_info.value.code, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated log and the dataset made of it, both by the command line."""
    folder = tmp_path_factory.mktemp("data")
    made = data("synth", "-o", folder / "log.tsv", "--sessions", "3000", "--json")
    assert made.returncode == 0
    assert json.loads(made.stdout)["sessions"] == 3000
    prepared = data("prepare", folder / "log.tsv", "-o", folder / "dataset", "--min-users", "1", "--json")
    assert prepared.returncode == 0
    assert json.loads(prepared.stdout) == json.loads((folder / "dataset" / "report.json").read_text())
    return folder


def test_prepare_ends_with_the_totals(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_bytes(
        b"1\ta\t2006-03-01 10:00:00\nbroken\n1\tb\xe9\t2006-03-01 10:01:00\n1\t555-1234\t2006-03-01 10:02:00\n"
    )
    result = data("prepare", tmp_path / "log.tsv", "-o", tmp_path / "dataset", "--min-users", "1")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0] == "log.tsv: 4 lines, 3 queries (1 rejected)"
    assert lines[1:3] == [
        "rejected for their columns: 1, first log.tsv:2",
        "not UTF-8, read as Windows-1252: 1, first log.tsv:3",
    ]
    assert lines[-1] == (f"{tmp_path / 'dataset'}: 2 queries in 1 sessions kept of 3 queries; 4 lines read, 1 rejected")
    assert "(phone 1)" in result.stdout
    assert "555" not in result.stdout.replace("(phone 1)", "")


def test_force_replaces_a_dataset_and_nothing_else(folder: Path) -> None:
    log = folder / "log.tsv"
    again = data("prepare", log, "-o", folder / "dataset")
    assert again.returncode == 1
    assert again.stderr == (
        f"error: `{folder / 'dataset'}` exists already and nothing is overwritten;"
        " choose another name with -o, or replace it with --force.\n"
    )
    assert data("prepare", log, "-o", folder / "dataset", "--min-users", "1", "--force").returncode == 0
    strange = data("prepare", log, "-o", log, "--force")
    assert strange.returncode == 1
    assert "mtn-edge did not write" in strange.stderr
    assert log.is_file()


def test_usage_faults_exit_2(folder: Path) -> None:
    for wrong in (["--format", "xml"], ["--split", "random"], ["--min-users", "0"], ["--vocab-size", "100"], ["--gap"]):
        assert data("prepare", folder / "log.tsv", "-o", folder / "new", *wrong).returncode == 2
    assert data("synth", "-o", folder / "new.tsv", "--sessions", "0").returncode == 2
    assert data("prepare", folder / "log.tsv").returncode == 2
    assert sorted(entry.name for entry in folder.iterdir()) == ["dataset", "log.oracle.jsonl", "log.tsv"]


def test_stats_as_words_and_as_a_document(folder: Path) -> None:
    from mtn_edge.data.dataset import Dataset

    document = json.loads(data("stats", folder / "dataset", "--json").stdout)
    dataset = Dataset.open(folder / "dataset")
    sessions = {split: dataset.sessions(split) for split in ("train", "valid", "test")}
    for split, found in sessions.items():
        assert document["splits"][split] == {
            "sessions": len(found),
            "queries": sum(map(len, found)),
            "unique_queries": len({query for session in found for query in session}),
        }
    every = [session for found in sessions.values() for session in found]
    queries = [query for session in every for query in session]
    lengths = sorted(map(len, every))
    per_session = document["queries_per_session"]
    assert per_session["mean"] == pytest.approx(len(queries) / len(every))
    assert per_session["p50"] == lengths[(len(lengths) - 1) // 2]
    assert per_session["max"] == lengths[-1]
    assert per_session["histogram"]["2"] == lengths.count(2)
    assert per_session["histogram"]["10+"] == sum(length >= 10 for length in lengths)
    repeats = sum(len(session) - len(set(session)) for session in every)
    assert per_session["repeat_share"] == pytest.approx(repeats / len(queries))
    assert document["per_query"]["words"]["mean"] == pytest.approx(sum(len(q.split()) for q in queries) / len(queries))
    assert document["per_query"]["characters"]["max"] == max(map(len, queries))
    tokens = sum(map(len, dataset.tokenizer.encode_batch(queries)))
    assert document["per_query"]["tokens"]["mean"] == pytest.approx(tokens / len(queries))
    known = {query for session in sessions["train"] for query in session}
    tested = [query for session in sessions["test"] for query in session]
    assert document["test_seen_in_train"]["queries"] == pytest.approx(sum(q in known for q in tested) / len(tested))
    assert 0 < document["test_seen_in_train"]["unique_queries"] < document["test_seen_in_train"]["queries"] < 1
    used = {token for query in known for token in dataset.tokenizer.encode(query)}
    assert document["vocabulary"]["used_in_train"] == len(used)
    assert document["top_queries"][0] == dict(zip(("query", "count"), dataset.popularity()[0], strict=True))
    words = data("stats", folder / "dataset").stdout
    assert f"{len(sessions['train']):>12,}" in words.splitlines()[1]
    assert f"vocabulary: {len(dataset.tokenizer):,} tokens, {len(used):,} of them used in train" in words


def test_stats_of_something_else(folder: Path, tmp_path: Path) -> None:
    result = data("stats", folder / "log.tsv")
    assert result.returncode == 1
    assert result.stderr == f"error: `{folder / 'log.tsv'}` is a file, not a dataset; name the folder of a dataset.\n"
    broken = data("stats", tmp_path, "--json")
    assert json.loads(broken.stdout)["error"]["code"] == "no-manifest"
