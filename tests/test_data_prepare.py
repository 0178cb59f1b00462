"""What `data prepare` makes of logs as they are: the cases that real tools got wrong, and the rules at their edges."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ibis", reason="datasets are prepared with the extra [train]")

from mtn_edge.data.dataset import Dataset
from mtn_edge.data.prepare import SPLITS, PrepareSettings, prepare
from mtn_edge.errors import UserError


def made(folder: Path, log: str | bytes, **settings: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All sessions of a log in order of their number (with their split), and the report."""
    import pyarrow.parquet as pq

    (folder / "log.tsv").write_bytes(log.encode() if isinstance(log, str) else log)
    options = {"format": "aol", "min_users": 1, "vocab_size": 300, **settings}
    report = prepare([folder / "log.tsv"], folder / "dataset", PrepareSettings(**options), force=True)
    dataset = Dataset.open(folder / "dataset")
    rows = [
        {**row, "split": split}
        for split in SPLITS
        for file in dataset.files(split)
        for row in pq.read_table(file).to_pylist()
    ]
    assert report == json.loads((folder / "dataset" / "report.json").read_text())
    counts = report["rows"]
    assert counts["in"] == sum(counts[name] for name in ("empty", "personal", "below_min_users", "folded", "kept"))
    assert counts["kept"] == sum(len(row["queries"]) for row in rows)
    return sorted(rows, key=lambda row: row["session"]), report


def queries(folder: Path, log: str | bytes, **settings: Any) -> list[list[str]]:
    return [row["queries"] for row in made(folder, log, **settings)[0]]


def at(clock: str, query: str, user: str = "7", rest: str = "\t\t") -> str:
    return f"{user}\t{query}\t2006-03-02 {clock}{rest}\n"


def test_a1_a_quote_is_text(tmp_path: Path) -> None:
    log = (
        '1\t"harry potter\t2006-03-01 10:00:00\t\t\n'
        "1\tebay\t2006-03-01 10:01:00\t1\thttp://www.ebay.com\n"
        '2\t20" tv\t2006-03-01 10:02:00\t\t\n'
        '2\tsay "hi"\t2006-03-01 10:03:00\t\t\n'
    )
    assert queries(tmp_path, log) == [['"harry potter', "ebay"], ['20" tv', 'say "hi"']]


def test_a2_several_clicks_are_one_query(tmp_path: Path) -> None:
    log = "".join(
        [
            "1337\tselect business services\t2006-03-14 15:49:00\t\t\n",
            "1337\tselect business services title\t2006-03-14 15:50:10\t\t\n",
            *(f"1337\tcbc companies\t2006-03-14 15:51:02\t{rank}\thttp://www.cbc.example\n" for rank in (2, 3, 4)),
        ]
    )
    sessions, report = made(tmp_path, log)
    assert [row["queries"] for row in sessions] == [
        ["select business services", "select business services title", "cbc companies"]
    ]
    assert sessions[0]["clicks"] == [0, 0, 3]
    assert dict(Dataset.open(tmp_path / "dataset").popularity())["cbc companies"] == 1
    assert report["rows"]["folded"] == 2


def test_a3_next_pages_are_one_query(tmp_path: Path) -> None:
    log = at("09:00:00", "maps") + at("09:00:40", "maps") + at("09:01:35", "Maps ") + at("09:05:00", "atlas")
    assert queries(tmp_path, log) == [["maps", "atlas"]]


def test_a_query_that_comes_back_later_counts_again(tmp_path: Path) -> None:
    log = at("09:00:00", "a") + at("09:01:00", "b") + at("09:02:00", "a") + at("15:00:00", "a")
    assert queries(tmp_path, log) == [["a", "b", "a"], ["a"]]
    # The later session is a test split of its own: only the first is counted.
    assert Dataset.open(tmp_path / "dataset").popularity() == [("a", 2), ("b", 1)]


def test_a4_empty_queries_leave_their_neighbours_together(tmp_path: Path) -> None:
    log = at("09:00:00", "boats") + at("09:02:00", "-") + at("09:03:00", "") + at("09:05:00", "sails")
    sessions, report = made(tmp_path, log)
    assert [row["queries"] for row in sessions] == [["boats", "sails"]]
    assert report["rows"]["empty"] == 2


