"""A message between a site and the server."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyclinic.federation.weights import Layout, Weights, absurd

COUNTS = ("images", "steps")  # the numbers that the engine adds to every reply


def no_weights() -> Weights:
    """Weights without a single name, for messages that carry none."""
    return Weights(Layout(()), torch.empty(0))


def models_in(extras: Mapping[str, Tensor], group: str) -> dict[str, dict[str, Tensor]]:
    """The models among extras that are called `group/owner/name`, by owner."""
    models: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in extras.items():
        if key.startswith(f"{group}/"):
            _, owner, name = key.split("/", 2)
            models[owner][name] = tensor
    return dict(models)


@dataclass(frozen=True)
class Message:
    """What one exchange carries: shared weights, a method's named extras and plain numbers."""

    weights: Weights = field(default_factory=no_weights)
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of its tensors and numbers; names and framing are the engine's own."""
        extras = sum(tensor.numel() * tensor.element_size() for tensor in self.extras.values())
        return self.weights.nbytes + extras + 8 * len(self.numbers)

    def not_finite(self) -> list[str]:
        """The names of tensors and numbers in it with values that are no finite number."""
        tensors = {**self.weights, **self.extras}
        bad = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
        return bad + [name for name, number in self.numbers.items() if not math.isfinite(number)]

    def absurd(self) -> list[str]:
        """The names of tensors in it with a value that no training gives."""
        return absurd({**self.weights, **self.extras})

    def names_by_part(self) -> dict[str, list[str]]:
        """The names in it by the part of the network, or the sort of extra, that they belong to."""
        parts = defaultdict(list)
        for name in self.weights:
            parts[name.partition(".")[0]].append(name)
        for name in self.extras:
            parts[f"extra {name.partition('/')[0]}"].append(name)
        return dict(parts)

    def bytes_by_part(self) -> dict[str, int]:
        """The bytes of its tensors by part."""
        tensors = {**self.weights, **self.extras}
        return {
            part: sum(tensors[name].numel() * tensors[name].element_size() for name in names)
            for part, names in self.names_by_part().items()
        }
