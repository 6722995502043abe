"""Box tightness: an object meets every line that runs through its box along one of its sides.

Boxes are read from labels, where these tell them: as the tightest boxes around what is labelled,
so that they turn with a turned image.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from polyclinic.weak import KINDS
from polyclinic.weak.boxes import Box, turned_box
from polyclinic.weak.regions import parts

FULL = 0.6  # the least share of its box that a labelled core fills: others were drawn otherwise
SURE = 0.9  # the share of a box whose lines count: a small core tells its edges only roughly


def box_tightness(probabilities: Tensor, labels: Tensor, kind: str) -> Tensor:
    """Give the mean over lines of 1 − the largest probability (N×K×H×W) of the box's class there.

    Lines are a pixel wide and run along both sides of each box that labels (bytes, N×H×W) of this
    kind tell: 0 where there is none. Boxes that the image's border may have cut do not count.
    """
    core = KINDS[kind].core if kind in KINDS else None
    missed = []
    for image, label in zip(probabilities, labels.cpu().numpy(), strict=True):
        for box in told_boxes(label, core) if core else ():
            missed += [1 - each for each in _largest(image[box.number], box)]
    return torch.cat(missed).mean() if missed else probabilities.new_zeros(())


def told_boxes(label: np.ndarray, core: float) -> Iterator[Box]:
    """The boxes of a label (H×W) in which this share of a box's sides is labelled as object."""
    inside = (slice(1, -1), slice(1, -1))
    for number in np.unique(label[(label > 0) & (label < 255)]).tolist():
        region = label == number
        cut = region.copy()
        cut[inside] = False
        for window, part in parts(region, several=True):
            box = turned_box(number, window, part)
            fill = part.sum() / (box.height * box.width)
            if fill >= FULL and not cut[window][part].any():
                # A turned core has jagged sides, so its tightest box is too large by its corners.
                larger = np.sqrt(fill) / core
                yield replace(box, height=box.height * larger, width=box.width * larger)


def _largest(probability: Tensor, box: Box) -> Iterator[Tensor]:
    """The largest probabilities (H×W) on the lines along the one side, then along the other."""
    down, right = box.places(tuple(probability.shape))
    sizes = (SURE * box.height / 2, SURE * box.width / 2)
    places = [torch.from_numpy(each).to(probability.device) for each in (down, right)]
    within = (places[0].abs() <= sizes[0]) & (places[1].abs() <= sizes[1])
    values = probability[within]
    for place, half in zip(places, sizes, strict=True):
        lines = (place[within] + half).floor().long()
        if len(lines):
            largest = values.new_zeros(int(lines.max()) + 1)
            met = torch.zeros_like(largest, dtype=torch.bool).index_fill_(0, lines, value=True)
            yield largest.scatter_reduce(0, lines, values, "amax")[met]
