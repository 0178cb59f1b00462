"""How a run ends before its last step: by patience, time, faults; and how it goes on."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtn_edge.cli import main
from mtn_edge.config import Config, override, preset
from mtn_edge.errors import InterruptedRunError, UserError
from mtn_edge.tokenizer import Tokenizer
from mtn_edge.training import objective, run, watch
from mtn_edge.training.checkpoint import load_checkpoint
from mtn_edge.training.ranking import RankingSample
from mtn_edge.training.run import train_model
from mtn_edge.training.state import load_state
from mtn_edge.training.workplace import LOCK, Workplace

SMALL = [
    *("model.d_model=16", "model.heads=2", "model.ffn=16", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=4", "model.dropout=0.1", "train.epochs=2", "train.warmup_steps=5"),
    *("train.validate_every=10", "train.valid_queries=100", "train.batch_queries=64"),
]


def settings(*more: str) -> Config:
    return override(preset("tiny"), [*SMALL, *more])


def train(dataset: Path, output: Path, *more: str, **options: Any) -> dict[str, Any]:
    return train_model(dataset, output, config=settings(*more), device="cpu", **options)


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def break_at(monkeypatch: pytest.MonkeyPatch, step: int, fault: Any) -> None:
    """Puts a fault into the loss of one step."""
    real, calls = objective.token_loss, [0]

    def broken(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        loss, tokens = real(*given, **named)
        if calls[0] == step:
            return fault(loss), tokens
        return loss, tokens

    monkeypatch.setattr(objective, "token_loss", broken)
    # The validation has its own name for it, which must not count.
    monkeypatch.setattr(watch, "mean_loss", lambda model, batches: _mean(real, model, batches))


def train_broken(dataset: Path, output: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, *more: str) -> None:
    """A run with a fault in step 14."""
    with monkeypatch.context() as patch:
        break_at(patch, 14, fault)
        train(dataset, output, *more)


def _mean(real: Any, model: Any, batches: Any) -> float:
    with torch.no_grad():
        pairs = [real(model.eval(), batch) for batch in batches]
    model.train()
    return sum(float(loss) for loss, _ in pairs) / sum(int(tokens) for _, tokens in pairs)


class NanGradient(torch.autograd.Function):
    """A loss that is finite with gradients that are not."""

    @staticmethod
    def forward(_: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan


def out_of_memory(loss: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def out_of_cpu_memory(loss: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("fault", [lambda loss: loss * torch.nan, lambda loss: loss * torch.inf, NanGradient.apply])
def test_a_loss_or_gradient_that_is_no_number_never_reaches_the_weights(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    output = tmp_path / "out"
    with pytest.raises(UserError) as caught:
        train_broken(tiny_dataset, output, monkeypatch, fault)
    assert str(caught.value) == (
        "training diverged: the loss or a weight is not a finite number at step 14; the last good state is kept; "
        "lower `train.learning_rate` and go on with --resume, or start anew with --force."
    )
    state = load_state(Workplace(output).folder)
    assert state is not None
    assert state.progress.step == 10
    assert all(x.isfinite().all() for x in state.tensors.values())
    result = train(tiny_dataset, output, "train.learning_rate=1e-3", resume=True)
    assert result["steps"] > 30
    assert rows(output)[-1]["lr"] < 1e-3
    assert load_checkpoint(output).config.train.learning_rate == 1e-3


@pytest.mark.parametrize("fault", [out_of_memory, out_of_cpu_memory])
def test_too_little_memory_keeps_the_state_and_smaller_batches_go_on(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    with pytest.raises(UserError) as caught:
        train_broken(tiny_dataset, output, monkeypatch, fault)
    assert str(caught.value) == (
        "there was not enough memory for step 14; the last saved state is kept; "
        "halve `train.batch_queries`, double `train.accumulate` and go on with --resume."
    )
    result = train(tiny_dataset, output, "train.batch_queries=32", "train.accumulate=2", resume=True)
    assert result["steps"] > 30
    words = capsys.readouterr().err
    assert "`train.batch_queries` was 64 and is 32 from here on" in words
    assert "resuming at step 10" in words


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError, ValueError])
def test_other_faults_are_not_taken_for_a_lack_of_memory(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fault(loss: torch.Tensor) -> torch.Tensor:
        raise kind("shapes do not fit")

    break_at(monkeypatch, 3, fault)
    with pytest.raises(kind, match="shapes do not fit"):
        train(tiny_dataset, tmp_path / "out")


def test_being_told_to_end_keeps_the_state(tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminate(loss: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGTERM)
        return loss

    with pytest.raises(InterruptedRunError) as caught:
        train_broken(tiny_dataset, tmp_path / "out", monkeypatch, terminate)
    assert str(caught.value) == (
        "training was interrupted before its state was saved again; go on with the same command and --resume."
    )
    state = load_state(Workplace(tmp_path / "out").folder)
    assert state is not None
    assert state.progress.step == 10


def interrupted(dataset: Path, output: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """A run that stopped at step 14, with a state of step 10."""
    with pytest.raises(UserError, match="not enough memory"):
        train_broken(dataset, output, monkeypatch, out_of_memory, *more)


@pytest.mark.parametrize("more", [("train.average=0.9",), ("train.bpe_dropout=0.2",), ("train.batch_tokens=1500",)])
def test_resumed_runs_end_with_the_weights_of_unbroken_ones(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    train(tiny_dataset, tmp_path / "whole", *more)
    interrupted(tiny_dataset, tmp_path / "broken", monkeypatch, *more)
    train(tiny_dataset, tmp_path / "broken", *more, resume=True)
    whole, broken = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert whole == broken


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (("train.batch_queries=32",), "`train.batch_queries` was 64 in the interrupted run and is 32 now"),
        (("train.accumulate=2",), "`train.accumulate` was 1 in the interrupted run and is 2 now"),
        (("train.bpe_dropout=0.1",), "`train.bpe_dropout` was 0.0 in the interrupted run and is 0.1 now"),
        (("train.epochs=9",), "`train.epochs` was 2 in the interrupted run and is 9 now"),
    ],
)
def test_what_a_step_learns_from_may_not_change(
    tiny_dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...],
    sentence: str,
) -> None:
    interrupted(tiny_dataset, tmp_path / "out", monkeypatch)
    with pytest.raises(UserError) as caught:
        train(tiny_dataset, tmp_path / "out", *changes, resume=True)
    assert str(caught.value).startswith(sentence)


def test_mrr_decides_when_asked(tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks get worse from the second validation on while the loss falls: the first weights are kept."""
    found = iter([0.3, 0.2, 0.25, 0.1, 0.1, 0.1, 0.1, 0.1])
    monkeypatch.setattr(RankingSample, "mrr", lambda *_: next(found))
    result = train(tiny_dataset, tmp_path / "out", "train.stop_on=mrr", "train.patience=2")
    assert [row["valid_mrr"] for row in rows(tmp_path / "out")] == [0.3, 0.2, 0.25]
    assert rows(tmp_path / "out")[2]["valid_loss"] < rows(tmp_path / "out")[0]["valid_loss"]
    assert (result["best_step"], result["valid_mrr"], result["stopped_early"]) == (10, 0.3, True)
    assert result["valid_loss"] == rows(tmp_path / "out")[0]["valid_loss"]


