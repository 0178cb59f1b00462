"""Splits: who may be where, the cut points, the same bytes every time; and a real log from the public."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")

from mtn_edge.data.dataset import Dataset
from mtn_edge.data.prepare import SPLITS, PrepareSettings, prepare

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 users with a session on each of five days; every query names its user and day."""
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    rows = [
        f"u{user}\tuser {user} day {day} {word}\t2006-03-{1 + day:02} {user % 24:02}:{user % 60:02}:{10 * at:02}\n"
        for user in range(200)
        for day in range(5)
        for at, word in enumerate(("first", "second"))
    ]
    path.write_text("".join(rows))
    return path


def dataset(log: Path, output: Path, **settings: Any) -> Dataset:
    prepare([log], output, PrepareSettings(**{"min_users": 1, "vocab_size": 300, **settings}))
    return Dataset.open(output)


def users(dataset: Dataset, split: Any) -> set[str]:
    return {query.split(" ")[1] for session in dataset.sessions(split) for query in session}


def test_hash_keeps_each_user_in_one_split(log: Path, tmp_path: Path) -> None:
    made = dataset(log, tmp_path / "one", split="hash", seed=1)
    parts = [users(made, split) for split in SPLITS]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 200
    assert 140 <= len(parts[0]) <= 180
    assert all(8 <= len(part) <= 35 for part in parts[1:])
    other = dataset(log, tmp_path / "two", split="hash", seed=2)
    assert users(other, "test") != parts[2]
    assert made.manifest["split"] == {"by": "hash of the user", "seed": 1, "valid_from": 0.8, "test_from": 0.9}


def test_hash_does_not_move_users_when_the_log_grows(log: Path, tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text("a\tuser a day 0\t2001-01-01 00:00:00\n" + log.read_text())
    before = dataset(log, tmp_path / "one", split="hash")
    after = dataset(tmp_path / "more.tsv", tmp_path / "two", split="hash")
    for split in SPLITS:
        assert users(after, split) - {"a"} == users(before, split)


def test_hash_of_sessions_keeps_equal_sessions_together(tmp_path: Path) -> None:
    lines = [f"query {number}\tanswer {number}\n" for number in range(100)]
    (tmp_path / "log.tsv").write_text("".join(lines + [line.upper() for line in reversed(lines)]))
    made = dataset(tmp_path / "log.tsv", tmp_path / "dataset", format="sessions")
    parts = [[tuple(session) for session in made.sessions(split)] for split in SPLITS]
    assert sum(len(set(part)) for part in parts) == 100
    assert all(2 * len(set(part)) == len(part) for part in parts)
    assert made.manifest["split"]["by"] == "hash of the session's queries"


def test_time_puts_the_last_tenth_in_test(log: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    made = dataset(log, tmp_path / "one")
    starts = {
        split: pq.read_table(made.files(split)[0])["start"].to_pylist()  # type: ignore[arg-type]
        for split in SPLITS
    }
    cut = made.manifest["split"]
    assert cut["by"] == "start of the session"
    assert max(starts["train"]) < min(starts["valid"]) < max(starts["valid"]) < min(starts["test"])
    assert min(starts["valid"]).isoformat() == cut["valid_from"]
    assert min(starts["test"]).isoformat() == cut["test_from"]
    # Sessions that start in the same second stay on one side, so the sizes are not exact.
    assert [len(starts[split]) for split in SPLITS] == pytest.approx([800, 100, 100], abs=5)


def test_sessions_stand_by_user_then_start(log: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    made = dataset(log, tmp_path / "one")
    named: dict[int, set[str]] = {}
    for split in SPLITS:
        numbers, sessions = made.users(split), made.sessions(split)
        starts = pq.read_table(made.files(split)[0])["start"].to_pylist()
        assert list(zip(numbers, starts, strict=True)) == sorted(zip(numbers, starts, strict=True))
        for number, session in zip(numbers, sessions, strict=True):
            named.setdefault(number, set()).update(query.split(" ")[1] for query in session)
    assert sorted(named) == list(range(200))
    assert sorted(min(names) for names in named.values()) == sorted(str(user) for user in range(200))
    assert all(len(names) == 1 for names in named.values())
    # Numbered by their first sessions: the users whose first session starts in the first hour come first.
    assert {int(*named[number]) % 24 for number in range(8)} == {0}


def test_sessions_without_users_have_one_each(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("".join(f"query {at}\tanswer {at}\n" for at in range(40)))
    made = dataset(tmp_path / "log.tsv", tmp_path / "dataset", format="sessions")
    assert sorted(number for split in SPLITS for number in made.users(split)) == list(range(40))


def test_popularity_and_vocabulary_come_from_train_alone(log: Path, tmp_path: Path) -> None:
    made = dataset(log, tmp_path / "one")
    train = [query for session in made.sessions("train") for query in session]
    popular = made.popularity()
    assert dict(popular) == {query: train.count(query) for query in set(train)}
    assert popular == sorted(popular, key=lambda entry: (-entry[1], entry[0]))


@pytest.mark.parametrize("split", ["time", "hash"])
def test_the_same_log_gives_the_same_bytes(log: Path, tmp_path: Path, split: str) -> None:
    for name in ("one", "two"):
        dataset(log, tmp_path / name, split=split, seed=5)
    files = sorted(file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file())
    assert [str(file) for file in files] == [
        *("manifest.json", "popularity.parquet", "report.json", "test/sessions-00000.parquet", "tokenizer.json"),
        *("train/sessions-00000.parquet", "valid/sessions-00000.parquet"),
    ]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_manifest_says_where_it_came_from(log: Path, tmp_path: Path) -> None:
    from mtn_edge.folders import sha256_file

    manifest = dataset(log, tmp_path / "one", seed=4).manifest
    assert manifest["lineage"] == {
        "inputs": [{"name": "log.tsv", "bytes": log.stat().st_size, "sha256": sha256_file(log)}],
        "seed": 4,
    }
    assert manifest["settings"] == {
        "format": "aol",
        "min_users": 1,
        "gap_minutes": 30.0,
        "vocab_size": 300,
        "split": "time",
        "seed": 4,
    }
    assert sum(split["queries"] for split in manifest["counts"].values()) == 2000
    assert str(tmp_path) not in json.dumps(manifest)


def test_real_web_search_sessions(tmp_path: Path) -> None:
    log = SHARED / "msmarco_conv_dev_questions" / "sessions.tsv"
    if not log.is_file():
        pytest.skip(f"the public log {log} is not here: get it to run this test on real sessions")
    made = dataset(log, tmp_path / "dataset", format="auto", split="hash", vocab_size=4096)
    assert made.manifest["settings"]["format"] == "sessions"
    sessions = [session for split in SPLITS for session in made.sessions(split)]
    assert len(sessions) == 3053
    assert sum(map(len, sessions)) == 11387
    assert ["what is the australian flag?", "what is the population of australia?"] in [x[:2] for x in sessions]
    assert len(made.tokenizer) == 4096
    report = json.loads((tmp_path / "dataset" / "report.json").read_text())
    assert report["rows"] == {"in": 11387, "empty": 0, "personal": 0, "below_min_users": 0, "folded": 0, "kept": 11387}
    for query in {query for session in sessions for query in session}:
        assert made.tokenizer.decode_bytes(made.tokenizer.encode(query)).decode() == query
