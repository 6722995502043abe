"""Where a transformer looks: what the middle of an image attends to."""

from typing import Any

import torch
from torch import Tensor

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.pvt import SelfAttention


@torch.no_grad()
def middle_attention(net: Segmenter, images: Tensor) -> dict[str, Tensor]:
    """Give the attention of the middle place over all places (B×h×w), by stage, last block each.

    It is the mean over the heads and sums to one over the places.
    """
    modules = net.encoder.named_modules()
    last = {n.partition(".")[0]: each for n, each in modules if isinstance(each, SelfAttention)}
    seen: list[Tensor] = []

    def note(module: Any, inputs: tuple[Tensor, ...]) -> None:
        seen.append(_of_the_middle(module, inputs[0]))

    watching = [module.register_forward_pre_hook(note) for module in last.values()]
    try:
        net.encoder(images)
    finally:
        for each in watching:
            each.remove()
    return {f"stage {number}": each for number, each in enumerate(seen, start=1)}


def _of_the_middle(attention: SelfAttention, tokens: Tensor) -> Tensor:
    _, height, width, _ = tokens.shape
    reduced = attention.reduced(tokens)
    middle = tokens[:, height // 2, width // 2][:, None, None]
    queries, keys = attention.by_head(attention.q(middle)), attention.by_head(attention.k(reduced))
    scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
    return scores.softmax(3).mean((1, 2)).unflatten(1, reduced.shape[1:3])
