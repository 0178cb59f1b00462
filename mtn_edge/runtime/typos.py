"""Popular completions for a typed text with one typo in it.

A typo is one letter too many, one too few, a wrong one, or two neighbours swapped (Damerau-Levenshtein distance 1; a
letter is a character, and a blank counts as one). As in search boxes: at least three letters must be typed, the first
letter is taken to be right, and digits are never at fault (`iphone 14` is no `iphone 15`). A slip before the last
letter explains a text better than one in the last letter, after which anything may follow: the latter's completions
come last.
"""

from __future__ import annotations

from collections.abc import Iterator

from mtn_edge.runtime.completions import Completions

LEAST_LETTERS = 3
"""Letters (blanks aside) below which a text may be the beginning of anything."""


def corrected(prefix: str, completions: Completions, k: int) -> list[tuple[str, int]]:
    """The most frequent queries that begin with a text at distance 1 from what is typed, and not with the text itself.

    Args:
        prefix: the typed text in normal form.
        completions: popular queries.
        k: queries wanted at most.

    Returns:
        Queries with their counts: those with a slip before the last letter of `prefix` first, then the others; best
        first among each.
    """
    if len(prefix.replace(" ", "")) < LEAST_LETTERS:
        return []
    found = completions.best(_slips_before_the_end(prefix, completions), k)
    if len(found) < k:
        more = completions.best(_slips_at_the_end(prefix, completions), k)
        found += [entry for entry in more if entry not in found]
    return found[:k]


Run = tuple[int, int]


def _slips_before_the_end(prefix: str, completions: Completions) -> list[Run]:
    """The runs of the texts at distance 1 that neither begin with `prefix` nor with all of it but its last letter."""
    runs = []
    run = completions.run("")
    for at in range(1, len(prefix)):
        run = completions.run(prefix[:at], run)
        if run[0] == run[1]:
            break  # a slip further to the right would leave this beginning as it is
        for text, within in _variants(prefix, at, run, completions):
            if text != prefix[:-1] and not text.startswith(prefix) and completions.begins(text):
                runs.append(completions.run(text, within))
    return runs


def _variants(prefix: str, at: int, run: Run, completions: Completions) -> Iterator[tuple[str, Run]]:
    """The texts whose first difference from `prefix` is at `at`, each with a run that holds its queries."""
    start, letter, rest = prefix[:at], prefix[at], prefix[at + 1 :]
    if rest and not letter.isdigit():
        yield start + rest, run
        if not rest[0].isdigit():
            yield start + rest[0] + letter + rest[1:], run
    for other, within in completions.letters(run, at):
        if other.isdigit():
            continue
        yield start + other + letter + rest, within
        if rest and not letter.isdigit():
            yield start + other + rest, within


def _slips_at_the_end(prefix: str, completions: Completions) -> list[Run]:
    """The runs of all texts that share all but the last letter of `prefix`."""
    if prefix[-1].isdigit():
        return []
    first, last = completions.run(prefix[:-1])
    known = completions.run(prefix, (first, last))
    return [(first, known[0]), (known[1], last)]
