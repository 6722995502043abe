"""The second pyramid vision transformer, with the names of its public checkpoints.

Under a feature pyramid it has 5.2 million parameters at a width of 32.

Its maps lie as batch × height × width × channels, which is what channels-last convolutions give and
take: tokens and maps are the same memory.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Width
from polyclinic.networks.fpn import FPNSegmenter
from polyclinic.networks.parts import Names, everything

STAGES = range(1, 5)
GROWTH = (1, 2, 5, 8)  # of the channels over the first stage's, and the number of heads
EXPANSION = (8, 8, 4, 4)  # of the channels inside the two-layer perceptrons
REDUCTION = (8, 4, 2, 1)  # of height and width for keys and values
BLOCKS = {8: (2, 2, 2, 2), 16: (3, 4, 6, 3)}  # of each stage, by depth
DROP_PATH = 0.1  # of the last block; it grows from 0 at the first
PARTS = {"queries": "q", "keys": "k", "values": "v"}


class PVT(nn.Module):
    """Four stages of attention blocks, at a quarter to a thirty-second of the image's size."""

    def __init__(self, channels: int, width: int, depth: Literal[8, 16] = 8) -> None:
        super().__init__()
        self.widths = tuple(width * growth for growth in GROWTH)
        drops = iter([DROP_PATH * block / (depth - 1) for block in range(depth)])
        for place, stage in enumerate(STAGES):
            inputs, outputs = (channels, *self.widths)[place], self.widths[place]
            blocks = [
                Block(outputs, GROWTH[place], EXPANSION[place], REDUCTION[place], next(drops))
                for _ in range(BLOCKS[depth][place])
            ]
            self.add_module(f"patch_embed{stage}", PatchEmbedding(inputs, outputs, stage == 1))
            self.add_module(f"block{stage}", nn.ModuleList(blocks))
            self.add_module(f"norm{stage}", nn.LayerNorm(outputs, eps=1e-6))
        self.apply(_draw)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Give one map per stage (batch × channels × height × width), finest first."""
        maps: list[Tensor] = []
        below = images
        for stage in STAGES:
            tokens = self.get_submodule(f"patch_embed{stage}")(below)
            for block in self.get_submodule(f"block{stage}").children():
                tokens = block(tokens)
            below = _as_map(self.get_submodule(f"norm{stage}")(tokens))
            maps.append(below)
        return maps

    def parts(self) -> dict[str, Names]:
        """Publish the queries, keys and values of all attentions."""
        names = everything(self)
        return {
            part: frozenset(name for name in names if f".attn.{layer}." in name)
            for part, layer in PARTS.items()
        }


class PatchEmbedding(nn.Module):
    """Overlapping patches as tokens: four pixels apart in the first stage, two in the others."""

    def __init__(self, inputs: int, outputs: int, first: bool) -> None:
        super().__init__()
        kernel, stride = (7, 4) if first else (3, 2)
        self.proj = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, maps: Tensor) -> Tensor:
        """Give tokens (batch × height × width × channels)."""
        return self.norm(_as_tokens(self.proj(maps)))


class Block(nn.Module):
    """Attention, then a perceptron that looks at neighbours; each is added to its input."""

    def __init__(
        self, channels: int, heads: int, expansion: int, reduction: int, drop: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = SelfAttention(channels, heads, reduction)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Perceptron(channels, expansion * channels)
        self.drop_path = DropPath(drop)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give tokens of the same shape."""
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens)))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class SelfAttention(nn.Module):
    """Every place asks all places of a reduced map.

    Queries, keys and values are layers of their own, so that each can be a site's; checkpoints in
    which keys and values are the two halves of one layer `kv` load as well.
    """

    def __init__(self, channels: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(channels, channels)
        self.k = nn.Linear(channels, channels)
        self.v = nn.Linear(channels, channels)
        self.proj = nn.Linear(channels, channels)
        self.sr: nn.Conv2d | None = None
        self.norm: nn.LayerNorm | None = None
        if reduction > 1:
            self.sr = nn.Conv2d(channels, channels, kernel_size=reduction, stride=reduction)
            self.norm = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give tokens of the same shape."""
        reduced = self.reduced(tokens)
        attended = functional.scaled_dot_product_attention(
            self.by_head(self.q(tokens)),
            self.by_head(self.k(reduced)),
            self.by_head(self.v(reduced)),
        )
        return self.proj(attended.transpose(1, 2).reshape(tokens.shape))

    def reduced(self, tokens: Tensor) -> Tensor:
        """Give the tokens that keys and values are made of."""
        if self.sr is None or self.norm is None:
            return tokens
        return self.norm(_as_tokens(self.sr(_as_map(tokens))))

    def by_head(self, tokens: Tensor) -> Tensor:
        """Give tokens as batch × heads × places × channels of a head."""
        return tokens.flatten(1, 2).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        halve_keys_and_values(state_dict)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class Perceptron(nn.Module):
    """Two layers with a 3×3 convolution of each channel for itself between them."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, inner)
        self.dwconv = _Neighbours(inner)
        self.fc2 = nn.Linear(inner, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give tokens of the same shape."""
        return self.fc2(functional.gelu(self.dwconv(self.fc1(tokens))))


class DropPath(nn.Module):
    """While training, leave out what is to be added, in a share of the images of a batch."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, tokens: Tensor) -> Tensor:
        """Give the tokens of each image scaled to keep the mean, or noughts."""
        if not (self.training and self.p):
            return tokens
        keep = torch.full((len(tokens), 1, 1, 1), 1 - self.p, device=tokens.device)
        return tokens * (keep.bernoulli() / (1 - self.p)).to(tokens.dtype)


class _Neighbours(nn.Module):
    # A module around the convolution, because checkpoints name it dwconv.dwconv.
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)

    def forward(self, tokens: Tensor) -> Tensor:
        return _as_tokens(self.dwconv(_as_map(tokens)))


def halve_keys_and_values(tensors: dict[str, Tensor]) -> None:
    """Replace each layer `kv` by its halves `k` and `v`, in place."""
    for name in [name for name in tensors if name.endswith((".kv.weight", ".kv.bias"))]:
        attention, _, leaf = name.rsplit(".", 2)
        tensors[f"{attention}.k.{leaf}"], tensors[f"{attention}.v.{leaf}"] = tensors.pop(
            name
        ).chunk(2)


def _as_map(tokens: Tensor) -> Tensor:
    return tokens.permute(0, 3, 1, 2)


def _as_tokens(maps: Tensor) -> Tensor:
    return maps.permute(0, 2, 3, 1)


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    elif isinstance(module, nn.Conv2d):
        outputs = math.prod(module.kernel_size) * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / outputs))
    else:
        return
    if module.bias is not None:
        nn.init.zeros_(module.bias)


class PVTFPN(FPNSegmenter):
    """PVTv2 with an FPN decoder and a 1×1 head.

    b0 has a width of 32 and a depth of 8 blocks, b1 a width of 64, b2 also a depth of 16.
    """

    name = "pvt_fpn"

    def __init__(
        self, *, channels: int, classes: int, width: Width = 32, depth: Literal[8, 16] = 8
    ) -> None:
        super().__init__(PVT(channels, width, depth), channels=channels, classes=classes)
