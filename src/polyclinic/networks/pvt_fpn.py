"""A pyramid vision transformer under a feature pyramid: 5.2 million parameters at a width of 32."""

from __future__ import annotations

from polyclinic.networks.blocks import Width
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.fpn import BRANCH, FPNDecoder
from polyclinic.networks.heads import EnlargingHead
from polyclinic.networks.pvt import PVT


class PVTFPN(Segmenter):
    """PVTv2 (b0 at a width of 32, b1 at 64) with an FPN decoder and a 1×1 head."""

    name = "pvt_fpn"
    divisor = 32

    def __init__(self, *, channels: int, classes: int, width: Width = 32) -> None:
        encoder = PVT(channels, width)
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=encoder,
            decoder=FPNDecoder(encoder.widths),
            head=EnlargingHead(BRANCH, classes, 4),
        )
