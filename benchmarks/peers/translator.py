"""CTranslate2 in int8: an encoder-decoder Transformer of the same dimensions over the concatenated session.

Its encoder is as deep as ours is together (query and session layers), its decoder, vocabulary and beam are the same,
and our checkpoint's weights are put into it, so that its outputs have the length of real queries. As it cannot keep an
encoding between calls, each key press encodes the session again. The finished words of the typed text are its
`target_prefix`; what does not begin with the word being typed is dropped afterwards, as its user would have to.

It gets the queries that our own context holds, without anything between them: of a very long session the newest only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

from mtn_edge.runtime.context import context_start
from mtn_edge.text import normalize_prefix
from mtn_edge.training.checkpoint import Checkpoint
from peers import BEAM, NEW_TOKENS, distinct_continuations, finished_words

POSITIONS = 1100
"""Rows of the position tables: longer than any session here, ours repeated (which position is which costs nothing)."""
SPECIALS = ("<pad>", "<s>", "</s>")


class Translator:
    """A `ctranslate2.Translator` with one thread.

    Args:
        checkpoint: the trained model whose weights and dimensions are taken.
        folder: an empty folder for the converted model.
    """

    name = "CTranslate2"
    steps: int | None

    def __init__(self, checkpoint: Checkpoint, folder: Path) -> None:
        self._config, self._tokenizer = checkpoint.config.model, checkpoint.tokenizer
        self._names = [*SPECIALS, *map(str, range(len(SPECIALS), self._config.vocab_size))]
        convert(checkpoint, self._names).save(str(folder))
        self._translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type="int8", inter_threads=1, intra_threads=1
        )
        self._source: list[str] = []
        self.steps = None

    def start(self, queries: list[str]) -> None:
        """Tokenizes the session: all that can be kept."""
        kept = queries[context_start(len(queries), self._config.max_queries) :]
        self._source = [name for query in kept for name in self._encode(query)]

    def suggest(self, typed: str) -> list[str]:
        """Beam search after the finished words, then the texts that begin with `typed`."""
        prefix = normalize_prefix(typed)
        words = self._encode(finished_words(prefix))
        (result,) = self._translator.translate_batch(
            [self._source],
            target_prefix=[words] if words else None,
            beam_size=BEAM,
            num_hypotheses=BEAM,
            max_decoding_length=len(words) + NEW_TOKENS,
            length_penalty=0,
            return_scores=True,
        )
        texts = [self._tokenizer.decode_bytes(map(int, names)) for names in result.hypotheses]
        # The end of a text counts as a step, and is not among its tokens.
        longest = max(map(len, result.hypotheses)) - len(words)
        self.steps = min(longest + 1, NEW_TOKENS)
        return distinct_continuations([text.decode(errors="replace") for text in texts], prefix)

    def _encode(self, text: str) -> list[str]:
        return [self._names[number] for number in self._tokenizer.encode(text)]


def convert(checkpoint: Checkpoint, names: list[str]) -> TransformerSpec:
    """A CTranslate2 model from our weights, quantized to int8; `names` are those of its tokens."""
    config = checkpoint.config.model
    # Copies: the conversion quantizes in place.
    weights = {name: tensor.numpy().copy() for name, tensor in checkpoint.model.state_dict().items()}
    spec = TransformerSpec.from_config(
        (config.query_layers + config.session_layers, config.decoder_layers), config.heads, pre_norm=True
    )
    fill = _Filler(weights)
    fill.side(spec.encoder, "query")
    spec.encoder.embeddings[0].weight = weights["embedding.weight"]
    encoder = [f"query_layers.{number}" for number in range(config.query_layers)]
    encoder += [f"session_layers.{number}" for number in range(config.session_layers)]
    for layer, name in zip(spec.encoder.layer, encoder, strict=True):
        fill.layer(layer, name)
    fill.side(spec.decoder, "decoder")
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = weights["embedding.weight"]
    for number, layer in enumerate(spec.decoder.layer):
        fill.layer(layer, f"decoder_layers.{number}")
        fill.cross_attention(layer.attention, f"decoder_layers.{number}")
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = SPECIALS[1], SPECIALS[2], SPECIALS[0]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.decoder_start_token = SPECIALS[1]
    spec.validate()
    spec.optimize(quantization="int8")
    return spec


class _Filler:
    """Puts our tensors where CTranslate2 wants them."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self._weights = weights

    def side(self, side: Any, name: str) -> None:
        positions = self._weights[f"{name}_positions.weight"]
        side.position_encodings.encodings = np.resize(positions, (POSITIONS, positions.shape[1]))
        self._norm(side.layer_norm, f"{name}_norm")

    def layer(self, layer: Any, name: str) -> None:
        self._norm(layer.self_attention.layer_norm, f"{name}.attention_norm")
        self._linear(layer.self_attention.linear[0], f"{name}.attention.qkv")
        self._linear(layer.self_attention.linear[1], f"{name}.attention.out")
        self._norm(layer.ffn.layer_norm, f"{name}.feed_forward_norm")
        self._linear(layer.ffn.linear_0, f"{name}.feed_forward.up")
        self._linear(layer.ffn.linear_1, f"{name}.feed_forward.down")

    def cross_attention(self, attention: Any, name: str) -> None:
        self._norm(attention.layer_norm, f"{name}.cross_attention_norm")
        for place, part in enumerate(("query", "kv", "out")):
            self._linear(attention.linear[place], f"{name}.cross_attention.{part}")

    def _linear(self, linear: Any, name: str) -> None:
        linear.weight, linear.bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]

    def _norm(self, norm: Any, name: str) -> None:
        norm.gamma, norm.beta = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