def test_mrr_is_that_of_the_lists_a_user_sees(tiny_checkpoint: Path) -> None:
    from mtn_edge.decoding.torch_engine import TorchEngine
    from mtn_edge.runtime.search import Decoding, Search

    checkpoint = load_checkpoint(tiny_checkpoint)
    sessions = [["new york hotels", "new york weather"], ["jaguar price", "", "x", "near me"]]
    before = torch.get_rng_state()
    value = RankingSample(sessions, checkpoint.tokenizer, 4).mrr(checkpoint.model)
    assert torch.equal(torch.get_rng_state(), before)
    engine = TorchEngine(checkpoint.model)
    search = Search(engine, checkpoint.tokenizer, Decoding(beam=10, max_steps=13))
    ranks = []
    for session in (["new york hotels", "new york weather"], ["jaguar price", "x"]):  # the fifth query is too many
        state = engine.start()
        for query in session:
            for typed in ("", query[: len(query) // 2]) if len(query) > 1 else ("",):
                found = search.endings(state, typed, 10)
                assert found is not None
                texts = [typed + ending.text for ending in found.endings][:10]
                ranks.append(1 / (1 + texts.index(query)) if query in texts else 0.0)
            state = engine.append(checkpoint.tokenizer.encode(query), state)
    assert value == pytest.approx(sum(ranks) / 7)
    assert 0.1 < value < 1
    # Of a session that is longer than the context of 6 queries the first 7 are asked for.
    long = RankingSample([["paris jobs"] * 7], checkpoint.tokenizer, 99).mrr(checkpoint.model)
    assert RankingSample([["paris jobs"] * 9], checkpoint.tokenizer, 99).mrr(checkpoint.model) == long


def test_a_time_budget_ends_a_run_with_its_best_weights(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))  # a tenth of a second between any two looks at the clock
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10))
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: 0.0))
    result = train(tiny_dataset, tmp_path / "out", "train.epochs=90", "train.patience=9999", "train.time_budget=9")
    assert result["stopped_early"] is True
    assert 7 < result["seconds"] <= 9
    assert 20 < result["steps"] < 90
    last = rows(tmp_path / "out")[-1]
    assert last["step"] == result["steps"]
    assert result["valid_loss"] == min(row["valid_loss"] for row in rows(tmp_path / "out"))


