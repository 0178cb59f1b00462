"""Several processes: who they are, that together they train as one does, and that none is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mtn_edge.errors import UserError
from mtn_edge.training.processes import Processes, find_processes

SETTINGS = [
    *("model.d_model=32", "model.heads=2", "model.ffn=64", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "model.dropout=0", "train.validate_every=7"),
    *("train.warmup_steps=20", "train.valid_queries=50"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_one_process_by_default() -> None:
    assert find_processes(1, {}) == Processes(devices=1, nodes=1, rank=0, external=False)
    assert find_processes(1, {"LOCAL_RANK": "3", "SLURM_NTASKS": "8"}) == Processes()


def test_processes_of_this_machine() -> None:
    assert find_processes(2, {}) == Processes(devices=2)
    assert find_processes(2, {"LOCAL_RANK": "1"}) == Processes(devices=2, rank=1)


def test_processes_of_torchrun() -> None:
    environment = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8", "RANK": "5"}
    found = find_processes(1, environment)
    assert found == Processes(devices=4, nodes=2, rank=5, external=True)
    assert found.world == 8
    with pytest.raises(UserError) as caught:
        find_processes(2, environment)
    assert str(caught.value) == (
        "`--devices 2` was given, and 4 processes were started on this machine; leave the option out."
    )


def test_processes_of_slurm() -> None:
    environment = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "3", "SLURM_PROCID": "4"}
    assert find_processes(1, environment) == Processes(devices=2, nodes=3, rank=4, external=True)


def test_no_process_is_named() -> None:
    with pytest.raises(UserError, match="`--devices 0` was given, and at least 1 is needed"):
        find_processes(0, {})


def command(dataset: Path, output: Path, *more: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return [
        sys.executable,
        "-m",
        "mtn_edge",
        "train",
        str(dataset),
        "-o",
        str(output),
        "--device",
        "cpu",
        *settings,
        *more,
    ]


def run(dataset: Path, output: Path, *more: str) -> str:
    done = subprocess.run(
        command(dataset, output, "--json", *more), env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # the other processes say nothing
    return done.stderr


def rows(output: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_batch(tiny_dataset: Path, tmp_path: Path) -> None:
    epochs = ("--set", "train.epochs=1", "--set")
    run(tiny_dataset, tmp_path / "one", *epochs, "train.batch_queries=64")
    words = run(tiny_dataset, tmp_path / "two", *epochs, "train.batch_queries=32", "--devices", "2")
    assert all(line.startswith("training: ") for line in words.splitlines())
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == len(two) > 2
    for name in ("step", "train_loss", "valid_loss"):
        assert [row[name] for row in two] == pytest.approx([row[name] for row in one], rel=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def started(dataset: Path, output: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A long run of two processes that has begun to learn."""
    process = subprocess.Popen(
        command(dataset, output, "--devices", "2", "--set", "train.epochs=9999", "--set", "train.patience=9999"),
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics = output.parent / f".{output.name}.training" / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    return process, children


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_first_one(tiny_dataset: Path, tmp_path: Path, how: signal.Signals) -> None:
    process, children = started(tiny_dataset, tmp_path / "out")
    if how == signal.SIGINT:  # as a terminal does it: to all of them
        os.killpg(process.pid, how)
    else:
        process.kill()
    _, words = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    if how == signal.SIGINT:
        assert process.returncode == 130
        last = words.strip().splitlines()[-1]
        assert last.startswith("error: training was interrupted at step ")
        assert words.count("error: ") == 1
        assert "Traceback" not in words


@pytest.mark.slow
def test_torchrun_starts_a_run_and_resumes_it(tiny_dataset: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run(tiny_dataset, one, "--set", "train.epochs=1", "--set", "train.batch_queries=64")
    arguments = command(tiny_dataset, two, "--set", "train.epochs=1", "--set", "train.batch_queries=32")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments[1:]]
    for more in ([], ["--resume"]):
        done = subprocess.run([*launch, *more], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert "finished: nothing to resume" in done.stdout
    assert [row["valid_loss"] for row in rows(two)] == pytest.approx([row["valid_loss"] for row in rows(one)], rel=1e-4)
