"""What the documents say is what the code does."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_settings_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "docs" / "settings.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert page.render() == (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"), "run `python docs/settings.py`"
