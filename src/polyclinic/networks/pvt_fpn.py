"""A pyramid vision transformer under a feature pyramid: 5.2 million parameters at a width of 32."""

from __future__ import annotations

from polyclinic.networks.blocks import Width
from polyclinic.networks.fpn import FPNSegmenter
from polyclinic.networks.pvt import PVT


class PVTFPN(FPNSegmenter):
    """PVTv2 (b0 at a width of 32, b1 at 64) with an FPN decoder and a 1×1 head."""

    name = "pvt_fpn"

    def __init__(self, *, channels: int, classes: int, width: Width = 32) -> None:
        super().__init__(PVT(channels, width), channels=channels, classes=classes)