def test_a_run_that_ended_by_time_is_not_trained_on(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its last save and its checkpoint, it has only to be put together."""
    output = tmp_path / "out"
    real = run.write_checkpoint
    monkeypatch.setattr(run, "write_checkpoint", lambda *_, **__: _raise(InterruptedError()))
    with pytest.raises(InterruptedError):
        train(tiny_dataset, output, "train.time_budget=0.1")
    monkeypatch.setattr(run, "write_checkpoint", real)
    state = load_state(Workplace(output).folder)
    assert state is not None
    assert state.progress.ended
    assert train(tiny_dataset, output, "train.time_budget=0.1", resume=True)["steps"] == state.progress.step == 1


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("30s", 30.0)])
def test_times_of_the_command_line(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {}

    def record(dataset: Path, output: Path, *, config: Config, **_: Any) -> dict[str, Any]:
        given["budget"] = config.train.time_budget
        raise UserError("seen", code="seen")

    monkeypatch.setattr("mtn_edge.training.run.train_model", record)
    monkeypatch.setattr(sys, "argv", ["mtn-edge", "train", "d", "-o", "o", "--time-budget", text])
    with pytest.raises(SystemExit):
        main()
    assert given["budget"] == seconds
    assert "error: seen." in capsys.readouterr().err


def test_what_is_no_time_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mtn-edge", "train", "d", "-o", "o", "--time-budget", "soon"])
    with pytest.raises(SystemExit):
        main()
    sentence = "error: `--time-budget soon` is no time; write seconds, or minutes as 10m, hours as 2h."
    assert sentence in capsys.readouterr().err


def test_tensorboard_gets_every_line(tiny_dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny_dataset, tmp_path / "out", tensorboard=tmp_path / "board")
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    for name in ("train_loss", "valid_loss", "lr"):
        found = {event.step: event.value for event in events.Scalars(name)}
        assert found == {row["step"]: pytest.approx(row[name], rel=1e-5) for row in rows(tmp_path / "out")}


def test_tensorboard_that_is_missing_is_named(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="`--tensorboard` needs the package `tensorboard`, which is not installed"):
        train(tiny_dataset, tmp_path / "out", tensorboard=tmp_path / "board")


def test_a_second_run_on_one_output_is_kept_out(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    interrupted(tiny_dataset, output, monkeypatch)
    before = (Workplace(output).folder / "state.safetensors").read_bytes()
    for options in ({"resume": True}, {"force": True}, {}):
        with Workplace(output), pytest.raises(UserError) as caught:
            train(tiny_dataset, output, **options)
        assert str(caught.value) == (
            f"another `train` is at work on `{output}`; wait for it, or choose another name with -o."
        )
    assert (Workplace(output).folder / "state.safetensors").read_bytes() == before
    train(tiny_dataset, output, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_run_holds_the_lock_while_it_lasts(tiny_dataset: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_dataset / "tokenizer.json")
    with Workplace(tmp_path / "out") as first, Workplace(tmp_path / "out") as second:
        first.make(tokenizer)
        with pytest.raises(UserError, match="another `train` is at work"):
            second.make(tokenizer)
        assert (first.folder / LOCK).exists()
    with Workplace(tmp_path / "out") as third:
        third.make(tokenizer)


def test_a_dataset_replaced_meanwhile_changes_nothing(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, dataset)
    real, seen = watch.Watch.on_train_start, []

    def replace(self: Any, *given: Any) -> None:
        (dataset / "tokenizer.json").write_text("{}")
        seen.append(True)
        real(self, *given)

    monkeypatch.setattr(watch.Watch, "on_train_start", replace)
    train(dataset, tmp_path / "out")
    assert seen
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tiny_dataset / "tokenizer.json").read_bytes()
    load_checkpoint(tmp_path / "out")
