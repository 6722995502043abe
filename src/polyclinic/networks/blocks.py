"""Layers that networks are made of, written for channels-last maps."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.dropout import Dropout

Activation = Callable[[], nn.Module]
Width = Annotated[int, Field(ge=1)]


class Norm(nn.BatchNorm2d):
    """Batch normalisation without a batch counter, which a fixed momentum never reads."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.num_batches_tracked = None

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        # The parent class would add the counter to plain dictionaries and then refuse it.
        nn.Module._load_from_state_dict(self, *arguments, **options)


class JoinedConv(nn.Conv2d):
    """A 3×3 convolution over two maps one behind the other, without ever joining them.

    Convolving each with its share of the kernel and adding gives the same values and spares the
    copies there and back: about a twentieth of a training step.
    """

    def __init__(self, first: int, second: int, outputs: int) -> None:
        super().__init__(first + second, outputs, kernel_size=3, padding=1)
        self.first = first

    def forward(self, first: Tensor, second: Tensor) -> Tensor:  # type: ignore[override]
        """Give the convolution of [first, second] along the channels."""
        ahead, behind = self.weight[:, : self.first], self.weight[:, self.first :]
        joined = functional.conv2d(first, ahead, self.bias, padding=1)
        joined += functional.conv2d(second, behind, padding=1)
        return joined


class DoubleConv(nn.Module):
    """Twice 3×3 convolution, norm and activation, with dropout in between.

    The first convolution takes one map, or two that stand one behind the other when `beside`
    names the channels of the second.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: Activation,
        *,
        beside: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv1 = (
            JoinedConv(inputs, beside, outputs)
            if beside
            else nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
        )
        self.norm1 = Norm(outputs)
        self.act1 = activation()
        self.dropout = Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1)
        self.norm2 = Norm(outputs)
        self.act2 = activation()

    def forward(self, *maps: Tensor) -> Tensor:
        """Give a map of the same height and width."""
        middle = self.dropout(self.act1(self.norm1(self.conv1(*maps))))
        return self.act2(self.norm2(self.conv2(middle)))


class DoubleConvEncoder(nn.Module):
    """Double convolutions of growing width, with 2×2 max pooling between them."""

    def __init__(
        self,
        channels: int,
        widths: tuple[int, ...],
        activation: Activation,
        dropout: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            DoubleConv(inputs, outputs, activation, dropout=p)
            for inputs, outputs, p in zip((channels, *widths), widths, dropout, strict=False)
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Give one map per level, finest first; each level halves height and width."""
        maps = [self.levels[0](images)]
        for level in self.levels[1:]:
            maps.append(level(functional.max_pool2d(maps[-1], 2)))
        return maps


class UpLevel(nn.Module):
    """A decoder's level: `enlarged` enlarges the map below, `combine` joins it to the map beside.

    An `attention` that is set here sees both maps, the enlarged one first, and what it gives takes
    the place of the enlarged one; `widths` are the channels of the two.
    """

    combine: nn.Module

    def __init__(self, enlarged: int, beside: int) -> None:
        super().__init__()
        self.widths = (enlarged, beside)
        self.attention: nn.Module | None = None

    def forward(self, below: Tensor, beside: Tensor) -> Tensor:
        """Give a map of the size and channels of the one beside."""
        enlarged = self.enlarged(below)
        if self.attention is not None:
            enlarged = self.attention(enlarged, beside)
        return self.combine(beside, enlarged)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below in the size of the one beside."""
        raise NotImplementedError


class UpDecoder(nn.Module):
    """Levels that each enlarge the map below and combine it with the encoder's map beside it."""

    def __init__(self, levels: list[nn.Module]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(levels)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Give one map per level, coarsest first, from the encoder's maps, finest first."""
        maps: list[Tensor] = []
        below = features[-1]
        for level, beside in zip(self.levels, reversed(features[:-1]), strict=True):
            below = level(below, beside)
            maps.append(below)
        return maps


class EnlargingHead(nn.Module):
    """A 1×1 convolution to the classes, whose logits are enlarged bilinearly by a factor."""

    def __init__(self, channels: int, classes: int, factor: int) -> None:
        super().__init__()
        self.score = nn.Conv2d(channels, classes, kernel_size=1)
        self.factor = factor

    def forward(self, maps: Tensor) -> Tensor:
        """Give logits of the images' size."""
        return functional.interpolate(
            self.score(maps), scale_factor=self.factor, mode="bilinear", align_corners=False
        )


class Halving(nn.Conv2d):
    """A 1×1 convolution that halves height and width.

    It takes every second pixel first and convolves without a stride: oneDNN's own 1×1 convolution
    with a stride writes beyond its memory in the backward pass of narrow channels-last maps.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, kernel_size=1, bias=bias)

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of half the height and width."""
        return super().forward(maps[:, :, ::2, ::2])
