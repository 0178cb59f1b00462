"""The tokenizer: byte-level BPE, so that every text is encodable and every encoding gives back the same text.

Token numbers 0, 1 and 2 are `<pad>`, `<bos>` and `<eos>`; 3 to 258 are the single bytes; then the merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer as _Tokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from mtn_edge.errors import UserError

PAD, BOS, EOS = 0, 1, 2
SPECIALS = ("<pad>", "<bos>", "<eos>")
MIN_VOCAB = len(SPECIALS) + 256


class Tokenizer:
    """Texts to token numbers and back, without loss.

    Attributes:
        token_bytes: the UTF-8 bytes of each token, indexed by its number; empty for the specials. A token may hold
            a part of a character only.
    """

    def __init__(self, backend: _Tokenizer) -> None:
        self._backend = backend
        numbers = backend.get_vocab()
        names = sorted(numbers, key=numbers.__getitem__)
        if tuple(names[: len(SPECIALS)]) != SPECIALS:
            raise UserError(
                "`tokenizer.json` does not start with <pad>, <bos>, <eos>",
                code="bad-tokenizer",
                hint="take the tokenizer that `data prepare` wrote",
            )
        # Letter by letter in C: this is a good part of the time that opening a bundle takes.
        letters = {ord(letter): chr(byte) for byte, letter in enumerate(_byte_letters())}
        spelt = [name.translate(letters).encode("latin-1") for name in names[len(SPECIALS) :]]
        self.token_bytes = [b""] * len(SPECIALS) + spelt

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learns merges from `texts` (repeat a text to give it weight).

        Args:
            texts: normal-form queries.
            vocab_size: tokens wanted, at least 259; fewer come out when the texts offer no more merges.
        """
        if vocab_size < MIN_VOCAB:
            raise UserError(
                f"`--vocab-size` is {vocab_size}, and it must be at least {MIN_VOCAB} (256 bytes and 3 specials)",
                code="bad-setting",
                hint="raise it",
            )
        backend = _Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
            max_token_length=24,
        )
        backend.train_from_iterator(texts, trainer)
        # A typed "<bos>" is text like any other: the specials are numbers only, never recognised in a text.
        return cls(_without_special_matching(backend))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads a `tokenizer.json`.

        Raises:
            UserError: the file is missing or not a tokenizer of this tool.
        """
        try:
            return cls(_Tokenizer.from_file(str(path)))
        except UserError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise UserError(
                f"`{path}` is not a readable tokenizer ({error})", code="bad-tokenizer", hint="make it again"
            ) from error

    def save(self, path: Path) -> None:
        """Writes `tokenizer.json`."""
        self._backend.save(str(path), pretty=False)

    def __len__(self) -> int:
        return len(self.token_bytes)

    def encode(self, text: str) -> list[int]:
        """Token numbers of `text`, without specials."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts at once, in parallel."""
        return [list(x.ids) for x in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def word_lengths(self, text: str) -> list[int]:
        """Bytes of each of the words of `text`; no token reaches from one into the next."""
        return [len(word) for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]

    def merges(self) -> list[tuple[int, int]]:
        """The pairs of tokens that become one, in the order in which they were learnt."""
        import json

        numbers = self._backend.get_vocab()
        merges = json.loads(self._backend.to_str())["model"]["merges"]
        return [(numbers[left], numbers[right]) for left, right in merges]

    def restricted(self, kept: Sequence[int]) -> Tokenizer:
        """The tokenizer with the tokens `kept` alone, numbered anew in their order.

        Args:
            kept: ascending; the specials, all bytes, and whatever the other tokens are made from.
        """
        import json

        numbers = self._backend.get_vocab()
        chosen = set(kept)
        names = [name for name in sorted(numbers, key=numbers.__getitem__) if numbers[name] in chosen]
        document = json.loads(self._backend.to_str())
        model = document["model"]
        model["vocab"] = {name: number for number, name in enumerate(names)}
        model["merges"] = [
            pair for pair in model["merges"] if all(name in model["vocab"] for name in (*pair, "".join(pair)))
        ]
        return Tokenizer(_Tokenizer.from_str(json.dumps(document, ensure_ascii=False)))

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """The bytes that `tokens` spell; specials spell nothing."""
        return b"".join(self.token_bytes[token] for token in tokens)


def _byte_letters() -> list[str]:
    """The printable letter by which a byte-level BPE file writes each byte (the table of GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def _without_special_matching(backend: _Tokenizer) -> _Tokenizer:
    import json

    document = json.loads(backend.to_str())
    document["added_tokens"] = []
    return _Tokenizer.from_str(json.dumps(document, ensure_ascii=False))
