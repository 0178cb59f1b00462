"""Simulated logs by the public command: prepared sessions are the simulated ones, and the oracle's file fits them."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")

from mtn_edge.cli import main
from mtn_edge.data import synthetic_draw, synthetic_log
from mtn_edge.data.dataset import Dataset
from mtn_edge.data.oracle import Oracle
from mtn_edge.data.prepare import SPLITS
from mtn_edge.data.synthetic import World, build
from mtn_edge.data.synthetic_draw import Simulator
from mtn_edge.data.synthetic_log import LogSettings, write_log
from mtn_edge.data.synthetic_rows import FIRST_DAY
from mtn_edge.errors import UserError
from mtn_edge.evaluation.metrics import CUT
from mtn_edge.evaluation.prefixes import PREFIX_GROUPS, prefix_lengths

SESSIONS, CHUNK = 2500, 300
ROW = re.compile(r"\d+\t[^\t]*\t2006-\d\d-\d\d \d\d:\d\d:\d\d\t(\t|\d\thttp://www\.site\d+\.example)")


def data(*arguments: object) -> SimpleNamespace:
    """Runs `mtn-edge data` in this process."""
    out, err = StringIO(), StringIO()
    with patch.object(sys, "argv", ["mtn-edge", "data", *map(str, arguments)]):
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
            status: object = 0
        except SystemExit as exit_:
            status = exit_.code
    return SimpleNamespace(returncode=status or 0, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log of three chunks of users, the dataset made of it, and what the commands said."""
    folder = tmp_path_factory.mktemp("synth")
    with patch.object(synthetic_log, "CHUNK_USERS", CHUNK):
        made = data("synth", "-o", folder / "log.tsv", "--sessions", SESSIONS, "--seed", 7, "--json")
    assert made.returncode == 0, made.stderr
    (folder / "made.json").write_text(made.stdout)
    done = data("prepare", folder / "log.tsv", "-o", folder / "dataset", "--min-users", 1, "--json")
    assert done.returncode == 0, done.stderr
    return folder


def simulated(seed: int, sessions: int) -> list[tuple[str, list[str]]]:
    """Start and texts of each session, as drawn."""
    chain = build(World())
    found = []
    for chunk in range(9):
        drawn = Simulator(chain).draw(CHUNK, np.random.default_rng([seed, chunk]))
        texts = [chain.texts[number] for number in chain.text[drawn.state].tolist()]
        for at, size in zip(drawn.begin.tolist(), drawn.length.tolist(), strict=True):
            found.append((str(FIRST_DAY + drawn.second[at]).replace("T", " "), texts[at : at + size]))
    return found[:sessions]


def prepared(dataset: Path, split: Any) -> list[tuple[str, list[str]]]:
    import pyarrow.parquet as pq

    return [
        (str(row["start"]), row["queries"])
        for file in Dataset.open(dataset).files(split)
        for row in pq.read_table(file).to_pylist()
    ]


def test_prepared_sessions_are_the_simulated_ones(folder: Path) -> None:
    expected = simulated(7, SESSIONS)
    assert sorted(row for split in SPLITS for row in prepared(folder / "dataset", split)) == sorted(expected)
    made = json.loads((folder / "made.json").read_text())
    assert made["sessions"] == SESSIONS
    assert made["queries"] == sum(len(queries) for _, queries in expected)
    assert made["rows"] == len((folder / "log.tsv").read_text().splitlines()) - 1
    users = {user for split in SPLITS for user in Dataset.open(folder / "dataset").users(split)}  # type: ignore[arg-type]
    assert made["users"] == len(users) == len({line["user"] for line in sessions_of(whole(folder))})


def test_sessions_stay_apart_on_a_crowded_day(tmp_path: Path) -> None:
    """All sessions of a user on one day, many of them pushed back to keep the half hour."""
    with patch.object(synthetic_draw, "DAYS", 1), patch.object(synthetic_log, "CHUNK_USERS", CHUNK):
        assert data("synth", "-o", tmp_path / "log.tsv", "--sessions", 800, "--oracle", "none").returncode == 0
        expected = simulated(1, 800)
    assert data("prepare", tmp_path / "log.tsv", "-o", tmp_path / "dataset", "--min-users", 1).returncode == 0
    assert sorted(row for split in SPLITS for row in prepared(tmp_path / "dataset", split)) == sorted(expected)


def whole(folder: Path) -> Path:
    """The oracle's file with all sessions."""
    path = folder / "all.oracle.jsonl"
    if not path.exists():
        with patch.object(synthetic_log, "CHUNK_USERS", CHUNK):
            done = data("synth", "-o", folder / "all.tsv", "--sessions", SESSIONS, "--seed", 7, "--oracle", "all")
        assert done.returncode == 0, done.stderr
    return path


