"""Segmentation networks: `NETWORKS[name](channels=…, classes=…)` makes one."""

from collections.abc import Callable

from polyclinic.networks.classic_unet import ClassicUNet
from polyclinic.networks.contract import ImageError, Segmenter
from polyclinic.networks.parts import (
    EmptySelection,
    Names,
    PartError,
    everything,
    nonempty,
    norms,
    of_type,
    parameters,
    part,
    statistics,
    under,
)
from polyclinic.networks.unet import UNet

NETWORKS: dict[str, Callable[..., Segmenter]] = {
    UNet.name: UNet,
    ClassicUNet.name: ClassicUNet,
}

__all__ = [
    "NETWORKS",
    "ClassicUNet",
    "EmptySelection",
    "ImageError",
    "Names",
    "PartError",
    "Segmenter",
    "UNet",
    "everything",
    "nonempty",
    "norms",
    "of_type",
    "parameters",
    "part",
    "statistics",
    "under",
]
