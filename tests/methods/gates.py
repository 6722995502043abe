"""Gates that tests put into networks."""

import torch

from polyclinic.networks.gated_segmenter import SiteGate


class Closed(torch.nn.Module):
    def __init__(self, gate: SiteGate) -> None:
        super().__init__()
        self.embed, self.weigh, self.pooling = gate.embed, gate.weigh, gate.pooling
        self.register_buffer("code", gate.code)

    def forward(self, maps):
        return SiteGate.forward(self, maps) * 0

    _gates = SiteGate._gates
