"""A run that is killed, at whatever moment, and resumed ends with the weights of the unbroken run, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SETTINGS = [
    *("model.d_model=32", "model.heads=2", "model.ffn=64", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "model.dropout=0.3"),
    *("train.epochs=2", "train.batch_queries=32", "train.validate_every=7", "train.patience=99"),
    *("train.warmup_steps=20", "train.valid_queries=50"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

# Imports everything once, then forks for each command, which saves the seconds that the imports take. The child may
# be told to die by SIGKILL inside a file operation: while half of a file is written, before a flush, a rename, a
# removal.
FORKER = """
import json, os, signal, sys
from pathlib import Path
import mtn_edge.training.run
from mtn_edge.cli import main

def mine(arguments, words, die_at):
    countdown = [die_at]
    def dying(real):
        def call(*given, **named):
            countdown[0] -= 1
            if countdown[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)
        return call
    def torn(path, data):
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            dying(lambda: None)()
            file.write(data[len(data) // 2 :])
        return len(data)
    Path.write_bytes = torn
    for name in ("replace", "rename", "unlink"):
        setattr(Path, name, dying(getattr(Path, name)))
    os.fsync = dying(os.fsync)
    file = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["mtn-edge", *arguments]
    main()

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        mine(**request)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forker:
    """Runs `train` in forks of one process."""

    def __init__(self, process: subprocess.Popen[str], words: Path) -> None:
        self._process, self._words = process, words

    def start(self, arguments: list[str], die_at: int = 0) -> int:
        """Returns the number of the process."""
        assert self._process.stdin is not None
        request = {"arguments": arguments, "words": str(self._words), "die_at": die_at}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._line()

    def wait(self) -> tuple[int, str]:
        """Exit status (negative: the signal) and all words of the command started last."""
        return self._line(), self._words.read_text()

    def run(self, arguments: list[str], die_at: int = 0) -> tuple[int, str]:
        self.start(arguments, die_at)
        return self.wait()

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    options: dict[str, Any] = {"env": ENVIRONMENT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORKER], **options) as process:
        yield Forker(process, tmp_path_factory.mktemp("forker") / "words")
        process.stdin.close()


def arguments(dataset: Path, output: Path, *more: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", str(dataset), "-o", str(output), "--device", "cpu", *settings, *more]


def command(dataset: Path, output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "mtn_edge", *arguments(dataset, output, *more)]


def weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


def workplace(output: Path) -> Path:
    return output.parent / f".{output.name}.training"


def metrics(folder: Path) -> list[dict[str, float]]:
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(scope="module")
def unbroken(tiny_dataset: Path, forker: Forker) -> Path:
    output = tiny_dataset.parent / "unbroken"
    status, words = forker.run(arguments(tiny_dataset, output, "--json"))
    assert status == 0, words
    assert json.loads(words.splitlines()[-1])["status"] == "trained"
    assert not workplace(output).exists()
    return output


def wait_for_rows(output: Path, rows: int) -> None:
    deadline = time.monotonic() + 120
    while len(metrics(workplace(output))) < rows:
        assert time.monotonic() < deadline
        assert not output.exists()
        time.sleep(0.005)


def test_the_public_command_killed_at_a_random_moment(tiny_dataset: Path, unbroken: Path, tmp_path: Path) -> None:
    output = tmp_path / "checkpoint"
    assert len(metrics(unbroken)) > 6
    with subprocess.Popen(command(tiny_dataset, output), env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        wait_for_rows(output, 2)
        time.sleep(random.uniform(0, 0.3))
        process.kill()
    assert not output.exists()
    resumed = subprocess.run(
        command(tiny_dataset, output, "--resume"), env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.startswith("resuming at step ")
    assert weights(output) == weights(unbroken)
    assert not workplace(output).exists()
    for key in ("step", "epoch", "train_loss", "valid_loss", "lr"):
        assert [row[key] for row in metrics(output)] == [row[key] for row in metrics(unbroken)]


def test_killed_at_many_random_moments(tiny_dataset: Path, unbroken: Path, forker: Forker, tmp_path: Path) -> None:
    output = tmp_path / "checkpoint"
    kills = 0
    for _ in range(4):
        process = forker.start(arguments(tiny_dataset, output, "--resume"))
        time.sleep(random.uniform(0.2, 1.0))
        os.kill(process, signal.SIGKILL)
        status, words = forker.wait()
        if status == 0:
            break
        assert status == -signal.SIGKILL, words
        kills += 1
    assert kills >= 1
    status, words = forker.run(arguments(tiny_dataset, output, "--resume"))
    assert status == 0, words
    assert weights(output) == weights(unbroken)


def test_killed_inside_saves_and_while_the_checkpoint_is_put_together(
    tiny_dataset: Path, unbroken: Path, forker: Forker, tmp_path: Path
) -> None:
    """The run is resumed after each kill, and killed again: a save has 4 file operations, the end 13."""
    output = tmp_path / "checkpoint"
    kills = 0
    for operation in (1, 7, 18, 40, 5, 3, 1, 6, 9, 3, 7):
        status, words = forker.run(arguments(tiny_dataset, output, "--resume"), die_at=operation)
        if status == 0:
            break
        assert status == -signal.SIGKILL, words
        kills += 1
    assert forker.run(arguments(tiny_dataset, output, "--resume"))[0] == 0
    assert kills >= 8
    assert weights(output) == weights(unbroken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_ctrl_c_saves_the_state_and_says_how_to_go_on(
    tiny_dataset: Path, unbroken: Path, forker: Forker, tmp_path: Path
) -> None:
    output = tmp_path / "checkpoint"
    process = forker.start(arguments(tiny_dataset, output))
    wait_for_rows(output, 1)
    time.sleep(random.uniform(0, 0.1))
    os.kill(process, signal.SIGINT)
    status, words = forker.wait()
    assert status == 130
    last = words.strip().splitlines()[-1]
    assert last.startswith("error: training was interrupted at step ")
    assert "--resume" in last
    assert "Traceback" not in words
    assert [path.name for path in tmp_path.iterdir()] == [workplace(output).name]
    step = int(last.split("step ")[1].split(",")[0])
    status, words = forker.run(arguments(tiny_dataset, output, "--resume"))
    assert status == 0
    assert words.startswith(f"resuming at step {step}\n")
    assert weights(output) == weights(unbroken)


@pytest.mark.slow
def test_the_public_command_killed_at_twenty_random_moments(tiny_dataset: Path, unbroken: Path, tmp_path: Path) -> None:
    """Each part is killed up to a second after its imports; whatever gets to its end in between is compared."""
    kills = finished = 0
    while kills < 20:
        output = tmp_path / f"checkpoint-{finished}"
        began = len(metrics(workplace(output)))
        with subprocess.Popen(
            command(tiny_dataset, output, "--resume"), env=ENVIRONMENT, stderr=subprocess.PIPE
        ) as run:
            assert run.stderr is not None
            run.stderr.readline()  # when everything is imported it says where it goes on
            try:
                run.wait(random.uniform(0, 1.0))
            except subprocess.TimeoutExpired:
                run.kill()
                kills += 1
            assert run.wait() in (0, -signal.SIGKILL)
        if output.exists() and not workplace(output).exists():
            assert weights(output) == weights(unbroken)
            finished += 1
        assert output.exists() or len(metrics(workplace(output))) >= began
    resumed = subprocess.run(command(tiny_dataset, output, "--resume"), env=ENVIRONMENT, capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    assert weights(output) == weights(unbroken)
