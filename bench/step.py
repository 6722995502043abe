"""One training step of ours against two loops without a library: same network, batch and loss.

The plain loop is what one writes first; the tuned one has every trick we know of, by hand.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench import Ratio, in_processes, take_turns
from polyclinic.engine.process import keep_freed_memory
from polyclinic.losses import segmentation_loss
from polyclinic.networks.unet import UNet

BATCH = 12
TARGETS = {64: 1.3, 128: 1.3, 256: 1.5, 384: 1.5}


def run() -> list[Ratio]:
    """Seconds per step of the papers' U-Net, batch 12, with all threads."""
    return [ratio for size, target in TARGETS.items() for ratio in measure(size, target)]


def measure(size: int, target: float) -> list[Ratio]:
    seconds = in_processes("bench.step", tuple(SIDES), str(size))
    return [
        Ratio(
            name=f"training step {size}² against the {side} loop",
            ours=seconds["ours"],
            reference=seconds[side],
            target=wanted,
            note=f"batch {BATCH}, {torch.get_num_threads()} threads",
        )
        for side, wanted in {"plain": target, "tuned": 0.98}.items()
    ]


def work(side: str, size: str) -> None:
    torch.manual_seed(0)
    images = torch.rand(BATCH, 1, int(size), int(size))
    labels = torch.randint(0, 2, (BATCH, int(size), int(size)), dtype=torch.uint8)
    take_turns(SIDES[side](images, labels))


def our_step(images: Tensor, labels: Tensor) -> Callable[[], None]:
    keep_freed_memory()
    net = UNet(channels=1, classes=2).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def step() -> None:
        segmentation_loss(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain_step(images: Tensor, labels: Tensor) -> Callable[[], None]:
    net = PlainUNet()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        plain_loss(net(images), labels).backward()
        optimizer.step()

    return step


def tuned_step(images: Tensor, labels: Tensor) -> Callable[[], None]:
    keep_freed_memory()
    net = PlainUNet(HandDropout).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def step() -> None:
        tuned_loss(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


SIDES = {"ours": our_step, "plain": plain_step, "tuned": tuned_step}


def plain_loss(logits: Tensor, labels: Tensor) -> Tensor:
    entropy = functional.cross_entropy(logits, labels.long(), ignore_index=255)
    probabilities = logits.softmax(1)
    dice = torch.zeros(())
    for value in range(logits.shape[1]):
        labelled = (labels != 255).float()
        truth = (labels == value).float()
        predicted = probabilities[:, value] * labelled
        size = (predicted * predicted).sum() + (truth * truth).sum()
        dice = dice + 1 - (2 * (predicted * truth).sum() + 1e-5) / (size + 1e-5)
    return entropy + dice / logits.shape[1]


def tuned_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of two classes from one softmax, for labels without gaps."""
    logs = logits.log_softmax(1)
    truth = torch.stack([labels == 0, labels == 1], dim=1).to(logs.dtype)
    probabilities = logs.exp()
    both = (probabilities * truth).sum((0, 2, 3))
    size = (probabilities * probabilities).sum((0, 2, 3)) + truth.sum((0, 2, 3))
    dice = 1 - (2 * both + 1e-5) / (size + 1e-5)
    return -(logs * truth).sum() / labels.numel() + dice.mean()


class HandDropout(nn.Module):
    """Dropout from a byte per element instead of a serial draw for each."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.limit = round(256 * p)

    def forward(self, values: Tensor) -> Tensor:
        if not self.limit:
            return values
        words = torch.empty(values.numel() // 8, dtype=torch.int64).random_(-(2**63), None)
        strides = torch.empty_like(values, device="meta").stride()
        keep = words.view(torch.uint8).as_strided(values.shape, strides) >= self.limit
        return values * keep * (256 / (256 - self.limit))


class PlainUNet(nn.Module):
    """The papers' U-Net as one writes it down without thinking of speed."""

    def __init__(self, thin: Callable[[float], nn.Module] = nn.Dropout) -> None:
        super().__init__()
        widths, dropout = (16, 32, 64, 128, 256), (0.05, 0.1, 0.2, 0.3, 0.5)
        self.down = nn.ModuleList(map(partial(block, thin), (1, *widths), widths, dropout))
        self.narrow = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for width in widths[-2::-1])
        self.up = nn.ModuleList(block(thin, 2 * width, width, 0.0) for width in widths[-2::-1])
        self.head = nn.Conv2d(widths[0], 2, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        maps = [self.down[0](images)]
        for down in self.down[1:]:
            maps.append(down(functional.max_pool2d(maps[-1], 2)))
        current = maps.pop()
        for narrow, up in zip(self.narrow, self.up, strict=True):
            current = functional.interpolate(
                narrow(current), scale_factor=2, mode="bilinear", align_corners=True
            )
            current = up(torch.cat([maps.pop(), current], dim=1))
        return self.head(current)


def block(
    thin: Callable[[float], nn.Module], inputs: int, outputs: int, dropout: float
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(),
        thin(dropout),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(),
    )


if __name__ == "__main__":
    work(*sys.argv[1:])
