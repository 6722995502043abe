"""What training minimises."""

from polyclinic.losses.checks import TensorError
from polyclinic.losses.gated_crf import Window, gated_crf
from polyclinic.losses.marginal import Marginal
from polyclinic.losses.pseudo_labels import mixed_label, pseudo_dice
from polyclinic.losses.supervised import (
    LOSSES,
    LabelError,
    Loss,
    SegmentationLoss,
    segmentation_loss,
    soft_dice,
)
from polyclinic.losses.tree import tree_energy, tree_filter
from polyclinic.losses.virtual_classes import virtual_class_loss

__all__ = [
    "LOSSES",
    "LabelError",
    "Loss",
    "Marginal",
    "SegmentationLoss",
    "TensorError",
    "Window",
    "gated_crf",
    "mixed_label",
    "pseudo_dice",
    "segmentation_loss",
    "soft_dice",
    "tree_energy",
    "tree_filter",
    "virtual_class_loss",
]
