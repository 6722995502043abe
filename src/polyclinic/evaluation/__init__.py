"""Metrics of masks, scores of cases and their statistics."""

from polyclinic.evaluation.mask_pair import MaskError, MaskPair
from polyclinic.evaluation.metrics import METRICS, Empty, Metric