def test_a5_header_bom_crlf_and_rows_of_both_widths(tmp_path: Path) -> None:
    log = (
        b"\xef\xbb\xbfAnonID\tQuery\tQueryTime\tItemRank\tClickURL\r\n"
        b"5\tone\t2006-03-01 10:00:00\r\n"
        b"5\ttwo\t2006-03-01 10:01:00\t1\thttp://www.two.example\r\n"
        b"\r\n"
        b"5\tthree\t2006-03-01 10:02:00\t2\t\r\n"
        b"5\tfour\t2006-03-01 10:03:00"  # no line end
    )
    sessions, report = made(tmp_path, log, format="auto")
    assert [row["queries"] for row in sessions] == [["one", "two", "three", "four"]]
    assert sessions[0]["clicks"] == [0, 1, 1, 0]  # a rank alone is a click, too
    assert report["files"] == [{"name": "log.tsv", "lines": 6, "header": 1, "blank": 1, "rows": 4, "rejected": 0}]


def test_a_log_without_header_loses_no_row(tmp_path: Path) -> None:
    assert queries(tmp_path, at("10:00:00", "first") + at("10:01:00", "second"), format="auto") == [["first", "second"]]


def test_a6_other_encodings_and_broken_rows(tmp_path: Path) -> None:
    log = (
        b"3\tfr\xe9quemment\t2006-03-01 10:00:00\t\t\n"
        b"[Mon Nov  4 Nov 2019,eng,contradictory\n"
        b"3\tcaf\xc3\xa9\t2006-03-01 10:01:00\t\t\n"
        b"3\t\x93quoted\x94\t2006-03-01 10:02:00\t\t\n"
        b"3\tno day\t2006-02-30 10:03:00\t\t\n"
        b"3\tno time\tyesterday\t\t\n"
        b" \tno user\t2006-03-01 10:04:00\t\t\n"
        b"3\ta\tb\tc\td\te\tf\n"
    )
    sessions, report = made(tmp_path, log)
    assert [row["queries"] for row in sessions] == [["fréquemment", "café", "“quoted”"]]

    def places(*lines: int) -> dict[str, Any]:
        return {"count": len(lines), "first": [{"file": "log.tsv", "line": line} for line in lines]}

    assert report["decoded_by_fallback"] == places(1, 4)
    assert report["rejected"] == {"columns": places(2, 8), "user": places(7), "time": places(5, 6)}
    assert report["files"][0]["rejected"] == 5


def test_a7_any_date_and_sessions_past_midnight(tmp_path: Path) -> None:
    log = (
        "1\tleap\t2024-02-29 12:00:00\t\t\n"
        "2\tlate\t2006-05-31 23:50:00\t\t\n"
        "2\tlater\t2006-06-01 00:10:00\t\t\n"
        "3\tlong ago\t1969-12-31 23:59:59\t\t\n"
    )
    sessions, report = made(tmp_path, log)
    assert [row["queries"] for row in sessions] == [["long ago"], ["late", "later"], ["leap"]]
    assert [row["start"].isoformat() for row in sessions] == [
        "1969-12-31T23:59:59",
        "2006-05-31T23:50:00",
        "2024-02-29T12:00:00",
    ]
    assert report["sessions"] == {"in": 3, "kept": 3}


def test_a8_no_letter_is_lost(tmp_path: Path) -> None:
    texts = ["café müller", "naïve bayes", "東京 天気", "сколько стоит", "ﬁnance", "ＡＯＬ　検索"]
    log = "".join(at(f"10:0{minute}:00", text) for minute, text in enumerate(texts))
    assert queries(tmp_path, log) == [
        ["café müller", "naïve bayes", "東京 天気", "сколько стоит", "finance", "aol 検索"]
    ]


@pytest.mark.parametrize(("second", "sessions"), [("09:30:00", [["a", "b"]]), ("09:30:01", [["a"], ["b"]])])
def test_a_gap_of_exactly_thirty_minutes_stays(tmp_path: Path, second: str, sessions: list[list[str]]) -> None:
    assert queries(tmp_path, at("09:00:00", "a") + at(second, "b")) == sessions


