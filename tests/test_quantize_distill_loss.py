"""The loss of distillation by hand, and that what the teacher said reaches the right place."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtn_edge.config import DistillConfig, ModelConfig, TrainConfig
from mtn_edge.data.batches import IGNORE, Batch, Batches, TokenizedSessions
from mtn_edge.models.build import Network, build
from mtn_edge.tokenizer import PAD
from mtn_edge.training.objective import Clock, token_loss
from quantize.distill_loss import DistillLoss, soft_loss, turned
from quantize.teacher import agreement
from quantize.teacher_folder import TeacherFolder
from quantize.teacher_outputs import TeacherOutputs, ask_teacher, of_targets, session_vectors

SESSIONS = [
    *(["ab", "cdefg", "x"], ["x"], ["yz", "y", "aaaa"], ["q" * 12, "r"], ["b", "c"], ["mm"], ["n", "nnn", "o"]),
    [*"abcdefghijk"],
]
STUDENT = ModelConfig(vocab_size=130, d_model=8, heads=2, ffn=8, max_tokens=8, max_queries=4, dropout=0.0)
TEACHER = dataclasses.replace(STUDENT, d_model=12, ffn=16)


def encode(texts: Sequence[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


def network(config: ModelConfig, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return build(config).eval()


def batches(tokenized: TokenizedSessions, queries: int) -> Batches:
    return Batches(tokenized, max_tokens=8, max_queries=4, batch_queries=queries)


def ask(folder: Path, teacher: Network, tokenized: TokenizedSessions, *, sessions: bool = False) -> TeacherOutputs:
    opened = TeacherFolder(folder, {"a": 1})
    opened.open()
    outputs = ask_teacher(
        teacher, tokenized, opened, model=STUDENT, sessions=sessions, device="cpu", clock=Clock(0.0, 0.0)
    )
    opened.close(remove=False)
    return outputs


def test_the_divergence_by_hand() -> None:
    """T = 2: the teacher softened is (1/2, 1/4, 1/4), the student (1/4, 1/2, 1/4)."""
    teacher = 2 * torch.tensor([[2.0, 1.0, 1.0]]).log()
    student = 2 * torch.tensor([[1.0, 2.0, 1.0]]).log()
    by_hand = 4 * (0.5 * math.log(0.5 / 0.25) + 0.25 * math.log(0.25 / 0.5))
    assert soft_loss(student, teacher, 2.0).item() == pytest.approx(by_hand, rel=1e-5)
    plain = sum(p * math.log(p / q) for p, q in zip((4 / 6, 1 / 6, 1 / 6), (1 / 6, 4 / 6, 1 / 6), strict=True))
    assert soft_loss(student, teacher, 1.0).item() == pytest.approx(plain, rel=1e-5)


def test_high_temperatures_compare_the_scores() -> None:
    """T^2 KL tends to the variance of the differences of the scores / 2 (Hinton et al. 2015, section 2.1)."""
    student, teacher = torch.randn(5, 40, dtype=torch.float64), torch.randn(5, 40, dtype=torch.float64)
    limit = (student - teacher).var(1, correction=0) / 2
    torch.testing.assert_close(soft_loss(student, teacher, 1e4), limit, rtol=1e-3, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 10), st.floats(-50, 50))
def test_equal_distributions_are_no_distance_and_others_are(seed: int, temperature: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, other = (3 * torch.randn(4, 30, generator=generator, dtype=torch.float64) for _ in range(2))
    assert soft_loss(one, one + shift, temperature).abs().max() < 1e-9
    assert soft_loss(one, other, temperature).min() > 1e-6


def test_directions() -> None:
    one = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    other = torch.tensor([[5.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    assert turned(one, other).tolist() == pytest.approx([0.0, 1.0, 2.0])


@pytest.mark.parametrize("arch", ["mtn", "transformer", "seq2seq", "hred", "tail-lstm"])
def test_what_the_teacher_said_is_found_again_in_any_order(arch: str, tmp_path: Path) -> None:
    """Long sessions are cut to windows and long queries cut off; batches differ from those that asked."""
    teacher = network(dataclasses.replace(TEACHER, arch=arch, units=10))
    tokenized = TokenizedSessions(SESSIONS, encode)
    outputs = ask(tmp_path / "said", teacher, tokenized, sessions=arch == "mtn")
    positions = 0
    for step in batches(tokenized, 3).steps(5, 2):
        (batch,), (numbers,) = step.batches, step.numbers
        said = outputs.of(numbers, torch.device("cpu"))
        with session_vectors(teacher) as vectors, torch.no_grad():
            states = teacher.states(batch.source, batch.target_in, batch.user)
        torch.testing.assert_close(said.states, states, rtol=2e-3, atol=2e-3)
        positions += len(states)
        if arch == "mtn":
            assert said.sessions is not None
            torch.testing.assert_close(said.sessions, of_targets(vectors[0], batch.target_in), rtol=2e-3, atol=2e-3)
    lengths = [min(len(query), 8) + 1 for session in SESSIONS for query in session]
    assert positions == sum(lengths)
    assert outputs.nbytes == 2 * states.shape[1] * (positions + (arch == "mtn") * len(lengths))


def losses(tmp_path: Path, student: Network, teacher: Network, distill: DistillConfig, queries: int) -> Tensor:
    tokenized = TokenizedSessions(SESSIONS, encode)
    outputs = ask(tmp_path / f"said-{queries}", teacher, tokenized, sessions=bool(distill.sessions))
    torch.manual_seed(3)
    width, teacher_width = student.embedding.weight.shape[1], teacher.embedding.weight.shape[1]
    loss = DistillLoss(outputs, teacher.logits, distill, TrainConfig(), width=width, teacher_width=teacher_width)
    steps = list(batches(tokenized, queries).steps(0, 0))
    return torch.stack([loss(student, step.batches[0], torch.from_numpy(step.numbers[0])) for step in steps])


def test_a_student_that_is_its_teacher_has_nothing_to_learn(tmp_path: Path) -> None:
    teacher = network(TEACHER)
    assert losses(tmp_path, teacher, teacher, DistillConfig(truth=0, temperature=2), 5).abs().max() < 1e-3
    tokenized = TokenizedSessions(SESSIONS, encode)
    found = agreement(teacher, teacher, batches(tokenized, 5).stream(0, 0))
    assert found.kl == pytest.approx(0, abs=1e-6)
    assert found.top1 == 1
    other = agreement(network(STUDENT, 1), teacher, batches(tokenized, 5).stream(0, 0))
    assert other.kl > 0.01
    assert other.top1 < 1
    assert other.teacher_loss == found.teacher_loss


def test_the_truth_alone_is_the_loss_of_training(tmp_path: Path) -> None:
    student = network(STUDENT)
    found = losses(tmp_path, student, network(TEACHER, 1), DistillConfig(truth=1), 5)
    plain = [
        token_loss(student, batch, label_smoothing=0.1)[0]
        for batch in batches(TokenizedSessions(SESSIONS, encode), 5).stream(0, 0)
    ]
    torch.testing.assert_close(found, torch.stack(plain))


def test_the_weights_interpolate_and_the_parts_of_a_step_add_up(tmp_path: Path) -> None:
    student, teacher = network(STUDENT), network(TEACHER, 1)

    def total(queries: int = 5, **weights: float) -> float:
        return losses(tmp_path, student, teacher, DistillConfig(**weights), queries).sum().item()  # type: ignore[arg-type]

    truth, soft = total(truth=1), total(truth=0)
    assert total(truth=0.3) == pytest.approx(0.3 * truth + 0.7 * soft, rel=1e-4)
    hidden = total(truth=1, states=0.5, sessions=0.25) - truth
    tokens = sum(min(len(query), 8) + (len(query) <= 8) for session in SESSIONS for query in session)
    assert 0 < hidden < 0.75 * 2 * tokens
    assert total(truth=0.3, states=0.5, sessions=0.25, queries=2) == pytest.approx(
        0.3 * truth + 0.7 * soft + hidden, rel=1e-4
    )


def test_answers_are_predicted_from_what_was_searched() -> None:
    tokenized = TokenizedSessions(
        [["ab", "c"], ["ab", "c", ""]], encode, None, targets=[["ab", "c"], ["abc", "d" * 12]]
    )
    assert tokenized.rows(8).tolist() == [3, 2, 4, 9]
    found = {}
    for step in batches(tokenized, 1).steps(1, 0):
        (batch,), (numbers,) = step.batches, step.numbers
        assert step.tokens == int((batch.target_out != IGNORE).sum())
        for row in batch_rows(batch):
            found[tuple(numbers.tolist())] = row
    assert found[(0, 1)] == ("ab", ["ab", "c"])
    assert found[(2, 3)] == ("ab", ["abc", "d" * 8])


def batch_rows(batch: Batch) -> list[tuple[str, list[str]]]:
    """What each row reads after the start query, and what it writes."""
    read = [letters(row[1:]) for row in batch.source]
    written = [[letters(query[1:]) for query in row] for row in batch.target_in]
    return list(zip(read, written, strict=True))


def letters(tokens: Tensor) -> str:
    return "".join(map(chr, tokens[tokens != PAD].tolist()))


def test_a_folder_of_another_key_is_emptied_and_of_the_same_kept(tmp_path: Path) -> None:
    place = tmp_path / "said"
    tokenized = TokenizedSessions(SESSIONS, encode)
    first = ask(place, network(TEACHER), tokenized)
    # The other network would say something else, but is not asked.
    again = ask(place, network(TEACHER, 1), tokenized)
    numbers = np.arange(4)
    assert torch.equal(again.of(numbers, torch.device("cpu")).states, first.of(numbers, torch.device("cpu")).states)
    other = TeacherFolder(place, {"a": 2})
    other.open()
    assert other.done == 0
    assert sorted(entry.name for entry in place.iterdir()) == ["about.json", "lock"]
    other.close(remove=True)
    assert not place.exists()
