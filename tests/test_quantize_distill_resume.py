"""A distillation that is killed, at whatever moment, and resumed ends with the weights of the unbroken run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SETTINGS = [
    *("model.d_model=16", "model.heads=2", "model.ffn=32", "model.query_layers=1", "model.decoder_layers=1"),
    *("model.max_tokens=12", "model.max_queries=6", "model.dropout=0.3"),
    *("train.epochs=1", "train.batch_queries=32", "train.validate_every=9", "train.patience=99"),
    *("train.warmup_steps=20", "train.valid_queries=50"),
    *("distill.states=0.2", "distill.sessions=0.2", "distill.answers=0.05"),
]

# Imports everything once, then forks for each command, whose teacher is saved after every batch and every answer. The
# child may be told to die by SIGKILL before or inside the n-th of its file operations.
FORKER = """
import json, os, signal, sys
from pathlib import Path
import quantize.distill, quantize.teacher_answers, quantize.teacher_outputs
from mtn_edge.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
quantize.teacher_answers.SAVE_SECONDS = quantize.teacher_outputs.SAVE_SECONDS = 0.0

def mine(arguments, words, die_at):
    countdown = [die_at]
    def dying(real):
        def call(*given, **named):
            countdown[0] -= 1
            if countdown[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)
        return call
    for name in ("replace", "rename", "unlink", "write_text", "write_bytes", "rmdir"):
        setattr(Path, name, dying(getattr(Path, name)))
    os.fsync = dying(os.fsync)
    file = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["mtn-edge", *arguments]
    try:
        main()
    except SystemExit as end:
        if countdown[0] > 0:
            print("operations:", die_at - countdown[0])
            sys.stdout.flush()
        raise

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        mine(**request)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forker:
    """Runs `distill` in forks of one process."""

    def __init__(self, process: subprocess.Popen[str], words: Path) -> None:
        self._process, self._words = process, words

    def start(self, arguments: list[str], die_at: int = 0) -> int:
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
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", FORKER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Forker(process, tmp_path_factory.mktemp("forker") / "words")
        assert process.stdin is not None
        process.stdin.close()


def arguments(dataset: Path, teacher: Path, output: Path, *more: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["distill", str(dataset), "--teacher", str(teacher), "-o", str(output), "--device", "cpu", *settings, *more]


def weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tiny_dataset: Path, tiny_checkpoint: Path, forker: Forker) -> tuple[Path, int]:
    """The checkpoint of the unbroken run, and how many file operations it took."""
    output = tiny_dataset.parent / "unbroken-student"
    status, words = forker.run(arguments(tiny_dataset, tiny_checkpoint, output), die_at=10**6)
    assert status == 0, words
    return output, int(words.rsplit("operations: ", 1)[1])


def test_killed_in_every_part(
    tiny_dataset: Path, tiny_checkpoint: Path, unbroken: tuple[Path, int], forker: Forker, tmp_path: Path
) -> None:
    """While the teacher answers, is asked, while the student learns, and while the checkpoint is put together."""
    whole, operations = unbroken
    output, seen = tmp_path / "student", set()
    resumed = arguments(tiny_dataset, tiny_checkpoint, output, "--resume")
    for die_at in (3, 30, 9, 8, 22, 30, 12, 9, 5):
        assert die_at < operations
        status, words = forker.run(resumed, die_at=die_at)
        if status == 0:
            break
        assert status == -signal.SIGKILL, words
        assert not output.exists() or (tmp_path / ".student.teacher").exists()
        seen |= {part.split(":")[0] for part in words.splitlines() if part}
    status, words = forker.run(resumed)
    assert status == 0, words
    assert weights(output) == weights(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["student"]
    assert any(word.startswith("resuming at step") for word in seen)


def test_killed_at_random_moments(
    tiny_dataset: Path, tiny_checkpoint: Path, unbroken: tuple[Path, int], forker: Forker, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    resumed = arguments(tiny_dataset, tiny_checkpoint, output, "--resume")
    for _ in range(4):
        process = forker.start(resumed)
        time.sleep(random.uniform(0.2, 1.5))
        os.kill(process, signal.SIGKILL)
        status, words = forker.wait()
        if status == 0:
            break
        assert status == -signal.SIGKILL, words
    status, words = forker.run(resumed)
    assert status == 0, words
    assert weights(output) == weights(unbroken[0])


def test_ctrl_c_keeps_what_the_teacher_said_and_another_teacher_is_another_run(
    tiny_dataset: Path, tiny_checkpoint: Path, unbroken: tuple[Path, int], forker: Forker, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    answers = tmp_path / ".student.teacher" / "answers.jsonl"
    process = forker.start(arguments(tiny_dataset, tiny_checkpoint, output))
    deadline = time.monotonic() + 120
    while not (answers.is_file() and answers.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process, signal.SIGINT)
    status, words = forker.wait()
    assert status == 130
    assert words.strip().splitlines()[-1].endswith("go on with the same command and --resume.")
    assert "Traceback" not in words
    kept = answers.read_bytes()
    status, words = forker.run(arguments(tiny_dataset, tiny_checkpoint, output, "--resume"), die_at=60)
    assert status == -signal.SIGKILL, words
    assert answers.read_bytes().startswith(kept)
    state = tmp_path / ".student.training" / "state.safetensors"
    assert state.exists(), words
    status, words = forker.run(arguments(tiny_dataset, unbroken[0], output, "--resume"))
    assert status == 1
    assert "the interrupted run was learning from another teacher" in words
    status, words = forker.run(arguments(tiny_dataset, tiny_checkpoint, output, "--resume"))
    assert status == 0, words
    assert weights(output) == weights(unbroken[0])
