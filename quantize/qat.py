"""Quantization-aware training: a short fine-tuning in which every product is computed as the int8 graphs will.

It begins with the best float32 weights. Weights are rounded with one scale for each output, activations with the range
of each few rows (`quantize.fake`); the weights that are learnt stay float32, and are quantized like any others when
the training is over (Jacob et al. 2018, section 3). Training that does not lower the validation loss is thrown away.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtn_edge.config import Config
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.build import Network, narrowed
from mtn_edge.models.tail_lstm import TailLSTM
from mtn_edge.training.checkpoint import Checkpoint, load_checkpoint
from mtn_edge.training.inputs import read_inputs
from mtn_edge.training.module import mean_loss
from mtn_edge.training.run import train_model
from quantize.fake import fake_activation, fake_weight

EPOCHS = 1
"""Passes over the training sessions."""
RATE = 0.03
"""Peak of the learning rate beside that of the training before."""
WARMUP = 20
"""Steps of the warm-up."""
VALIDATIONS = 8
"""How often the validation loss is looked at."""
RECURRENT = ("seq2seq", "hred", "tail-lstm")
"""Networks whose products lie inside PyTorch's recurrent layers, where nothing can be rounded or observed."""


def require_linear(config: Config, method: str) -> None:
    """Refuses networks whose products cannot be reached.

    Raises:
        UserError: the network is recurrent.
    """
    if config.model.arch in RECURRENT:
        raise UserError(
            f"`--method {method}` reaches products of linear layers only, and this checkpoint is a {config.model.arch}",
            code="bad-method",
            hint="take --method dynamic, or a checkpoint of the arch mtn or transformer",
        )


def fine_tune(checkpoint: Checkpoint, data: Dataset, scratch: Path, *, seed: int) -> tuple[Network, dict[str, Any]]:
    """Trains the network of `checkpoint` on with every product in int8.

    Args:
        checkpoint: where it begins.
        data: a dataset with the checkpoint's tokenizer.
        scratch: a folder for the run.
        seed: of the order of batches, and of dropout.

    Returns:
        The network, in evaluation mode, and figures for the manifest. The network is as it was when training brought
        nothing.

    Raises:
        UserError: the network is recurrent, a split is empty, or training diverged.
    """
    require_linear(checkpoint.config, "qat")
    config = _schedule(checkpoint.config, data, seed)
    weights = {name: tensor.clone() for name, tensor in checkpoint.model.state_dict().items()}

    def begin(model: Network) -> None:
        model.load_state_dict(weights)
        round_products(model)

    before = _loss(checkpoint.model, data, config)
    training = train_model(data.path, scratch / "qat", config=config, device="cpu", start=begin)
    after = float(training["valid_loss"])
    facts = {
        "steps": training["steps"],
        "best_step": training["best_step"],
        "seconds": training["seconds"],
        "valid_loss_before": before,
        "valid_loss": after,
        "kept": after < before,
    }
    return (load_checkpoint(scratch / "qat").model if facts["kept"] else checkpoint.model), facts


def round_products(model: Network) -> None:
    """Makes every product of `model` round its weights and its inputs; names and shapes of its tensors stay."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _put(module, "forward", _linear)
    _put(model.embedding, "forward", _embedding)
    if not isinstance(model, TailLSTM):
        _put(model, "logits", _tied_logits)


def _put(module: nn.Module, name: str, function: Any) -> None:
    # A bound method: a deep copy of the module binds it to the copy.
    object.__setattr__(module, name, MethodType(function, module))


def _linear(self: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(fake_activation(x), fake_weight(self.weight), self.bias)


def _embedding(self: nn.Embedding, tokens: Tensor) -> Tensor:
    return F.embedding(tokens, fake_weight(self.weight))


def _tied_logits(self: Any, states: Tensor) -> Tensor:
    return F.linear(fake_activation(narrowed(self, states)), fake_weight(self.embedding.weight))


def _schedule(config: Config, data: Dataset, seed: int) -> Config:
    """Short and gentle, and without the gate of a fusion, which stays as it is."""
    train = replace(
        config.train,
        epochs=EPOCHS,
        learning_rate=RATE * config.train.learning_rate,
        warmup_steps=WARMUP,
        time_budget=0.0,
        stop_on="loss",
        average=0.0,
        precision="fp32",
        compile=False,
        seed=seed,
    )
    config = replace(config, model=replace(config.model, fusion="none"), train=train)
    steps = read_inputs(data, config, world=1).total_steps
    return replace(config, train=replace(train, validate_every=max(1, steps // VALIDATIONS)))


@torch.no_grad()
def _loss(model: Network, data: Dataset, config: Config) -> float:
    """Validation loss of `model` with its products rounded."""
    rounded = copy.deepcopy(model)
    round_products(rounded)
    return mean_loss(rounded, read_inputs(data, config, world=1).valid)
