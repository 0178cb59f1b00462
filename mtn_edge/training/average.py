"""A running mean of the weights, which is often better than the weights of any one step (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of a model's parameters.

    The first steps count for less than their share would be: the decay of step n is at most (1 + n) / (10 + n), so that
    a short run is not held back by its random start.

    Args:
        model: whose parameters; they may move to another device before the first `update`.
        decay: share of the mean so far in the next one.
        start: a saved mean; None starts with the parameters as they are.
    """

    def __init__(self, model: nn.Module, decay: float, start: dict[str, Tensor] | None = None) -> None:
        self._parameters = dict(model.named_parameters())
        self._decay = decay
        values = start or self._parameters
        self.tensors = {
            name: values[name].detach().to(parameter.device, copy=True) for name, parameter in self._parameters.items()
        }
        """The mean of each parameter, by name."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the parameters after step number `step`, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.tensors.values()), list(self._parameters.values()), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the mean into the model for a while."""
        parameters, means = list[Tensor](self._parameters.values()), list(self.tensors.values())
        with torch.no_grad():
            kept = [parameter.clone() for parameter in parameters]
            torch._foreach_copy_(parameters, means)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, kept)
