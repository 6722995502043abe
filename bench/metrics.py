"""All five metrics of a pair of masks, and each alone, against MedPy's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from medpy.metric import binary
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from bench import Ratio, interleaved
from polyclinic.evaluation.scoring import all_metrics

SIZE = 384
PAIRS = 6
TARGET = 20.0
MEDPY = {
    "dice": binary.dc,
    "iou": binary.jc,
    "hd": binary.hd,
    "hd95": binary.hd95,
    "assd": binary.assd,
}

Mask = NDArray[np.bool_]


def run() -> list[Ratio]:
    """Seconds per pair of 384² masks on one thread, compilation left out."""
    pairs = [blob_pair(seed) for seed in range(PAIRS)]
    together = measure(
        "all five metrics", partial(all_metrics, names=tuple(MEDPY)), medpy_metrics, pairs
    )
    alone = [
        measure(name, partial(all_metrics, names=(name,)), MEDPY[name], pairs) for name in MEDPY
    ]
    return [together, *alone]


def measure(
    name: str,
    ours: Callable[..., Any],
    reference: Callable[..., Any],
    pairs: list[tuple[Mask, Mask]],
) -> Ratio:
    seconds = interleaved(
        {
            "ours": lambda: [ours(*pair) for pair in pairs],
            "reference": lambda: [reference(*pair) for pair in pairs],
        }
    )
    return Ratio(
        name=name,
        ours=seconds["ours"] / len(pairs),
        reference=seconds["reference"] / len(pairs),
        target=TARGET if ours is all_metrics else None,
        note=f"{SIZE}² binary masks, MedPy, one thread",
    )


def medpy_metrics(predicted: Mask, true: Mask) -> dict[str, float]:
    return {name: function(predicted, true) for name, function in MEDPY.items()}


def blob_pair(seed: int) -> tuple[Mask, Mask]:
    """A lobed blob of 10–40 % of the image's width, and a prediction of it with a wavy outline."""
    rng = np.random.default_rng(seed)
    radius, middle = rng.uniform(0.05, 0.2) * SIZE, rng.uniform(0.4, 0.6, 2) * SIZE
    down, right = np.mgrid[:SIZE, :SIZE] - middle[:, None, None]
    angle, lobes = np.arctan2(down, right), rng.normal(0, 0.08, 6)
    outline = 1 + sum(lobe * np.cos((n + 2) * angle + n) for n, lobe in enumerate(lobes))
    true = np.hypot(down, right) < radius * outline
    waves = gaussian_filter(rng.normal(size=true.shape), 10)
    predicted = gaussian_filter(true.astype(float), 6) + 0.1 * waves / waves.std() > 0.5
    return predicted, true
