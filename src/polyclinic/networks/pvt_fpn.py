"""A pyramid vision transformer under a feature pyramid: 5.2 million parameters at a width of 32."""

from __future__ import annotations

from typing import Literal

from polyclinic.networks.blocks import Width
from polyclinic.networks.fpn import FPNSegmenter
from polyclinic.networks.pvt import PVT


class PVTFPN(FPNSegmenter):
    """PVTv2 with an FPN decoder and a 1×1 head.

    b0 has a width of 32 and a depth of 8 blocks, b1 a width of 64, b2 also a depth of 16.
    """

    name = "pvt_fpn"

    def __init__(
        self, *, channels: int, classes: int, width: Width = 32, depth: Literal[8, 16] = 8
    ) -> None:
        super().__init__(PVT(channels, width, depth), channels=channels, classes=classes)
