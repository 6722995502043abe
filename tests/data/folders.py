"""Small site folders on disk for tests."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image


def write_picture(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def draw_case(number: int, side: int = 32, colour: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """An image and a fundus mask of its own: a disc (1) with a cup (2) somewhere."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:side, :side]
    distance = np.hypot(rows - side / 2 - rng.integers(-3, 4), columns - side / 2)
    mask = ((distance < side / 4).astype(np.uint8) + (distance < side / 8)).astype(np.uint8)
    shape = (side, side, 3) if colour else (side, side)
    return rng.integers(0, 256, shape, dtype=np.uint8), mask


def write_site(folder: Path, cases: int = 10, *, part: str = "", side: int = 32) -> Path:
    """A fundus site with `cases` images and masks called 00, 01, …; `part` e.g. "train"."""
    for number in range(cases):
        image, mask = draw_case(number + 100 * len(part) + sum(map(ord, folder.name)), side)
        write_picture(folder / part / "images" / f"{number:02d}.png", image)
        write_picture(folder / part / "masks" / f"{number:02d}.png", mask)
    return folder


def write_labels(folder: Path, kind: str, *, place: str = "labels", only: int = 1000) -> None:
    """Labels for the first `only` cases: the masks with every other column unlabelled."""
    for file in sorted((folder / "masks").iterdir())[:only]:
        label = np.asarray(Image.open(file)).copy()
        label[:, ::2] = 255
        write_picture(folder / place / kind / file.name, label)


def write_listing(folder: Path, rows: list[tuple[str, ...]], header: str = "case,patient,split"):
    with (folder / "cases.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
