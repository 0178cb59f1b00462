"""Lines of files: the same whatever the size of a block, with their numbers, from any encoding."""

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="logs are read with the extra [train]")

from mtn_edge.data import lines
from mtn_edge.data.formats import detect
from mtn_edge.data.lines import read_lines
from mtn_edge.errors import UserError


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.binary(max_size=12).map(lambda row: row.replace(b"\n", b"").replace(b"\0", b"")), min_size=1),
    end=st.sampled_from([b"\n", b"\r\n"]),
    whole=st.booleans(),
    chunk=st.integers(1, 40),
    packed=st.booleans(),
)
@example(rows=[b"1\ta\r2\tb\r"], end=b"\n", whole=False, chunk=3, packed=False)
@example(rows=[b"a", b"", b"b\r"], end=b"\r\n", whole=False, chunk=3, packed=False)
def test_lines_do_not_depend_on_the_block(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], end: bytes, whole: bool, chunk: int, packed: bool
) -> None:
    content = end.join(rows) + (end if whole or not rows[-1] else b"")
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\xef\xbb\xbf")):
        return
    path = tmp_path_factory.mktemp("lines") / "log"
    path.write_bytes(gzip.compress(content) if packed else content)
    if b"\n" not in content and b"\r" in content.rstrip(b"\r"):
        with pytest.raises(UserError, match="its lines end in carriage returns alone; end them with line feeds"):
            list(read_lines(path, chunk_bytes=max(chunk, 3)))
        return
    found: list[str] = []
    fallback: list[int] = []
    for part in read_lines(path, chunk_bytes=max(chunk, 3)):
        assert part.first == len(found) + 1
        found += part.text.to_pylist()
        fallback += part.fallback
    assert len(found) == len(rows)
    for number, (row, text) in enumerate(zip(rows, found, strict=True), start=1):
        row = row.rstrip(b"\r")
        try:
            assert text == row.decode()
            assert number not in fallback
        except UnicodeDecodeError:
            assert number in fallback
            assert len(text) == len(row)


def test_a_file_of_one_endless_line_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    (tmp_path / "log").write_bytes(b"x" * 5000)
    with pytest.raises(UserError, match="is not a text log: it holds a line longer than 1,000 bytes"):
        list(read_lines(tmp_path / "log", chunk_bytes=100))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "log").write_text("a\tb\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"log` cannot be read \(Permission denied\); name a log file that can be read"):
        list(read_lines(tmp_path / "log"))


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ("AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n", "aol"),
        ("1\ta\t2006-03-01 10:00:00\n", "aol"),
        ("1\ta\t2006-03-01 10:00:00\n1\tb\t2006-03-01 10:00:00\t1\thttp://b.example\nbroken\n", "aol"),
        ("one\ttwo\nthree\tfour\tfive\n", "sessions"),
        ("only one session\tof two\n", "sessions"),
        ("alone\none\ttwo\n", "sessions"),
    ],
)
def test_formats_that_can_be_told(tmp_path: Path, content: str, form: str) -> None:
    (tmp_path / "log").write_text(content)
    assert detect(tmp_path / "log") == form


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"query": "a", "user": 1}\n', "its lines look like JSON"),
        ("query,user\na,1\n", "there is no tab in its first 2 lines"),
        ("Date\tQuery\tCountry\n2020-01-01\ta\tFrance\n", "each of its first 2 lines has 3 columns, as a table has"),
        ("1\ta\t2006-03-01 10:00:00\nx\ty\nz\n", "only 1 of its first 3 lines look like user, query and time"),
    ],
)
def test_formats_that_cannot_be_told(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "log").write_text(content)
    with pytest.raises(UserError, match=f"cannot be told: {reason}.*; say --format aol .* or --format sessions"):
        detect(tmp_path / "log")
