"""Short names for folders that stand beside each other in one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def distinct_names(paths: Sequence[Path], taken: Sequence[str] = ()) -> list[str]:
    """A short name for each path: its last folders, as many as it takes to tell it from the others.

    Args:
        paths: folders; the same one twice gets a number.
        taken: names that are spoken for.
    """
    whole = [[part for part in path.resolve().parts if part != path.resolve().anchor] for path in paths]
    names: list[str] = []
    for parts in whole:
        others = [other for other in whole if other != parts]
        length = next(
            (
                n
                for n in range(1, len(parts))
                if "/".join(parts[-n:]) not in taken and all(other[-n:] != parts[-n:] for other in others)
            ),
            len(parts),
        )
        name = "/".join(parts[-length:])
        copies = sum(known == name or known.startswith(name + " #") for known in names)
        names.append(f"{name} #{copies + 1}" if copies else name)
    return names
