"""What training minimises."""

from polyclinic.losses.checks import TensorError
from polyclinic.losses.gated_crf import gated_crf
from polyclinic.losses.marginal import Marginal
from polyclinic.losses.pseudo_labels import mixed_label, pseudo_dice
from polyclinic.losses.supervised import (
    LOSSES,
    LabelError,
    Loss,
    SegmentationLoss,
    segmentation_loss,
    soft_dice,
    virtual_class_loss,
)
from polyclinic.losses.tree import tree_energy, tree_filter
from polyclinic.losses.weak_terms import Seen, crf_energy, tree_filtered, weak_terms
