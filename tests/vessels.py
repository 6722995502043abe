"""Vessel-like pictures of three sources that differ in size, channels, files and annotation."""

from pathlib import Path

import numpy as np
from PIL import Image

SIZES = {"drive": (40, 44), "stare": (60, 52), "chase": (50, 50)}
CASES = 6
VALUES = 'values = { 0 = "background", 255 = "vessel" }\n'


def write_sources(folder: Path) -> None:
    """Three site folders: RGB pictures with views, grey pictures, and arrays with channels first.

    Masks are 0 and 255, as such sets are published, except those of arrays.
    """
    for site, (high, wide) in SIZES.items():
        rng = np.random.default_rng(len(site) + high)
        for part in ("images", "masks"):
            (folder / site / part).mkdir(parents=True)
        for number in range(CASES):
            mask = draw_vessels(high, wide, rng)
            image = np.clip(90 + 70 * mask + 20 * rng.standard_normal(mask.shape), 0, 255)
            write_case(folder / site, f"{number:02}", image.astype(np.uint8), mask, site)
        if site != "chase":
            (folder / site / "site.toml").write_text(VALUES)


def draw_vessels(high: int, wide: int, rng: np.random.Generator) -> np.ndarray:
    """H×W of 0 and 1: three winding lines."""
    mask = np.zeros((high, wide), np.uint8)
    for _ in range(3):
        row, slope = rng.uniform(0.2, 0.8) * high, rng.uniform(-0.5, 0.5)
        for column in range(wide):
            row = (row + slope + rng.normal(0, 0.4)) % high
            mask[int(row) : int(row) + 3, column] = 1
    return mask


def write_case(folder: Path, name: str, image: np.ndarray, mask: np.ndarray, site: str) -> None:
    Image.fromarray(mask * (1 if site == "chase" else 255)).save(folder / "masks" / f"{name}.png")
    if site == "chase":
        colours = np.stack([image, image // 2, image // 4]).astype(np.float32) / 255
        np.save(folder / "images" / f"{name}.npy", colours)
    elif site == "stare":
        Image.fromarray(image).save(folder / "images" / f"{name}.png")
    else:
        down, right = np.mgrid[-1 : 1 : image.shape[0] * 1j, -1 : 1 : image.shape[1] * 1j]
        view = down**2 + right**2 < 1
        colours = np.stack([image * view, image // 2 * view, image // 4 * view], axis=2)
        Image.fromarray(colours).save(folder / "images" / f"{name}.png")
        (folder / "views").mkdir(exist_ok=True)
        Image.fromarray(view.astype(np.uint8) * 255).save(folder / "views" / f"{name}.png")
