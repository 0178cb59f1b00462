import dataclasses
import math

import numpy as np
import pytest

from mtn_edge.evaluation.comparison import compare, two_sided
from mtn_edge.evaluation.protocol import Answers, Questions, draw_questions


def questions_of(sessions: int, task: str = "suggest") -> Questions:
    logs = [[f"q{number} a", f"q{number} b"] for number in range(sessions)]
    return draw_questions(logs, task, popular=(), max_queries=10_000, seed=1)  # type: ignore[arg-type]


def answers_of(questions: Questions, ranks: np.ndarray) -> Answers:
    keys = np.stack([np.where(ranks[: len(questions.length)] == 1, 2.0, 5.0), np.full(len(questions.length), 5.0)], 1)
    complete = questions.task == "complete"
    return Answers(
        rank=ranks,
        partial_rank=ranks,
        best=[""] * len(ranks),
        probability=None,
        log_probability=None,
        keys=keys if complete else None,
        recovered=np.zeros(len(questions.length), dtype=np.int64) if complete else None,
    )


def test_difference_by_hand() -> None:
    questions = questions_of(4)
    own = answers_of(questions, np.array([1, 1, 2, 0]))
    other = answers_of(questions, np.array([1, 2, 0, 0]))
    (measure, found), *rest = compare(questions, [own], [other], seed=1).items()
    assert (measure, rest) == ("mrr@10", [])
    assert found["difference"] == pytest.approx((2.5 - 1.5) / 4)
    low, high = found["ci95"]
    assert 0 <= low < 0.25 < high <= 0.5
    back = compare(questions, [other], [own], seed=1)["mrr@10"]
    assert back["difference"] == -found["difference"]
    assert back["ci95"] == pytest.approx([-high, -low])
    assert back["p"] == found["p"]


def test_keystrokes_are_compared_where_there_are_any() -> None:
    questions = questions_of(40, "complete")
    ranks = np.ones(len(questions.target), dtype=np.int64)
    own, other = answers_of(questions, ranks), answers_of(questions, 0 * ranks)
    found = compare(questions, [own], [other], seed=1)
    assert set(found) == {"mrr@10", "keystrokes_saved"}
    assert found["mrr@10"]["difference"] == 1
    assert found["keystrokes_saved"]["difference"] == pytest.approx(3 / 5)
    assert found["keystrokes_saved"]["p"] == pytest.approx(2 / 1001)  # no resample on the other side
    same = compare(questions, [own], [own], seed=1)["mrr@10"]
    assert (same["difference"], same["p"]) == (0, 1)


def test_pairing_sees_what_separate_intervals_do_not() -> None:
    questions = questions_of(200)
    random = np.random.default_rng(2)
    other = random.choice([0, 1], size=200)
    own = np.where((other == 0) & (random.random(200) < 0.06), 2, other)  # a little better, nowhere worse
    found = compare(questions, [answers_of(questions, own)], [answers_of(questions, other)], seed=1)["mrr@10"]
    assert found["p"] < 0.01
    assert found["ci95"][0] > 0
    assert found["ci95"][1] - found["ci95"][0] < 0.04


def test_p_values_of_equal_systems_are_spread_out() -> None:
    questions = questions_of(60)
    random = np.random.default_rng(5)
    values = []
    for seed in range(150):
        one, two = (answers_of(questions, random.choice([0, 1, 2], size=60)) for _ in range(2))
        values.append(compare(questions, [one], [two], seed=seed)["mrr@10"]["p"])
    assert 0.01 <= np.mean(np.array(values) < 0.05) <= 0.12
    assert 0.35 <= np.mean(np.array(values) < 0.5) <= 0.65


def test_two_sided_p_by_hand() -> None:
    assert two_sided(np.array([1.0, 2.0, -1.0, 3.0])) == pytest.approx(2 * 2 / 5)
    assert two_sided(np.array([1.0, 2.0, 3.0, math.nan])) == pytest.approx(2 * 1 / 4)
    assert two_sided(np.array([0.0, 0.0])) == 1
    assert math.isnan(two_sided(np.array([math.nan])))


def test_answers_are_not_changed() -> None:
    questions = questions_of(5)
    own = answers_of(questions, np.array([1, 0, 2, 1, 0]))
    before = dataclasses.asdict(own)
    compare(questions, [own], [own], seed=1)
    assert all(np.array_equal(before[name], value) for name, value in dataclasses.asdict(own).items())
