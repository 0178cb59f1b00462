"""The usual way to train next-query models: every pair flat, a BART of the same dimensions, the `Trainer` around it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, Trainer, TrainingArguments

from mtn_edge.config import ModelConfig
from mtn_edge.tokenizer import BOS, EOS, PAD

CONTEXT = 256
"""Last tokens of the concatenated earlier queries that are read."""
IGNORE = -100

Pair = dict[str, list[int]]


def flat_pairs(sessions: Sequence[Sequence[list[int]]], *, max_queries: int, max_tokens: int) -> list[Pair]:
    """Each query with all earlier ones before it, `<eos>` after each.

    Args:
        sessions: the tokens of each query of each session.
        max_queries: earlier queries, at most.
        max_tokens: tokens of one query, at most.
    """
    pairs = []
    for session in sessions:
        for number, query in enumerate(session):
            earlier = [[*tokens[-max_tokens:], EOS] for tokens in session[max(0, number - max_queries) : number]]
            source = [BOS, *(token for tokens in earlier for token in tokens)]
            pairs.append({"input_ids": source[-CONTEXT:], "labels": [*query[:max_tokens], EOS][: max_tokens + 1]})
    return pairs


def train_flat(pairs: Sequence[Pair], model: ModelConfig, *, batch: int, learning_rate: float, seed: int) -> float:
    """Seconds for one pass over the pairs, without what comes before the first step.

    Args:
        pairs: what to learn.
        model: the dimensions; the encoder has the layers of both of ours.
        batch: pairs of a step, of like lengths.
        learning_rate: its peak.
        seed: of weights and order.
    """
    torch.manual_seed(seed)
    network = BartForConditionalGeneration(
        BartConfig(
            vocab_size=model.vocab_size,
            max_position_embeddings=CONTEXT,
            d_model=model.d_model,
            encoder_layers=model.query_layers + model.session_layers,
            decoder_layers=model.decoder_layers,
            encoder_attention_heads=model.heads,
            decoder_attention_heads=model.heads,
            encoder_ffn_dim=model.ffn,
            decoder_ffn_dim=model.ffn,
            dropout=model.dropout,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=EOS,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch,
            num_train_epochs=1,
            learning_rate=learning_rate,
            weight_decay=0.1,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            seed=seed,
        )
        trainer = Trainer(model=network, args=arguments, train_dataset=list(pairs), data_collator=_collate)  # type: ignore[arg-type]
        began = time.perf_counter()
        trainer.train()
        return time.perf_counter() - began


def _collate(pairs: Sequence[Pair]) -> dict[str, Tensor]:
    source = _pad([pair["input_ids"] for pair in pairs], PAD)
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "labels": _pad([pair["labels"] for pair in pairs], IGNORE),
    }


def _pad(rows: Sequence[list[int]], value: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])
