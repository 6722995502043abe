"""Metrics of masks, scores of cases and their statistics; the table of metrics stands here."""

from collections.abc import Mapping

from polyclinic.evaluation.mask_pair import MaskError, MaskPair
from polyclinic.evaluation.metrics import (
    AGREE,
    APART,
    Empty,
    Metric,
    assd,
    dice,
    hd,
    hd95,
    iou,
    nsd,
)

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
