"""What training minimises."""

from polyclinic.losses.supervised import (
    LabelError,
    partial_cross_entropy,
    segmentation_loss,
    soft_dice,
)

__all__ = ["LabelError", "partial_cross_entropy", "segmentation_loss", "soft_dice"]
