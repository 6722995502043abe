"""Every kind of weak label out of 384² masks, against the fiftieth of a second that it may take."""

from statistics import median
from time import process_time  # of one thread, whatever else the machine does

import numpy as np

from bench import Ratio
from polyclinic.data.synthetic import draw_site, federation
from polyclinic.weak import KINDS, weaken

TASK = "fundus"  # its two nested outlines take longest
SIZE = 384
ALLOWED = 1 / 50  # seconds a mask
REPEATS = 5


def run() -> list[Ratio]:
    """Seconds per mask on one thread, compilation left out."""
    site = federation(TASK)[0].name
    masks = draw_site(TASK, site, resolution=SIZE, seed=0, size=0.1).masks[:12]
    return [measure(kind, masks) for kind in KINDS]


def measure(kind: str, masks: np.ndarray) -> Ratio:
    weaken(masks[0], kind, np.random.default_rng(0), TASK)
    seconds = median(timed(kind, masks, seed) for seed in range(REPEATS))
    return Ratio(
        name=f"weak label {kind} {SIZE}²",
        ours=seconds,
        reference=ALLOWED,
        target=1.0,
        note=f"{1 / seconds:.0f} masks/s, one thread, against 50",
    )


def timed(kind: str, masks: np.ndarray, seed: int) -> float:
    rng = np.random.default_rng(seed)
    start = process_time()
    for mask in masks:
        weaken(mask, kind, rng, TASK)
    return (process_time() - start) / len(masks)
