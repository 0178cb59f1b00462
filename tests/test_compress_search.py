"""The search: the smallest point within the budgets, found with few whole runs."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from export.compress.recipe import Budgets, Point, Quantize
from export.compress.search import PATIENCE, Measured, chosen, overdrawn, search
from export.compress.sizes import Expected

BUDGETS = Budgets(size_mb=4, p95_ms=10, max_quality_drop=0.1)


def point(number: int) -> Point:
    return Point(None, None, Quantize(), {"number": number})


def figures(size: float, p95: float = 5.0, drop: float = 0.0) -> dict[str, Any]:
    return {"bytes": int(size * 1e6), "keystroke_ms": {"p95": p95}, "drop": drop, "mrr@10": 0.5 * (1 - drop)}


class World:
    """Points whose figures are known, and what was asked about them."""

    def __init__(self, found: list[dict[str, Any]], losses: list[float] | None = None) -> None:
        self.found, self.losses = found, losses or [0.0] * len(found)
        self.proxies: list[int] = []
        self.made: list[int] = []

    def search(self, *, deadline: float = math.inf) -> list[Measured]:
        sizes = [Expected(1, each["bytes"]) for each in self.found]
        points = [point(number) for number in range(len(self.found))]
        return search(points, sizes, budgets=BUDGETS, deadline=deadline, proxy=self._proxy, make=self._make)

    def _proxy(self, asked: Point) -> float:
        self.proxies.append(asked.choice["number"])
        return self.losses[self.proxies[-1]]

    def _make(self, asked: Point) -> Measured:
        self.made.append(asked.choice["number"])
        found = self.found[self.made[-1]]
        return Measured(asked, found, overdrawn(BUDGETS, found))


def test_budgets_are_broken_by_a_share_of_each() -> None:
    assert overdrawn(BUDGETS, figures(3)) == {}
    assert overdrawn(BUDGETS, figures(4, 10, 0.1)) == {}
    broken = overdrawn(BUDGETS, figures(5, 12, 0.2))
    assert broken.keys() == {"size_mb", "p95_ms", "max_quality_drop"}
    assert math.isclose(broken["p95_ms"], 0.2)
    assert overdrawn(Budgets(), figures(500, 1e9, 0.99)) == {}


def test_points_that_are_too_large_are_never_begun() -> None:
    world = World([figures(5), figures(3), figures(2)])
    world.search()
    assert set(world.proxies) == {1, 2}
    assert 0 not in world.made


def test_a_single_point_needs_no_proxy() -> None:
    world = World([figures(3)])
    assert [each.point.choice["number"] for each in world.search()] == [0]
    assert not world.proxies


def test_nothing_that_cannot_be_smaller_than_the_best_is_made() -> None:
    world = World([figures(3), figures(2), figures(3.5), figures(1)], losses=[1, 2, 3, 4])
    found = world.search()
    assert world.made == [0, 1, 3]
    best = chosen(found)
    assert best is not None
    assert best.point.choice["number"] == 3


def test_the_search_ends_after_points_that_lost_too_much_in_a_row() -> None:
    world = World([figures(3), *(figures(1, drop=0.5) for _ in range(5))], losses=[1, 2, 3, 4, 5, 6])
    world.search()
    assert len(world.made) == 1 + PATIENCE


def test_a_slow_point_does_not_end_the_search() -> None:
    world = World([*(figures(3, p95=20) for _ in range(4)), figures(1)], losses=[1, 2, 3, 4, 5])
    best = chosen(world.search())
    assert best is not None
    assert not best.over


def test_after_the_time_limit_the_best_so_far_is_kept() -> None:
    world = World([figures(3), figures(2)], losses=[1, 2])
    found = world.search(deadline=-math.inf)
    assert len(world.proxies) == 1
    assert [each.point.choice["number"] for each in found] == [0]


@given(
    st.lists(
        st.tuples(st.floats(0.5, 3.9), st.floats(1, 20), st.floats(-0.1, 0.09)),
        min_size=1,
        max_size=8,
        unique_by=lambda each: each[0],
    )
)
def test_the_smallest_within_the_budgets_is_found(found: list[tuple[float, float, float]]) -> None:
    world = World([figures(*each) for each in found], losses=[each[2] for each in found])
    best = chosen(world.search())
    assert best is not None
    keeping = [figures(*each) for each in found if not overdrawn(BUDGETS, figures(*each))]
    if keeping:
        assert best.figures["bytes"] == min(each["bytes"] for each in keeping)
    else:
        assert best.over


def test_when_none_keeps_them_the_nearest_is_chosen() -> None:
    world = World([figures(1, p95=30), figures(3, p95=11), figures(2, p95=15)])
    best = chosen(world.search())
    assert best is not None
    assert best.point.choice["number"] == 1
