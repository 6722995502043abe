"""Every built-in metric as a function of two masks.

Masks have one shape (2D or 3D) and are boolean or hold 0 and 1. The spacing is the size of a pixel,
one number or one per axis, and gives distances their unit. What holds for empty masks is in
[decision 007](../decisions/007-empty-masks-and-distances.md).
"""

from numpy.typing import ArrayLike

from polyclinic.evaluation import METRICS, MaskPair
from polyclinic.evaluation.mask_pair import Spacing


def dice(predicted: ArrayLike, true: ArrayLike) -> float:
    """Twice the common part over the sum of both masks: 0 to 1."""
    return METRICS["dice"].of(MaskPair(predicted, true))


def iou(predicted: ArrayLike, true: ArrayLike) -> float:
    """The common part over the union of both masks: 0 to 1."""
    return METRICS["iou"].of(MaskPair(predicted, true))


def hd(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """The largest distance between the surfaces (Hausdorff)."""
    return METRICS["hd"].of(MaskPair(predicted, true, spacing))


def hd95(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """The 95th percentile of the pooled surface distances."""
    return METRICS["hd95"].of(MaskPair(predicted, true, spacing))


def assd(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """The mean of the pooled surface distances."""
    return METRICS["assd"].of(MaskPair(predicted, true, spacing))


def nsd(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """The share of both surfaces within 2 pixels, or units of the spacing, of the other: 0 to 1."""
    return METRICS["nsd"].of(MaskPair(predicted, true, spacing))