def test_the_gap_can_be_set(tmp_path: Path) -> None:
    log = at("09:00:00", "a") + at("09:05:00", "b") + at("09:10:01", "c")
    assert queries(tmp_path, log, gap_minutes=5) == [["a", "b"], ["c"]]
    assert queries(tmp_path, log, gap_minutes=0.5) == [["a"], ["b"], ["c"]]


def test_dropped_rows_are_activity_and_keep_a_session_whole(tmp_path: Path) -> None:
    log = at("09:00:00", "a") + at("09:25:00", "jo@example.com") + at("09:50:00", "b") + at("10:15:00", "-")
    assert queries(tmp_path, log + at("10:40:00", "c")) == [["a", "b", "c"]]


def test_rows_in_any_order_and_users_apart(tmp_path: Path) -> None:
    log = at("09:02:00", "c") + at("09:00:00", "a") + at("09:00:30", "x", user="8") + at("09:01:00", "b")
    assert queries(tmp_path, log) == [["a", "b", "c"], ["x"]]


def test_rows_of_the_same_second_keep_their_order(tmp_path: Path) -> None:
    assert queries(tmp_path, "".join(at("09:00:00", text) for text in "zayb")) == [["z", "a", "y", "b"]]


def test_the_gate_counts_users_not_rows(tmp_path: Path) -> None:
    log = "".join(at(f"09:0{number}:00", "common", user=str(number)) for number in range(3))
    log += "".join(at(f"10:{number:02}:00", text, user="0") for number, text in enumerate(("rare", "common", "rare")))
    log += at("12:00:00", "Rare", user="1")
    sessions, report = made(tmp_path, log, min_users=3)
    assert [row["queries"] for row in sessions] == [["common"]] * 4
    assert report["rows"]["below_min_users"] == 3
    assert report["unique_queries"] == {"in": 2, "kept": 1}
    assert report["sessions"] == {"in": 5, "kept": 4}
    assert sorted({query for found in queries(tmp_path, log, min_users=2) for query in found}) == ["common", "rare"]


def test_a_dropped_query_leaves_its_neighbours_in_one_session(tmp_path: Path) -> None:
    log = "".join(
        at(f"1{user}:0{minute}:00", text, user=str(user))
        for user in range(2)
        for minute, text in enumerate(("a", f"only {user}", "b", f"mine {user}", "b"))
    )
    # What was between the two `b` is gone: they are one query in a row, like any repeat.
    assert queries(tmp_path, log, min_users=2) == [["a", "b"], ["a", "b"]]


