"""`mtn-edge export tensorrt`: what is missing is said before any work, and no half folder stays behind."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from mtn_edge.cli import main
from mtn_edge.errors import UserError

pytest.importorskip("torch", reason="the engines' networks are PyTorch modules (extra [train])")

from export.tensorrt import builders

FIND = importlib.util.find_spec


def only(*present: str) -> Any:
    """`find_spec` in an environment where of the builders' packages these are installed."""
    absent = {"torch_tensorrt", "tensorrt", "tensorrt_rtx"} - set(present)

    def find(name: str, package: str | None = None) -> Any:
        return None if name in absent else object() if name in present else FIND(name, package)

    return find


@pytest.mark.parametrize(
    ("asked", "precision", "extra"),
    [
        (None, "fp32", "tensorrt"),
        (None, "int8", "tensorrt"),
        ("torch-tensorrt", "fp16", "tensorrt"),
        ("tensorrt-rtx", "int8", "tensorrt-rtx"),
    ],
)
def test_a_missing_builder_is_named_with_its_extra(
    asked: Any, precision: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", only())
    with pytest.raises(UserError, match=r"which is not installed; install it with") as raised:
        builders.find_builder(asked, precision)
    assert raised.value.hint.endswith(f'"mtn-edge[{extra}]"`')


@pytest.mark.parametrize(
    ("present", "precision", "chosen"),
    [
        (("torch_tensorrt", "tensorrt", "tensorrt_rtx"), "fp32", "torch-tensorrt"),
        (("torch_tensorrt", "tensorrt", "tensorrt_rtx"), "int8", "tensorrt"),
        (("tensorrt_rtx",), "fp16", "tensorrt-rtx"),
    ],
)
def test_the_first_builder_that_is_installed(
    present: tuple[str, ...], precision: Any, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", only(*present))
    for name in present:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert builders.find_builder(None, precision).name == chosen


def test_a_package_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tensorrt.py").write_text("raise RuntimeError('no NVIDIA driver')", encoding="utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", only("tensorrt"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    with pytest.raises(UserError, match=r"`tensorrt` is installed and cannot be loaded \(no NVIDIA driver\)"):
        builders.find_builder("tensorrt", "fp32")


def test_a_builder_that_cannot_be_loaded_makes_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch_tensorrt.py").write_text("raise ImportError('libcuda.so.1')", encoding="utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", only("torch_tensorrt", "tensorrt_rtx"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch_tensorrt", raising=False)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", types.ModuleType("tensorrt_rtx"))
    assert builders.find_builder(None, "fp32").name == "tensorrt-rtx"


def test_int8_is_not_for_torch_tensorrt() -> None:
    with pytest.raises(UserError, match=r"`--builder torch-tensorrt` was given with `--precision int8`"):
        builders.find_builder("torch-tensorrt", "int8")


def test_a_fault_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["mtn-edge", "export", "tensorrt", str(tmp_path / "none"), "-o", str(tmp_path / "out"), "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "does not exist" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
