"""The table of docs/deploy.md is what `benchmarks/borders.py` measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_shows_the_figures_of_the_measurement() -> None:
    document = json.loads((ROOT / "benchmarks" / "results" / "borders.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    numbers = [row for row in document["rows"] if isinstance(row["value"], int | float)]
    assert len(numbers) > 20
    for row in numbers:
        value = f"{row['value']:,}" if isinstance(row["value"], int) else f"{row['value']}"
        assert f"| {row['name']} | {value} | {row['bound']} |" in page
    assert all(row["ok"] for row in document["rows"])
    borders = {row["border"] for row in numbers}
    assert all(f"| {border} |" in page for border in borders)