def sessions_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_the_log_looks_like_a_log(folder: Path) -> None:
    report = json.loads((folder / "dataset" / "report.json").read_text())
    assert report["format"] == "aol"
    assert report["rows"]["folded"] > 600
    assert report["rows"]["empty"] > 40
    assert report["rejected"]["columns"]["count"] > 1
    assert report["personal"]["email"] > 2 < report["personal"]["phone"]
    lines = (folder / "log.tsv").read_text().splitlines()
    assert lines[0] == "AnonID\tQuery\tQueryTime\tItemRank\tClickURL"
    strange = [line for line in lines[1:] if not ROW.fullmatch(line)]
    assert all(re.fullmatch(r"\d+\t2006-\d\d", line) for line in strange)
    assert len(strange) == report["rejected"]["columns"]["count"]
    queries = [line.split("\t")[1] for line in lines[1:]]
    assert 0.01 < sum(query != query.lower() for query in queries) / len(queries) < 0.02
    assert 0.01 < sum(query.startswith(" ") and query.endswith(" ") for query in queries) / len(queries) < 0.02
    # By user, then by time.
    order = [(int(line.split("\t")[0]), line.split("\t")[2]) for line in lines[1:] if ROW.fullmatch(line)]
    assert order == sorted(order)


def test_the_oracle_file_covers_the_test_split_with_exact_answers(folder: Path) -> None:
    path = folder / "log.oracle.jsonl"
    header = json.loads(path.read_text().splitlines()[0])
    log = (folder / "log.tsv").read_bytes()
    assert header["log"]["sha256"] == hashlib.sha256(log).hexdigest()
    assert (header["format"], header["version"], header["seed"], header["difficulty"]) == ("mtn-edge oracle", 1, 7, 1.0)
    oracle = Oracle.load(path)
    assert header["texts"] == oracle.texts
    lines = sessions_of(path)
    found = {(line["start"], tuple(header["texts"][number] for number in line["queries"])): line for line in lines}
    test = prepared(folder / "dataset", "test")
    assert len(test) == SESSIONS // 10
    assert 250 < len(lines) < 330
    assert {(start, tuple(queries)) for start, queries in test} <= found.keys()
    assert min(line["start"] for line in lines) == header["covered"]["from"]
    ranks: dict[str, list[int]] = {"suggest": [], "complete": []}
    for (_, queries), line in found.items():
        session = oracle.start()
        for place, (query, score, top) in enumerate(zip(queries, line["log_probability"], line["top"], strict=True)):
            assert score == pytest.approx(session.log_probability(query), rel=1e-5)
            assert [typed for typed, _, _ in top] == [0, *prefix_lengths(query)]
            for typed, numbers, probabilities in top:
                texts = [header["texts"][number] for number in numbers]
                assert texts == session.candidates(query[:typed])
                assert len(texts) <= CUT
                assert probabilities == pytest.approx(
                    [math.exp(session.log_probability(text)) for text in texts], rel=1e-5
                )
                if typed or place:
                    ranks["complete" if typed else "suggest"].append([*texts, query].index(query) + 1)
            session.append(query)
    made = json.loads((folder / "made.json").read_text())["oracle"]
    for task, places in ranks.items():
        rank = np.array(places)
        assert made[task]["n"] == len(rank) > 500
        assert made[task]["mrr@10"] == pytest.approx(np.mean(np.where(rank <= CUT, 1 / rank, 0)))
        assert made[task]["success@1"] == pytest.approx(np.mean(rank == 1))
        assert made[task]["success@10"] == pytest.approx(np.mean(rank <= CUT))
    assert (made["file"], made["covered"], made["sessions"]) == ("log.oracle.jsonl", "test", len(lines))


def test_the_test_split_stays_covered_when_rare_queries_are_dropped(folder: Path, tmp_path: Path) -> None:
    assert data("prepare", folder / "log.tsv", "-o", tmp_path / "dataset", "--min-users", 5).returncode == 0
    header = json.loads((folder / "log.oracle.jsonl").read_text().splitlines()[0])
    test = prepared(tmp_path / "dataset", "test")
    # The start of a session whose first query was dropped lies later than in the log, never earlier.
    assert min(start for start, _ in test) >= header["covered"]["from"]


