"""A batch of 12 out of the cached cases against PIL, file by file, and against a training step."""

import random
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bench import Ratio, interleaved
from polyclinic.config import AugmentationSettings, DataSettings, SiteSettings
from polyclinic.data.batches import batches
from polyclinic.data.cases import Batch, Cases
from polyclinic.data.load import load_federation
from polyclinic.data.synthetic import federation
from polyclinic.data.tasks import TASKS, Task
from polyclinic.engine.process import keep_freed_memory
from polyclinic.losses import segmentation_loss
from polyclinic.networks.unet import UNet

TASK = TASKS["fundus"]
BATCH = 12
BATCHES = 4  # in one measurement, because some batches have more rotations than others
PIL_TARGET = 6.0
STEP_TARGET = 50.0  # data is under 2 % of a step
LOOKS = {"gamma": 0.5, "contrast": 0.25, "noise": 0.1, "blur": 1.0, "low_resolution": 0.5}


def run() -> list[Ratio]:
    """Seconds per batch of 12 RGB images of 384², flips and ±45° rotation, with all threads."""
    keep_freed_memory()
    site = SiteSettings(name=federation(TASK.name)[0].name)
    cases = load_federation(TASK, DataSettings(), [site])[0].train
    files = [against_pil(cases, ".png"), against_pil(cases, ".jpg")]
    return [*files, against_step(cases), *looks_against_step()]


def against_pil(cases: Cases, suffix: str) -> Ratio:
    with TemporaryDirectory() as folder:
        files = written(cases, Path(folder), suffix)
        ours, theirs = stream(cases), pil_stream(files)
        seconds = interleaved(
            {
                "ours": lambda: [ours() for _ in range(BATCHES)],
                "pil": lambda: [theirs() for _ in range(BATCHES)],
            }
        )
    return Ratio(
        name=f"batch of {BATCH} against {suffix} files",
        ours=seconds["ours"] / BATCHES,
        reference=seconds["pil"] / BATCHES,
        target=PIL_TARGET if suffix == ".png" else None,
        note=f"PIL decode and augment, {torch.get_num_threads()} threads",
    )


def against_step(cases: Cases) -> Ratio:
    ours = stream(cases)
    step = training_step(ours(), TASK)
    seconds = interleaved(
        {"ours": lambda: [ours() for _ in range(BATCHES)], "step": step}, repeats=5
    )
    share = seconds["ours"] / BATCHES / seconds["step"]
    return Ratio(
        name=f"batch of {BATCH} against the training step",
        ours=seconds["ours"] / BATCHES,
        reference=seconds["step"],
        target=STEP_TARGET,
        note=f"the data is {share:.2%} of a step, {torch.get_num_threads()} threads",
    )


def looks_against_step() -> list[Ratio]:
    """What other looks add to a batch of 12 grey images of 256², by each change alone and all."""
    keep_freed_memory()
    task = TASKS["octa"]
    cases = load_federation(
        task, DataSettings(), [SiteSettings(name=federation(task.name)[0].name)]
    )[0].train
    streams = {"plain": stream(cases), "all": stream(cases, **LOOKS)}
    streams |= {name: stream(cases, **{name: value}) for name, value in LOOKS.items()}

    def several(draw: Callable[[], Batch]) -> Callable[[], object]:
        return lambda: [draw() for _ in range(4 * BATCHES)]

    sides = {name: several(draw) for name, draw in streams.items()}
    step = training_step(streams["plain"](), task)
    seconds = interleaved({**sides, "step": step}, repeats=5)
    return [
        Ratio(
            name=f"other looks ({name}) against the training step",
            ours=(extra := (seconds[name] - seconds["plain"]) / (4 * BATCHES)),
            reference=seconds["step"],
            target=STEP_TARGET if name == "all" else None,
            note=f"they add {extra / seconds['step']:.2%}, {torch.get_num_threads()} threads",
        )
        for name in ("all", *LOOKS)
    ]


def training_step(batch: Batch, task: Task) -> Callable[[], None]:
    net = UNet(channels=task.channels, classes=len(task.classes))
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def step() -> None:
        segmentation_loss(net(batch.images), batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def stream(cases: Cases, **looks: float) -> Callable[[], Batch]:
    endless = batches(
        cases,
        batch=BATCH,
        steps=10**9,
        rng=torch.Generator().manual_seed(0),
        augmentation=AugmentationSettings(**looks),
        fill=TASK.fill,
    )
    return lambda: next(endless)


def pil_stream(files: list[tuple[Path, Path]]) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches as a plain dataset makes them: open, flip, rotate, normalise, stack."""
    dice = random.Random(0)
    endless = cycle(files)

    def sample() -> tuple[Tensor, Tensor]:
        image: Image.Image
        image, mask = (Image.open(file) for file in next(endless))
        for flip in (Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.FLIP_LEFT_RIGHT):
            if dice.random() < 0.5:
                image, mask = image.transpose(flip), mask.transpose(flip)
        if dice.random() < 0.5:
            degrees = dice.uniform(-45, 45)
            image = image.rotate(degrees, Image.Resampling.BILINEAR)
            mask = mask.rotate(degrees, Image.Resampling.NEAREST, fillcolor=255)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        low, high = pixels.min(), pixels.max()
        return (pixels - low) / (high - low), torch.from_numpy(np.array(mask))

    def batch() -> tuple[Tensor, Tensor]:
        images, masks = zip(*(sample() for _ in range(BATCH)), strict=True)
        return torch.stack(images), torch.stack(masks)

    return batch


def written(cases: Cases, folder: Path, suffix: str) -> list[tuple[Path, Path]]:
    files = []
    for name, image, mask in zip(cases.names, cases.images, cases.masks, strict=True):
        pair = folder / f"{name}{suffix}", folder / f"{name}-mask.png"
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(pair[0])
        Image.fromarray(mask.numpy()).save(pair[1])
        files.append(pair)
    return files
