"""One training step of ours against the plain PyTorch loop: same network, batch and loss.

Each side has a process of its own, because the allocator's settings belong to a process. They
take turns: while one works, the other waits for its next line of input.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench import Ratio, interleaved
from polyclinic.engine.allocator import keep_freed_memory
from polyclinic.losses import segmentation_loss
from polyclinic.networks import UNet

BATCH = 12
TARGETS = {64: 1.3, 128: 1.3, 256: 1.5, 384: 1.5}


def run() -> list[Ratio]:
    """Seconds per step of the papers' U-Net, batch 12, with all threads."""
    return [measure(size, target) for size, target in TARGETS.items()]


def measure(size: int, target: float) -> Ratio:
    with ExitStack() as stack:
        sides = {side: stack.enter_context(start(side, size)) for side in SIDES}
        for process in sides.values():
            take_turn(process)
        turns = {side: partial(take_turn, process) for side, process in sides.items()}
        seconds = interleaved(turns)
        for process in sides.values():
            process.communicate()
    return Ratio(
        name=f"training step {size}²",
        ours=seconds["ours"],
        reference=seconds["plain"],
        target=target,
        note=f"batch {BATCH}, plain PyTorch loop, {torch.get_num_threads()} threads",
    )


def start(side: str, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.step", side, str(size)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def take_turn(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("step\n")
    assert process.stdout.readline() == "done\n", "a side of the comparison died"


def work(side: str, size: int) -> None:
    torch.manual_seed(0)
    images = torch.rand(BATCH, 1, size, size)
    labels = torch.randint(0, 2, (BATCH, size, size), dtype=torch.uint8)
    step = SIDES[side](images, labels)
    for _ in sys.stdin:
        step()
        print("done", flush=True)


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


SIDES = {"ours": our_step, "plain": plain_step}


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


class PlainUNet(nn.Module):
    """The papers' U-Net as one writes it down without thinking of speed."""

    def __init__(self) -> None:
        super().__init__()
        widths, dropout = (16, 32, 64, 128, 256), (0.05, 0.1, 0.2, 0.3, 0.5)
        self.down = nn.ModuleList(map(block, (1, *widths), widths, dropout))
        self.narrow = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for width in widths[-2::-1])
        self.up = nn.ModuleList(block(2 * width, width, 0.0) for width in widths[-2::-1])
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


def block(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(),
        nn.Dropout(dropout),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(),
    )


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
