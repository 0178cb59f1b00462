"""`mtn-edge quantize`: flags that do not go together are refused before anything is read."""

import sys
from pathlib import Path

import pytest

from export import bundle
from mtn_edge.cli import main
from mtn_edge.errors import EXIT_INTERRUPTED, EXIT_USAGE

DATA = ["--data", "dataset"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--int8", "--int4"], "give one of --int8, --int4 and --fp32"),
        (["--fp32", "--method", "static", *DATA], "--method static goes with --int8"),
        (["--int4", "--method", "qat", *DATA], "--method qat goes with --int8"),
        (["--int8", "--method", "static"], "--method static needs --data"),
        (["--int8", "--method", "qat"], "--method qat needs --data"),
        (["--int8", "--max-drop", "0.01"], "--max-drop needs --data"),
        (["--fp32", "--max-drop", "0.01", *DATA], "--max-drop goes with --int8 or --int4"),
        (["--int8", "--seed", "-1"], "Invalid value for '--seed'"),
        (["--int8", "--max-drop", "1.5", *DATA], "--max-drop is 1.5, and it must be at least 0 and below 1"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["mtn-edge", "quantize", str(tmp_path / "none"), "-o", str(tmp_path / "o"), *flags]
    )
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_USAGE
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle, "write_bundle", stopped)
    monkeypatch.setattr(sys, "argv", ["mtn-edge", "quantize", str(tmp_path), "-o", str(tmp_path / "o"), "--int8"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "error: interrupted.\n"
