"""`python -m bench.weak_terms FOLDER TASK [SIDE …]`: where CRF and trees like a border to be.

Without any network: true regions of training images are moved by a few per cent of the image's side
or filtered on the image's tree. A good window has its least energy at the true border, a good tree
keeps true regions. Prints the rows of docs/lab/2026-11-18-weak-terms.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from polyclinic.config import DataSettings, WeakSettings
from polyclinic.data.batches import in_order
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.losses import crf_energy, tree_filtered
from polyclinic.masks import UNLABELLED

IMAGES = 6  # of each site
MOVES = (-0.03, -0.02, 0.0, 0.02, 0.03)  # shares of the side
ALIKE = (0.02, 0.05, 0.1)  # of the CRF
TREES = (1.0, 0.5, 0.2, 0.1)

Regions = NDArray[np.bool_]


def main(folder: str, name: str, *sides: str) -> None:
    """Print a line for each resolution and setting."""
    torch.set_num_threads(1)
    for side in map(int, sides or ("96",)):
        sites = list(training_images(folder, name, side))
        for alike in ALIKE:
            rows = [energies(*site, WeakSettings(crf_alike=alike)) for site in sites]
            shown = " | ".join(f"{value:.2f}" for value in np.mean(rows, axis=0))
            print(f"| {name} {side}² | crf_alike = {alike:g} | {shown} |", flush=True)
        for alike in TREES:
            kept = [dice_of_filtered(*site, WeakSettings(tree_alike=alike)) for site in sites]
            shown = f"{100 * np.mean(kept):.0f} | {100 * min(kept):.0f}"
            print(f"| {name} {side}² | tree_alike = {alike:g} | {shown} |", flush=True)


def training_images(folder: str, name: str, side: int) -> Iterator[tuple[Tensor, Regions]]:
    """The first training images of every site, normalised, and their foreground."""
    task = TASKS[name].with_resolution(side)
    for site in load_federation(task, DataSettings(source=folder), [], splits_folder=None):
        cases = site.train.select(range(min(IMAGES, len(site.train))))
        (batch,) = in_order(cases, batch=IMAGES)
        masks = cases.masks.numpy()
        yield batch.images, (masks > 0) & (masks != UNLABELLED)


def energies(images: Tensor, true: Regions, settings: WeakSettings) -> list[float]:
    """The CRF's energy of regions moved in and out, over that of the true ones.

    What an image without any region costs is taken away: no border can change it.
    """
    side = true.shape[1]
    nothing = float(crf_energy(settings, maps(np.zeros_like(true)), images))
    found = [
        float(crf_energy(settings, maps(moved(true, move * side)), images)) - nothing
        for move in MOVES
    ]
    return [value / found[MOVES.index(0.0)] for value in found]


def dice_of_filtered(images: Tensor, true: Regions, settings: WeakSettings) -> float:
    """Mean Dice of true regions with what the image's tree makes of them."""
    filtered = tree_filtered(settings, maps(true), [images]).argmax(1).numpy() == 1
    pairs = zip(filtered, true, strict=True)
    return float(np.mean([2 * (a & b).sum() / max(1, a.sum() + b.sum()) for a, b in pairs]))


def moved(regions: Regions, pixels: float) -> Regions:
    """The regions with their borders so many pixels further out, or in where it is below 0."""
    depth: Callable[..., NDArray[np.float64]] = distance_transform_edt
    return np.stack([depth(each) - depth(~each) > -pixels for each in regions])


def maps(regions: Regions) -> Tensor:
    """Certain probabilities of background and foreground (N×2×H×W)."""
    return torch.from_numpy(np.stack([~regions, regions], 1)).float()


if __name__ == "__main__":
    main(*sys.argv[1:])
