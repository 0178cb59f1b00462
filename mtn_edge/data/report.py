"""What `data prepare` says of a log: rows in, kept, and dropped by cause. Line numbers, never texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtn_edge.data.formats import FIRST_LINES, FileCounts
from mtn_edge.data.privacy import CAUSES
from mtn_edge.errors import UserError


def build_report(
    logs: Sequence[Path],
    files: Sequence[FileCounts],
    numbers: dict[str, int],
    splits: dict[str, dict[str, int]],
    form: str,
) -> dict[str, Any]:
    """The report as a document.

    `rows` adds up: `in` = `empty` + `personal` + `below_min_users` + `folded` + `kept`.

    Args:
        logs: the files.
        files: what the reader counted, file by file.
        numbers: what the pipeline counted.
        splits: sessions and queries of each split.
        form: the format.
    """
    causes = {cause: numbers[cause] for cause in CAUSES}
    return {
        "format": form,
        "files": [
            {
                "name": log.name,
                "lines": counts.lines,
                "header": counts.header,
                "blank": counts.blank,
                "rows": counts.rows,
                "rejected": sum(cause.count for cause in counts.rejected.values()),
            }
            for log, counts in zip(logs, files, strict=True)
        ],
        "rejected": {name: _places(logs, [counts.rejected[name] for counts in files]) for name in files[0].rejected},
        "decoded_by_fallback": _places(logs, [counts.fallback for counts in files]),
        "rows": {
            "in": numbers["rows"],
            "empty": numbers["empty"],
            "personal": sum(causes.values()),
            "below_min_users": numbers["below_min_users"],
            "folded": numbers["rows_kept"] - numbers["events"],
            "kept": numbers["events"],
        },
        "personal": causes,
        "unique_queries": {"in": numbers["unique_found"], "kept": numbers["unique_kept"]},
        "users": numbers["users_found"],
        "sessions": {
            "in": numbers["sessions_found"],
            "kept": sum(split["sessions"] for split in splits.values()),
        },
        "splits": splits,
    }


def _places(logs: Sequence[Path], causes: Sequence[Any]) -> dict[str, Any]:
    first = [{"file": log.name, "line": line} for log, cause in zip(logs, causes, strict=True) for line in cause.first]
    return {"count": sum(cause.count for cause in causes), "first": first[:FIRST_LINES]}


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Writes `report.json`."""
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "report.json").write_text(text, encoding="utf-8")


def nothing_left(numbers: dict[str, int], min_users: int) -> UserError:
    """The error when every row was dropped, with the cause of each."""
    causes = {
        "empty": numbers["empty"],
        "personal": sum(numbers[cause] for cause in CAUSES),
        f"issued by fewer than {min_users} users": numbers["below_min_users"],
    }
    listed = ", ".join(f"{count:,} {cause}" for cause, count in causes.items() if count)
    return UserError(
        f"nothing is left of {numbers['rows']:,} rows: {listed}",
        code="nothing-left",
        hint="lower --min-users (1 for public or synthetic logs) or give more data"
        if numbers["below_min_users"]
        else "give another log",
    )


def report_words(report: dict[str, Any], output: Path) -> str:
    """The report in words, with the totals at its end."""
    rows, splits = report["rows"], report["splits"]
    lines = []
    for file in report["files"]:
        skipped = [f"{file[name]:,} {name}" for name in ("header", "blank", "rejected") if file[name]]
        more = f" ({', '.join(skipped)})" if skipped else ""
        lines.append(f"{file['name']}: {file['lines']:,} lines, {file['rows']:,} queries{more}")
    for name, cause in report["rejected"].items():
        if cause["count"]:
            lines.append(f"rejected for their {name}: {cause['count']:,}, first {_first_words(cause['first'])}")
    if report["decoded_by_fallback"]["count"]:
        fallback = report["decoded_by_fallback"]
        lines.append(f"not UTF-8, read as Windows-1252: {fallback['count']:,}, first {_first_words(fallback['first'])}")
    personal = ", ".join(f"{name} {count:,}" for name, count in report["personal"].items() if count)
    for name, label in {
        "in": "queries in",
        "empty": "empty or -",
        "personal": "personal",
        "below_min_users": "of too few users",
        "folded": "folded (clicks, next pages)",
        "kept": "kept",
    }.items():
        note = f"  ({personal})" if name == "personal" and personal else ""
        lines.append(f"  {label:<28}{rows[name]:>14,}{note}")
    for name, split in splits.items():
        lines.append(f"  {name:<28}{split['sessions']:>14,} sessions, {split['queries']:,} queries")
    rejected = sum(cause["count"] for cause in report["rejected"].values())
    total = sum(file["lines"] for file in report["files"])
    lines.append(
        f"{output}: {rows['kept']:,} queries in {report['sessions']['kept']:,} sessions kept of {rows['in']:,} queries;"
        f" {total:,} lines read, {rejected:,} rejected"
    )
    return "\n".join(lines)


def _first_words(places: list[dict[str, Any]]) -> str:
    return ", ".join(f"{place['file']}:{place['line']}" for place in places[:3])
