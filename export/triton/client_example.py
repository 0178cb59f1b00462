"""Asks a Triton server for suggestions, over HTTP.

pip install "tritonclient[http]"
python client_example.py -s "paris hotels" -s "paris weather" -p "paris r"
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from tritonclient import http  # type: ignore[import-not-found]

MODEL = "suggest"


def suggest(
    client: Any, session: list[str], typed: str, count: int = 8, deadline_ms: float | None = None
) -> tuple[list[tuple[str, float, str]], str]:
    """One key press.

    Args:
        client: a `tritonclient.http.InferenceServerClient`.
        session: the user's earlier queries, oldest first; all of them travel with each key press.
        typed: what was typed so far.
        count: suggestions wanted.
        deadline_ms: milliseconds after which popular queries answer instead of the model.

    Returns:
        Text, log-probability and source of each suggestion, and why there are no more of them.
    """
    given = {"TYPED": ([[typed.encode()]], np.object_, "BYTES"), "COUNT": ([[count]], np.int32, "INT32")}
    if session:
        given["SESSION"] = ([[query.encode() for query in session]], np.object_, "BYTES")
    if deadline_ms is not None:
        given["DEADLINE_MS"] = ([[deadline_ms]], np.float32, "FP32")
    inputs = []
    for name, (values, dtype, element) in given.items():
        array: Any = np.array(values, dtype=dtype)
        inputs.append(http.InferInput(name, list(array.shape), element))
        inputs[-1].set_data_from_numpy(array)
    answer = client.infer(MODEL, inputs)
    texts, sources = ([raw.decode() for raw in answer.as_numpy(name)[0]] for name in ("TEXTS", "SOURCES"))
    scores = answer.as_numpy("SCORES")[0].tolist()
    return list(zip(texts, scores, sources, strict=True)), answer.as_numpy("REASON")[0, 0].decode()


def main() -> None:
    """Asks once and prints a list."""
    parser = argparse.ArgumentParser(description="Ask a Triton server for suggestions.")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("-s", "--session", action="append", default=[], help="an earlier query, oldest first")
    parser.add_argument("-p", "--prefix", default="", help="what is typed so far")
    parser.add_argument("-k", "--count", type=int, default=8)
    asked = parser.parse_args()
    found, reason = suggest(http.InferenceServerClient(asked.url), asked.session, asked.prefix, asked.count)
    for text, score, source in found:
        print(f"{score:8.3f}  {text}  ({source})")  # noqa: T201
    if reason:
        print(f"({reason})")  # noqa: T201


if __name__ == "__main__":
    main()
