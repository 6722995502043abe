"""Metrics of masks, scores of cases and their statistics; the table of metrics stands here."""

from collections.abc import Mapping

from polyclinic.evaluation.metrics import (
    MaskError,
    Metric,
    all_metrics,
    assd,
    dice,
    hd,
    hd95,
    iou,
)

METRICS: Mapping[str, Metric] = {
    "dice": Metric(dice, "overlap: twice the common part over the sum of both", "higher", ""),
    "iou": Metric(iou, "overlap: the common part over the union", "higher", ""),
    "hd": Metric(hd, "largest distance between the surfaces (Hausdorff)", "lower", "px"),
    "hd95": Metric(hd95, "95th percentile of the pooled surface distances", "lower", "px"),
    "assd": Metric(assd, "mean of the pooled surface distances", "lower", "px"),
}

__all__ = [
    "METRICS",
    "MaskError",
    "Metric",
    "all_metrics",
    "assd",
    "dice",
    "hd",
    "hd95",
    "iou",
]
