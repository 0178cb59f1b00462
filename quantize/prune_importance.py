"""How much a network needs each of its heads, feed-forward units and layers.

With data: the first-order change of the loss when the output of a structure is scaled down to nothing. The output is
linear in the weights that the structure writes with (columns of `out` or `down`), so that this is the sum of
gradient times weight over them; its absolute value is taken for each batch and summed (Michel et al. 2019, section
4.1, whose gates give the same number, and who scale the scores of each attention; Molchanov et al. 2019, equation 8).
Without data: how large the weights are, the norm of what goes in times the norm of what comes out, which scaling one up
and the other down leaves alone.

Shapes: d width, h heads, e width of a head, f units of a feed-forward layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mtn_edge.config import ModelConfig
from mtn_edge.data.batches import Batch
from mtn_edge.layer_sizes import head_width
from mtn_edge.models.build import build
from mtn_edge.training.objective import token_loss
from quantize.prune_structures import layer_names

_WRITING = ("attention.out", "attention.candidate", "cross_attention.out", "feed_forward.down")
"""The maps by which a layer writes; a recurrent unit's output grows with its candidate map as that of a map does."""


class Importance(NamedTuple):
    """Scores, the higher the more needed."""

    heads: dict[str, Tensor]
    """[h] of each attention (`decoder_layers.0.cross_attention`)."""
    units: dict[str, Tensor]
    """[f] of each layer's feed-forward, by layer."""
    layers: dict[str, float]
    """Of each layer."""


def by_gradient(config: ModelConfig, weights: Mapping[str, Tensor], batches: Iterable[Batch]) -> Importance:
    """Importance for the loss of some batches, without dropout.

    Scores are nats per token, summed over batches; those of the heads of one attention are scaled to a norm of one.
    """
    model = build(config).eval()
    model.load_state_dict(dict(weights))
    found = _nothing(by_magnitude(config, weights))
    for batch in batches:
        model.zero_grad()
        loss, tokens = token_loss(model, batch)
        torch.autograd.backward(loss / tokens)
        changes = {
            name: (parameter.grad * parameter).detach()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        for layer in found.layers:
            _add(found, layer, changes, head_width(config))
    # Heads change much at once, and the first order says little of how attentions compare.
    return found._replace(heads={name: scores / scores.norm().clamp(min=1e-30) for name, scores in found.heads.items()})


def _add(found: Importance, layer: str, changes: Mapping[str, Tensor], e: int) -> None:
    """Adds what one batch says of a layer.

    Args:
        found: the scores so far.
        layer: its name.
        changes: gradient times weight, by tensor.
        e: width of a head.
    """
    written = [f"{layer}.{name}.{part}" for name in _WRITING for part in ("weight", "bias")]
    found.layers[layer] += abs(sum(float(changes[name].sum()) for name in written if name in changes))
    down = changes.get(f"{layer}.feed_forward.down.weight")
    if down is not None:
        found.units[layer] += down.sum(0).abs()
    for attention in (f"{layer}.attention", f"{layer}.cross_attention"):
        out = changes.get(f"{attention}.out.weight")
        if out is not None:
            found.heads[attention] += out.view(len(out), -1, e).sum((0, 2)).abs()


def by_magnitude(config: ModelConfig, weights: Mapping[str, Tensor]) -> Importance:
    """Importance by the size of weights, each attention's and feed-forward's scaled to a mean of one."""
    e = head_width(config)
    found = Importance({}, {}, {})
    for layer in _layers(config):
        for attention, map_in, parts in ((f"{layer}.attention", "qkv", 3), (f"{layer}.cross_attention", "kv", 2)):
            if f"{attention}.out.weight" in weights:
                values = _with_bias(weights, f"{attention}.{map_in}").chunk(parts)[-1]  # [h e, d + 1]
                out = weights[f"{attention}.out.weight"]
                leaving = out.view(len(out), -1, e).norm(dim=(0, 2))
                found.heads[attention] = _scaled(values.view(-1, e * values.shape[1]).norm(dim=1) * leaving)
        up, down = _with_bias(weights, f"{layer}.feed_forward.up"), weights[f"{layer}.feed_forward.down.weight"]
        found.units[layer] = _scaled(up.norm(dim=1) * down.norm(dim=0))
        written = [weights[f"{layer}.{name}.weight"] for name in _WRITING if f"{layer}.{name}.weight" in weights]
        found.layers[layer] = sum(float(weight.norm()) for weight in written)
    return found


def _with_bias(weights: Mapping[str, Tensor], name: str) -> Tensor:
    """A map's weights [o, i] and its bias as one more column."""
    return torch.cat([weights[f"{name}.weight"], weights[f"{name}.bias"][:, None]], dim=1)


def _nothing(like: Importance) -> Importance:
    """Scores of zero."""
    heads, units = ({name: torch.zeros_like(x) for name, x in part.items()} for part in (like.heads, like.units))
    return Importance(heads, units, dict.fromkeys(like.layers, 0.0))


def _layers(config: ModelConfig) -> list[str]:
    return [name for names in layer_names(config).values() for name in names]


def _scaled(scores: Tensor) -> Tensor:
    """Scores of one module that can be compared with another's."""
    return scores / scores.mean().clamp(min=1e-30)