def test_all_and_none(folder: Path, tmp_path: Path) -> None:
    header = json.loads(whole(folder).read_text().splitlines()[0])
    lines = sessions_of(whole(folder))
    assert (folder / "all.tsv").read_bytes() == (folder / "log.tsv").read_bytes()
    assert [(line["start"], [header["texts"][at] for at in line["queries"]]) for line in lines] == simulated(
        7, SESSIONS
    )
    assert data("synth", "-o", tmp_path / "log.tsv", "--sessions", 9, "--seed", 7, "--oracle", "none").returncode == 0
    assert [file.name for file in tmp_path.iterdir()] == ["log.tsv"]
    small = data("synth", "-o", tmp_path / "one.tsv", "--sessions", 1)
    assert "one.oracle.jsonl: the best answers in 1 sessions; their MRR@10, the ceiling:" in small.stdout


def test_the_same_seed_gives_the_same_files_and_longer_logs_go_on(tmp_path: Path) -> None:
    files = {}
    for name, options in {
        "one": {"sessions": 700},
        "two": {"sessions": 700},
        "other": {"sessions": 700, "seed": 2},
        "harder": {"sessions": 700, "difficulty": 1.1},
        "longer": {"sessions": 900},
        "rows": {"rows": 4000},
    }.items():
        with patch.object(synthetic_log, "CHUNK_USERS", 100):
            made = write_log(tmp_path / f"{name}.tsv", LogSettings(**options))  # type: ignore[arg-type]
        files[name] = (tmp_path / f"{name}.tsv").read_bytes()
        assert made["rows"] == files[name].count(b"\n") - 1
    assert files["one"] == files["two"]
    assert len({files["one"], files["other"], files["harder"]}) == 3
    assert files["longer"].startswith(files["one"])
    shorter, longer = sorted((files["rows"], files["longer"]), key=len)
    assert longer.startswith(shorter)
    assert (tmp_path / "one.oracle.jsonl").read_text().splitlines()[1:] == (
        tmp_path / "two.oracle.jsonl"
    ).read_text().splitlines()[1:]


@pytest.mark.parametrize("rows", [1, 2, 50, 1000])
def test_as_many_rows_as_asked_and_no_session_more(tmp_path: Path, rows: int) -> None:
    made = write_log(tmp_path / "log.tsv", LogSettings(rows=rows, oracle="none"))
    assert made["rows"] >= rows
    fewer = LogSettings(sessions=max(made["sessions"] - 1, 1), oracle="none")
    assert made["sessions"] == 1 or write_log(tmp_path / "fewer.tsv", fewer)["rows"] < rows


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    log, beside = tmp_path / "log.tsv", tmp_path / "log.oracle.jsonl"
    settings = LogSettings(sessions=5)
    write_log(log, settings)
    before = log.read_bytes(), beside.read_bytes()
    for gone, left in ((beside, log), (log, beside)):
        content = gone.read_bytes()
        gone.unlink()
        with pytest.raises(UserError, match=rf"{left.name}` exists already and nothing is overwritten; .* --force"):
            write_log(log, settings)
        gone.write_bytes(content)
    write_log(log, LogSettings(sessions=6), force=True)
    assert log.read_bytes() != before[0]
    assert beside.read_bytes() != before[1]
    write_log(log, LogSettings(sessions=5, oracle="none"), force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["log.tsv"]  # an oracle of another log would mislead
    for folder in (tmp_path, Path()):
        with pytest.raises(UserError, match="exists already"):
            write_log(folder, settings, force=True)


def test_usage(tmp_path: Path) -> None:
    for wrong in ([], ["--sessions", 5, "--rows", 5], ["--rows", 0], ["--sessions", 5, "--oracle", "some"]):
        assert data("synth", "-o", tmp_path / "log.tsv", *wrong).returncode == 2
    refused = data("synth", "-o", tmp_path / "log.tsv", "--sessions", 5, "--difficulty", 0)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: `--difficulty` is 0.0, and it must be a number above 0; take 1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "lengths"), [("", ()), ("a", ()), ("ab", (1,)), ("abcde", (2, 4)), ("hotels in boston", (2, 6, 13))]
)
def test_prefixes_are_a_rule(query: str, lengths: tuple[int, ...]) -> None:
    assert prefix_lengths(query) == lengths


def test_prefixes_are_spread_over_their_groups() -> None:
    lengths = [prefix_lengths(f"query number {number:04}") for number in range(3000)]
    for group, (low, high) in enumerate(PREFIX_GROUPS.values()):
        found = np.bincount([each[group] for each in lengths])
        allowed = found[low : (high or 16) + 1]
        assert found.sum() == allowed.sum() == 3000
        assert allowed / 3000 == pytest.approx(1 / len(allowed), abs=0.05)
