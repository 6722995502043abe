"""Synthetic sites as site folders on disk, as hospitals would have them."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tomli_w
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.synthetic import draw_site


def write_drawn_site(
    folder: Path, task: str, site: str, *, resolution: int, seed: int = 0, size: float = 1.0
) -> Path:
    """Draw a site of the task's synthetic federation into a folder of its own, and give it."""
    drawn = draw_site(task, site, resolution=resolution, seed=seed, size=size)
    for part, arrays in (("images", drawn.images), ("masks", drawn.masks)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for case, pixels in zip(drawn.names, arrays, strict=True):
            Image.fromarray(_picture(pixels)).save(folder / part / f"{case}.png")
    rows = zip(drawn.names, drawn.patients, drawn.splits, strict=True)
    _write_csv(folder / "cases.csv", [("case", "patient", "split"), *rows])
    (folder / "site.toml").write_text(tomli_w.dumps({"name": site, "task": task}))
    return folder


def _picture(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An array as pictures have it: one channel without, three with a last axis."""
    if pixels.ndim == 2:
        return pixels
    return pixels[0] if len(pixels) == 1 else np.ascontiguousarray(np.moveaxis(pixels, 0, -1))


def _write_csv(file: Path, rows: Sequence[Sequence[str]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows(rows)