def test_the_gate_sees_all_files_and_gzip(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text(at("09:00:00", "shared", user="1"))
    with gzip.open(tmp_path / "two.tsv.gz", "wt") as file:
        file.write(at("09:00:00", "shared", user="2") + at("09:01:00", "alone", user="2"))
    logs = [tmp_path / "one.tsv", tmp_path / "two.tsv.gz"]
    report = prepare(logs, tmp_path / "dataset", PrepareSettings(min_users=2, vocab_size=300, split="hash", seed=3))
    assert report["rows"] == {"in": 3, "empty": 0, "personal": 0, "below_min_users": 1, "folded": 0, "kept": 2}
    assert [file["rows"] for file in report["files"]] == [1, 2]


def test_sessions_format(tmp_path: Path) -> None:
    log = "What is x?\twhat  is x?\tWho made x\t-\n\nwho made x\t\twhat is x?\r\nbye\n"
    sessions, report = made(tmp_path, log, format="sessions", split="hash", seed=1)
    assert [row["queries"] for row in sessions] == [["what is x?", "who made x"], ["who made x", "what is x?"], ["bye"]]
    assert {row["start"] for row in sessions} == {None}
    assert report["rows"] == {"in": 8, "empty": 2, "personal": 0, "below_min_users": 0, "folded": 1, "kept": 5}
    assert report["files"][0]["blank"] == 1
    gated, _ = made(tmp_path, log, format="sessions", min_users=2, split="hash", seed=1)
    assert [row["queries"] for row in gated] == [["what is x?", "who made x"], ["who made x", "what is x?"]]


def test_zero_bytes_inside_a_long_log_do_no_harm(tmp_path: Path) -> None:
    log = "".join(at("09:00:00", f"query {number}", user=str(number)) for number in range(3000))
    assert ["nul 0 byte"] in queries(tmp_path, log + at("08:00:00", "nul\x000\x00byte", user="x"))


@pytest.mark.parametrize(
    ("log", "settings", "sentence"),
    [
        ("", {}, "`LOG` is empty; name a log"),
        ("\n \n", {}, "`LOG` holds no query; name a log"),
        ("AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n", {}, "`LOG` holds no query"),
        (
            at("09:00:00", "a").replace("\n", "\r") * 2,
            {"format": "auto"},
            "`LOG` is not a text log: its lines end in carr",
        ),
        ("hello\nworld\n", {}, "no line of `LOG` is of the format aol: user, query and time"),
        (b"\x50\x4b\x00\x00", {}, "`LOG` is not a text log: it holds zero bytes"),
        ("1\ta\t2006-03-01 10:00:00".encode("utf-16"), {}, "`LOG` is not a text log: it is UTF-16; convert it"),
        (
            gzip.compress(b"1\ta\t2006-03-01 10:00:00\n", mtime=0)[:-9],
            {},
            "`LOG` cannot be read .the gzip file is cut or damaged",
        ),
        ("a\tb\n", {"format": "sessions", "split": "time"}, "`--split time` needs times, and the format sessions has"),
        (at("09:00:00", "a"), {"format": "sessions"}, "`LOG` is not of the format sessions: its lines are user, query"),
        (at("09:00:00", "a"), {"gap_minutes": float("nan")}, "`--gap-minutes` is nan, and it must be"),
        (
            at("09:00:00", "a") + at("09:01:00", "-") + at("09:02:00", "jo@example.com"),
            {"min_users": 9},
            "nothing is left of 3 rows: 1 empty, 1 personal, 1 issued by fewer than 9 users; lower --min-users",
        ),
        (at("09:00:00", "-"), {}, "nothing is left of 1 rows: 1 empty; give another log"),
        (at("09:00:00", "a") + at("09:00:00", "b", user="8"), {}, "all 2 sessions fell into the .* take --split hash"),
    ],
)
def test_what_cannot_be_prepared_is_said_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, log: str | bytes, settings: dict[str, Any], sentence: str
) -> None:
    file = tmp_path / "log.tsv"
    file.write_bytes(log.encode() if isinstance(log, str) else log)
    options: dict[str, Any] = {"format": "aol", "min_users": 1, **settings}
    with pytest.raises(UserError, match=sentence.replace("LOG", str(file))):
        prepare([file], tmp_path / "dataset", PrepareSettings(**options))
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.tsv"]


def test_missing_doubled_and_mixed_files(tmp_path: Path) -> None:
    aol, sessions = tmp_path / "aol.tsv", tmp_path / "sessions.tsv"
    aol.write_text(at("09:00:00", "a"))
    sessions.write_text("a\tb\nc\td\te\n")
    settings = PrepareSettings(min_users=1)
    with pytest.raises(UserError, match=r"none.tsv` cannot be read \(No such file"):
        prepare([tmp_path / "none.tsv"], tmp_path / "dataset", settings)
    with pytest.raises(UserError, match="is a folder, not a log file; name the files in it"):
        prepare([tmp_path], tmp_path / "dataset", settings)
    with pytest.raises(UserError, match=r"aol.tsv` is named twice, and its queries would count double"):
        prepare([aol, tmp_path / "." / "aol.tsv"], tmp_path / "dataset", settings)
    with pytest.raises(UserError, match=r"sessions.tsv` is of the format sessions and `.*aol.tsv` of aol"):
        prepare([aol, sessions], tmp_path / "dataset", settings)
    prepare([aol], tmp_path / "dataset", settings)
    with pytest.raises(UserError, match="exists already and nothing is overwritten"):
        prepare([aol], tmp_path / "dataset", settings)
