import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mtn_edge.errors import UserError
from mtn_edge.profiling import protocol, worker
from mtn_edge.profiling.cases import draw_sessions, golden_sessions, presses
from mtn_edge.profiling.protocol import percentiles, profile_bundle

SESSIONS = [["paris hotels", "paris weather"], ["東京"]]


def test_presses_are_every_key_of_every_query() -> None:
    asked = [(press.session, press.earlier, press.prefix) for press in presses([["ab", "c"], ["é"]])]
    assert asked == [
        (0, 0, ""),
        (0, 0, "a"),
        (0, 0, "ab"),
        (0, 1, ""),
        (0, 1, "c"),
        (1, 0, ""),
        (1, 0, "é"),
    ]


def test_sessions_are_drawn_whole_until_there_are_enough_keys() -> None:
    sessions = [["ab", "cd"], ["ef"], ["gh", "ij"]]
    assert draw_sessions(sessions, seed=1, key_presses=1000) == sessions
    for seed in range(5):
        drawn = draw_sessions(sessions, seed=seed, key_presses=5)
        keys = sum(len(query) for queries in drawn for query in queries)
        assert keys >= 5
        assert all(queries in sessions for queries in drawn)
        assert draw_sessions(sessions, seed=seed, key_presses=5) == drawn
    assert len({json.dumps(draw_sessions(sessions, seed=seed, key_presses=4)) for seed in range(20)}) > 1


def test_percentiles_by_hand() -> None:
    found = percentiles(np.arange(101.0))
    assert found == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "count": 101}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None, "count": 0}


def test_groups_hold_every_key_press_once(tiny_bundle: Path) -> None:
    counted: list[int] = []
    profile = profile_bundle(tiny_bundle, SESSIONS * 5, threads=1, progress=counted.append)
    figures = profile.figures
    keys = 5 * (12 + 13 + 2)
    assert figures["keystroke_ms"]["count"] == keys
    assert len(profile.keystroke_ms) == keys
    assert figures["suggest_ms"]["count"] == 15
    assert figures["encode_ms"]["count"] == 5  # the last query of a session is typed, never appended
    for grouping in ("by_prefix_length", "by_session_length"):
        assert sum(group["count"] for group in figures["keystroke_ms"][grouping].values()) == keys
    assert figures["keystroke_ms"]["by_prefix_length"]["1"]["count"] == 15
    assert figures["keystroke_ms"]["by_session_length"]["1"]["count"] == 5 * 13
    assert counted == [100]
    assert figures["bytes"] == sum(file.stat().st_size for file in tiny_bundle.iterdir())
    assert figures["bytes"] == sum(figures["files"].values())
    for key in ("encode_ms", "suggest_ms", "keystroke_ms"):
        assert 0 < figures[key]["p50"] <= figures[key]["p95"] <= figures[key]["p99"]
    assert 0 < figures["load_ms"] < 10_000
    assert min(figures["load_ms_all"]) <= figures["load_ms"] <= max(figures["load_ms_all"])
    assert 0 < figures["rss_mb"] < figures["process_mb"]
    assert figures["machine"]["cores"] >= 1
    json.dumps(figures, allow_nan=False)


def test_worker_asks_what_a_keyboard_would(monkeypatch: pytest.MonkeyPatch, tiny_bundle: Path) -> None:
    from mtn_edge.runtime.suggester import Session

    asked: list[tuple[list[str], str, int]] = []
    real = Session.suggest

    def spy(self: Session, prefix: str = "", k: int = 8, **more: float) -> object:
        asked.append((self.queries, prefix, k))
        return real(self, prefix, k, **more)

    monkeypatch.setattr(Session, "suggest", spy)
    monkeypatch.setattr(worker, "WARM_UP", 3)
    result = worker.measure(worker.Job(bundle=str(tiny_bundle), threads=1, sessions=[["ab", "c"], ["d"]]))
    assert asked[:3] == [([], "", 8), ([], "a", 8), ([], "ab", 8)]
    assert asked[3:] == [
        ([], "", 8),
        ([], "a", 8),
        ([], "ab", 8),
        (["ab"], "", 8),
        (["ab"], "c", 8),
        ([], "", 8),
        ([], "d", 8),
    ]
    assert [request[:3] for request in result["requests"]] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 0, 1),
    ]
    assert len(result["encode"]) == 1


def test_a_worker_tells_its_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = {"bundle": str(tmp_path / "none"), "threads": 1, "sessions": []}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
    assert worker.main() == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "missing"
    with pytest.raises(UserError, match="does not exist") as fault:
        profile_bundle(tmp_path / "none", [], threads=1, progress=print)
    assert fault.value.code == "missing"


def test_a_worker_that_dies_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\ncat > /dev/null\nexit 7\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(protocol.sys, "executable", str(fake))
    with pytest.raises(UserError, match="ended with status 7 and no result"):
        profile_bundle(tmp_path, [], threads=1, progress=print)


def test_golden_sessions_type_what_the_bundle_expects(tiny_bundle: Path) -> None:
    sessions = golden_sessions(tiny_bundle)
    assert sessions
    vectors = json.loads((tiny_bundle / "golden.json").read_text(encoding="utf-8"))["vectors"]
    useful = [vector for vector in vectors if vector["suggestions"]]
    assert sessions[0] == [*useful[0]["session"], useful[0]["suggestions"][0]["text"]]
    assert len(sessions) == len(useful)
