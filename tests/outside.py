"""Code that is no part of Polyclinic: a package as pip would install it, and the same as a file."""

from pathlib import Path

CODE = '''
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from polyclinic.data.tasks import Task
from polyclinic.evaluation import Empty, Metric
from polyclinic.federation.method import Method, Stage, ignore, silent
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import Segmenter


@dataclass(frozen=True)
class FedMine(Method):
    """Goes only a part of the way to the average."""

    pace: Annotated[float, Field(gt=0, le=1)] = 0.5

    def combine(self, server, replies):
        before = server.weights
        super().combine(server, replies)
        way = server.weights.flat - before.flat
        server.weights = Weights(before.layout, before.flat + self.pace * way)


@dataclass(frozen=True)
class Rest:
    """Does nothing, once more."""

    def stages(self, method):
        return (Stage("rest", silent, lambda site: Message(), ignore, finalizes=True),)


class First(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1)

    def forward(self, images):
        return [self.conv(images).relu()]


class Tiny(Segmenter):
    """One convolution and a head."""

    name = "tiny"
    divisor = 4

    def __init__(self, *, channels: int, classes: int, width: int = 4) -> None:
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=First(channels, width),
            decoder=nn.Identity(),
            head=nn.Conv2d(width, classes, 1),
        )


def difference_of_areas(pair):
    predicted, true = pair.pixels
    return float(abs(predicted - true))


AREA = Metric(
    difference_of_areas, "Area", "difference of the areas", "lower", "px", Empty(0.0, "diagonal")
)


def brier(logits, labels):
    """Mean squared error of the probabilities."""
    known = labels != 255
    truth = nn.functional.one_hot(labels.long() * known, logits.shape[1]).movedim(-1, 1)
    errors = (logits.softmax(1) - truth).square().sum(1)
    return (errors * known).sum() / known.sum().clamp(min=1)


FOVEA = Task(
    name="fovea",
    summary="the dark middle of the macula",
    channels=1,
    classes=("background", "fovea"),
    regions={"fovea": (1,)},
    resolution=32,
)
'''
POINTS = {
    "methods": "fedmine = {module}:FedMine",
    "finishing_steps": "rest = {module}:Rest",
    "networks": "tiny = {module}:Tiny",
    "metrics": "area = {module}:AREA",
    "losses": "brier = {module}:brier",
    "tasks": "fovea = {module}:FOVEA",
}
NAMES = {
    "task": "fovea",
    "network": "tiny",
    "method": "fedmine",
    "finish": "rest",
    "metric": "area",
    "loss": "brier",
}
IN_FILE = {
    "task": "mine.py:FOVEA",
    "network": "mine.py:Tiny",
    "method": "mine.py:FedMine",
    "finish": "mine.py:Rest",
    "metric": "mine.py:AREA",
    "loss": "mine.py:brier",
}


def write_package(
    folder: Path, name: str = "fed_mine", version: str = "1.2", code: str = CODE, **points: str
) -> Path:
    """A distribution with one module and these entry points (group → lines), and its folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    text = "".join(
        f"[polyclinic.{group}]\n{line.format(module=name)}\n"
        for group, line in (points or POINTS).items()
    )
    (about / "entry_points.txt").write_text(text)
    return folder


def study_text(names: dict[str, str]) -> str:
    """A small study that uses everything from outside."""
    return f"""
        task = "{names["task"]}"
        [data]
        source = "data"
        [network]
        name = "{names["network"]}"
        width = 3
        [[method]]
        name = "{names["method"]}"
        pace = 0.25
        then = ["{names["finish"]}"]
        [training]
        loss = "{names["loss"]}"
        batch = 4
        iterations = 2
        [federation]
        rounds = 2
        [evaluation]
        every = 1
        metrics = ["dice", "{names["metric"]}"]
        pictures = false
        [engine]
        threads = 1
        """
