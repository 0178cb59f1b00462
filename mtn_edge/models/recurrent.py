"""What the recurrent networks share: a run over rows of different lengths, and how weights begin.

Shapes: b rows, t steps, n real ones of all rows, w width of an input, units of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtn_edge.models.layers import Packing, init_weights


def run(
    network: nn.GRU | nn.LSTM, x: Tensor, packing: Packing, start: Tensor | tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Runs a network of one layer along each row, without a step for padding.

    Args:
        network: one layer, `batch_first`.
        x: [n, w] inputs.
        packing: where they lie in rows [b, t], the padding last and no row empty.
        start: state before the first step, [1, b, units]; zero without.

    Returns:
        [n, units], the output of each step.
    """
    rows = pack_padded_sequence(packing.pad(x), packing.real.sum(1).cpu(), batch_first=True, enforce_sorted=False)
    outputs, _ = network(rows, start)
    padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=packing.real.shape[1])
    return packing.pack(padded)


def last_steps(packing: Packing) -> Tensor:
    """[b] which of the n packed steps is the last of each row."""
    return packing.real.sum(1).cumsum(0) - 1


def init_recurrent(module: nn.Module) -> None:
    """How every weight of a recurrent network begins (for `nn.Module.apply`).

    Recurrent matrices are orthogonal, so that a state neither fades nor grows at first; an LSTM forgets little.
    """
    init_weights(module)
    if isinstance(module, nn.GRU | nn.LSTM):
        for name, parameter in module.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
                continue
            for gate in parameter.chunk(len(parameter) // module.hidden_size):
                (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)
    if isinstance(module, nn.LSTM):
        with torch.no_grad():  # its four gates: input, forget, candidate, output
            module.bias_ih_l0[module.hidden_size : 2 * module.hidden_size] = 1.0  # type: ignore[operator]
