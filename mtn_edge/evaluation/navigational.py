"""Which queries are navigational: somebody types them to reach one site (Broder, "A taxonomy of web search", 2002)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SITE = re.compile(r"([\w-]+)\.(?:com|net|org|edu|gov|mil|info|biz|tv|io|co|us|uk|ca|de|fr|au)\b")
_ADDRESS = re.compile(rf"\bhttps?:|\bwww\b|{_SITE.pattern}")


class Navigational:
    """Tells navigational queries by their form.

    A query is one when it holds an address (`http:`, `www`, or a name before a dot and a usual ending such as `.com`),
    or when it is one word alone that stands before such an ending in some training query (`ebay`, since `ebay.com` is).

    Args:
        popular: the queries of the training split.
    """

    def __init__(self, popular: Iterable[str]) -> None:
        self._names = {name for query in popular if "." in query for name in _SITE.findall(query)}

    def __call__(self, query: str) -> bool:
        """Whether `query` (in normal form) is navigational."""
        return query in self._names or _ADDRESS.search(query) is not None
