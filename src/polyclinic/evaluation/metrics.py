"""How well a predicted mask agrees with the true one: overlap and distances between the surfaces.

Definitions are MedPy's. A surface is made of the pixels of a mask with a direct neighbour (4 in 2D,
6 in 3D) outside it, what lies beyond the image counting as outside. Every surface pixel of either
mask has a distance to the other mask's surface; all of them are pooled, and `hd` is their maximum,
`hd95` their 95th percentile, `assd` their mean, `nsd` the share of them up to a tolerance. None
depends on which mask is called the true one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyclinic.evaluation.mask_pair import MaskPair

TOLERANCE = 2.0  # pixels or millimetres that a surface may be off


@dataclass(frozen=True)
class Empty:
    """The values of a metric where both masks are empty, and where exactly one is.

    "diagonal" is the image's, more than any two masks with content can be apart.
    """

    both: float
    one: float | Literal["diagonal"]


AGREE = Empty(both=1.0, one=0.0)
APART = Empty(both=0.0, one="diagonal")


@dataclass(frozen=True)
class Metric:
    """All there is to say about a metric; what `METRICS` holds is computed, printed and compared.

    The function sees pairs in which both masks have a pixel; `empty` answers for all others. The
    unit is empty for a share in 0–1, which tables print in per cent; else values are printed as
    they are. "px" stands for pixels, or for millimetres where the size of pixels is known.

    Most metrics are of a region of a case. One of "classes" is the mean over all classes of a
    case, background included; one of a "patient" sees a region in all slices of a patient at once.
    """

    function: Callable[[MaskPair], float]
    title: str  # what tables call it
    summary: str
    better: Literal["higher", "lower"]
    unit: str
    empty: Empty
    of_what: Literal["region", "classes", "patient"] = "region"

    def possible(self, value: float) -> bool:
        """Whether a score can be this: what has no unit is a share."""
        return bool(self.unit) or 0 <= value <= 1

    def unit_at(self, measured: Iterable[bool]) -> str:
        """The unit of scores at sites (or of cases) whose pixels have a size, or have none."""
        known = {*measured}
        if self.unit != "px" or True not in known:
            return self.unit
        return "mm or px" if False in known else "mm"

    def of(self, pair: MaskPair) -> float:
        """The value for a pair of masks."""
        with_content = sum(count > 0 for count in pair.pixels)
        if with_content == 2:
            return self.function(pair)
        if with_content == 0:
            return self.empty.both
        return pair.diagonal if self.empty.one == "diagonal" else self.empty.one


def dice(pair: MaskPair) -> float:
    """Twice the common part over the sum of both masks."""
    return 2 * pair.common / sum(pair.pixels)


def iou(pair: MaskPair) -> float:
    """The common part over the union of both masks."""
    return pair.common / (sum(pair.pixels) - pair.common)


def hd(pair: MaskPair) -> float:
    """The largest surface distance."""
    return float(pair.surface_distances[-1])


def hd95(pair: MaskPair) -> float:
    """The 95th percentile of the pooled surface distances."""
    ordered = pair.surface_distances
    # numpy.percentile gives the same, ten times slower than the sort.
    return float(np.interp(0.95 * (len(ordered) - 1), np.arange(len(ordered)), ordered))


def assd(pair: MaskPair) -> float:
    """The mean of the pooled surface distances."""
    return float(pair.surface_distances.mean())


def nsd(pair: MaskPair) -> float:
    """The share of both surfaces that lies within the tolerance of the other."""
    return float(np.mean(pair.surface_distances <= TOLERANCE))


METRICS: Mapping[str, Metric] = {
    "dice": Metric(
        dice, "Dice", "overlap: twice the common part over the sum of both", "higher", "", AGREE
    ),
    "iou": Metric(iou, "IoU", "overlap: the common part over the union", "higher", "", AGREE),
    "hd": Metric(
        hd, "HD", "largest distance between the surfaces (Hausdorff)", "lower", "px", APART
    ),
    "hd95": Metric(
        hd95, "HD95", "95th percentile of the pooled surface distances", "lower", "px", APART
    ),
    "assd": Metric(assd, "ASSD", "mean of the pooled surface distances", "lower", "px", APART),
    "nsd": Metric(
        nsd, "NSD", "share of both surfaces within 2 px or mm of the other", "higher", "", AGREE
    ),
    "miou": Metric(
        iou, "mIoU", "IoU, mean over all classes with background", "higher", "", AGREE, "classes"
    ),
    "volume_dice": Metric(
        dice, "Dice of volumes", "Dice of all slices of a patient", "higher", "", AGREE, "patient"
    ),
}
