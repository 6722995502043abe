"""Weakly supervised losses: gated CRF against its unfolded form, tree energy against a step.

Memory is what value and gradient add to the resident set of a process of their own, as the system
counts it: nearly all of it belongs to torch and the compiled kernels, where tracemalloc is blind.
"""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tests.losses import brute_force
from torch import Tensor

from bench import Ratio, interleaved
from polyclinic.engine.process import keep_freed_memory
from polyclinic.losses import gated_crf, segmentation_loss, tree_energy
from polyclinic.networks import NETWORKS

BATCH = 12
CRF_SIZE, TREE_SIZE = 384, 256
TREES = 3  # high ones, besides that of the image
UNFOLDED = 3  # images at a time: all twelve take more memory than many machines have
CRF_TARGET = 5.0
CRF_MEGABYTES = 600.0
TREE_TARGET = 4.0  # at most a quarter of a step


def run() -> list[Ratio]:
    """Seconds of value and gradient with all threads, and megabytes."""
    keep_freed_memory()
    return [crf_memory(), tree_memory(), tree_against_step(), crf_against_unfolding()]


def tree_against_step() -> Ratio:
    work = {"ours": tree_work(BATCH, TREE_SIZE), "step": training_step(TREE_SIZE)}
    seconds = interleaved(work, repeats=5)
    share = seconds["ours"] / seconds["step"]
    return Ratio(
        name=f"tree energy {TREE_SIZE}² against the training step",
        ours=seconds["ours"],
        reference=seconds["step"],
        target=TREE_TARGET,
        note=f"batch {BATCH}, four trees are {share:.1%} of a step, {threads()}",
    )


def crf_against_unfolding() -> Ratio:
    image, probabilities = crf_input(BATCH, CRF_SIZE)

    def unfolded() -> None:
        for part in zip(probabilities.split(UNFOLDED), image.split(UNFOLDED), strict=True):
            brute_force.gated_crf(*part).backward()

    seconds = interleaved({"ours": crf_work(BATCH, CRF_SIZE), "unfold": unfolded}, repeats=3)
    return Ratio(
        name=f"gated CRF {CRF_SIZE}² against unfold",
        ours=seconds["ours"],
        reference=seconds["unfold"],
        target=CRF_TARGET,
        note=f"batch {BATCH}, unfolded {UNFOLDED} images at a time, {threads()}",
    )


def crf_memory() -> Ratio:
    extra = extra_megabytes("crf", CRF_SIZE)
    note = f"batch {BATCH}: {extra:.0f} MB of the {CRF_MEGABYTES:.0f} allowed"
    return Ratio(f"gated CRF {CRF_SIZE}², memory", extra, CRF_MEGABYTES, 1.0, note)


def tree_memory() -> Ratio:
    """Against the images, which have one channel, and the guides, which have two."""
    extra = extra_megabytes("tree", TREE_SIZE)
    given = BATCH * TREE_SIZE**2 * 4 * (1 + 2 + 2 * TREES) / 1e6
    note = f"batch {BATCH}: {extra:.0f} MB beside its {given:.0f} MB of input"
    return Ratio(f"tree energy {TREE_SIZE}², memory", extra, given, None, note)


def crf_work(batch: int, size: int) -> Callable[[], None]:
    image, probabilities = crf_input(batch, size)
    return lambda: gated_crf(probabilities, image).backward()


def crf_input(batch: int, size: int) -> tuple[Tensor, Tensor]:
    image, logits = torch.rand(batch, 1, size, size), torch.randn(batch, 2, size, size)
    return image, logits.softmax(1).requires_grad_()


def tree_work(batch: int, size: int) -> Callable[[], None]:
    image, probabilities = crf_input(batch, size)
    guides = [torch.rand(batch, 2, size, size, requires_grad=True) for _ in range(TREES)]
    unlabelled = torch.rand(batch, size, size) < 0.95
    return lambda: tree_energy(probabilities, image, guides, unlabelled).backward()


def training_step(size: int) -> Callable[[], None]:
    net = NETWORKS["unet"](channels=1, classes=2).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    images = torch.rand(BATCH, 1, size, size)
    labels = torch.randint(0, 2, (BATCH, size, size), dtype=torch.uint8)

    def step() -> None:
        segmentation_loss(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


WORK = {"crf": crf_work, "tree": tree_work}


def extra_megabytes(loss: str, size: int) -> float:
    command = [sys.executable, "-m", "bench.losses", loss, str(size)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def measured_here(loss: str, size: int) -> float:
    """Megabytes between what is resident before the work and the most there ever was."""
    WORK[loss](1, 16)()  # loads the compiled code
    work = WORK[loss](BATCH, size)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize() / 1e6
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - before


def threads() -> str:
    return f"{torch.get_num_threads()} threads"


if __name__ == "__main__":
    print(measured_here(sys.argv[1], int(sys.argv[2])))
