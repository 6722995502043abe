"""A head that looks again where the heads of several sites disagree (LC-Fed)."""

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d, interpolate, max_pool2d

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.gated_segmenter import GatedSegmenter, Pooling
from polyclinic.networks.widening import smallest_maps

Attention = Literal["peaks", "plain"]
PEERS, CALIBRATION = "peers", "calibration"  # parts of the network
ROWS, TRAINED = f"{PEERS}.rows", f"{CALIBRATION}.trained"
WINDOW, SPREAD = 31, 6.0  # pixels: side of the window, deviation of the Gaussian in it
LEAST = 0.2  # of the largest disagreement, below which there is none


class PeerHeads(nn.Module):
    """The weights of all other sites' heads, a row for each, which no site trains."""

    rows: Tensor

    def __init__(self, head: nn.Module, others: int) -> None:
        super().__init__()
        self.shapes = {name: head.state_dict()[name].shape for name in sorted(head.state_dict())}
        row = as_row(head.state_dict()).detach()
        self.register_buffer("rows", row.expand(others, -1).clone())

    def each(self) -> list[dict[str, Tensor]]:
        """The weights of one head after the other, by the names that the head has for them."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        return [
            {
                name: piece.view(shape)
                for (name, shape), piece in zip(self.shapes.items(), row.split(sizes), strict=True)
            }
            for row in self.rows
        ]


class HeadCalibration(nn.Module):
    """For each class a convolution of the features, raised where heads disagree and where it is.

    It is used once it is `trained`; until then the plain head predicts.
    """

    trained: Tensor

    def __init__(self, channels: int, classes: int, kernel: int, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.combine = nn.Conv2d(
            2 * channels * classes, classes, kernel, padding=kernel // 2, groups=classes
        )
        self.register_buffer("trained", torch.zeros(()))

    def forward(self, features: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """Give logits from features (B×F×h×w), own (B×K×H×W) and others' (S×B×K×H×W) maps."""
        apart = disagreement(own, others)
        if self.attention == "peaks":
            apart = blurred(peaks(apart), peak=True).clamp(max=1)
        looks = [_in_size_of(features, each) for each in (apart, blurred(own, peak=False))]
        raised = [features[:, None] * look[:, :, None] + features[:, None] for look in looks]
        logits = self.combine(torch.cat(raised, 2).flatten(1, 2))
        return interpolate(logits, own.shape[2:], mode="bilinear", align_corners=False)


class CalibratedSegmenter(GatedSegmenter):
    """A network with a site's gate, its calibration and the other sites' heads."""

    def __init__(
        self,
        net: Segmenter,
        *,
        sites: int,
        pooling: Pooling | None,
        kernel: int,
        attention: Attention,
    ) -> None:
        super().__init__(net, sites=sites, pooling=pooling, projected=False)
        width = smallest_maps(net)[1][-1].shape[1]
        self.calibration = HeadCalibration(width, net.classes, kernel, attention)
        self.peers = PeerHeads(net.head, sites - 1)

    def forward(self, images: Tensor) -> Tensor:
        """Give the head's logits or, once calibrated, those after calibration."""
        seen = self.look(images)
        if torch.compiler.is_exporting():  # a graph cannot ask for a value, so it holds both
            calibrated = self.calibrated(seen.maps[-1], seen.logits)
            return torch.where(self.calibration.trained > 0, calibrated, seen.logits)
        if not self.calibration.trained:
            return seen.logits
        return self.calibrated(seen.maps[-1], seen.logits)

    def calibrated(self, features: Tensor, logits: Tensor) -> Tensor:
        """Give the logits after calibration, from the head's features and its own logits."""
        own = logits.softmax(1)
        heads = self.peers.each()
        others = [functional_call(self.head, head, (features,)).softmax(1) for head in heads]
        stacked = torch.stack(others) if others else own.new_zeros(0, *own.shape)
        return cast(Tensor, self.calibration(features, own, stacked))

    def rest_below(self) -> None:
        """Let everything but the calibration work as when predicting."""
        for name, module in self.named_children():
            if name != CALIBRATION:
                module.eval()


def as_row(head: Mapping[str, Tensor]) -> Tensor:
    """Give a head's weights one behind the other, in the order of their names."""
    return torch.cat([head[name].flatten() for name in sorted(head)])


def disagreement(own: Tensor, others: Tensor) -> Tensor:
    """Give how far others' maps (S×B×K×H×W) are from one's own, 1 where farthest in its map.

    It is the root of the mean squared distance; 0 everywhere where all agree or nobody else is.
    """
    if not len(others):
        return torch.zeros_like(own)
    squared = (others - own).square().mean(0)
    largest = squared.amax((2, 3), keepdim=True)
    share = squared / torch.where(largest > 0, largest, torch.ones_like(largest))
    # The slope of a root has no end at 0: there the map is 0, and so is its gradient.
    return torch.where(share > 0, share, torch.ones_like(share)).sqrt() * (share > 0)


def peaks(maps: Tensor) -> Tensor:
    """Give the maps where they are highest within a window and not low, and 0 elsewhere."""
    highest = max_pool2d(maps, WINDOW, stride=1, padding=WINDOW // 2)
    return maps * ((maps == highest) & (maps > LEAST))


def blurred(maps: Tensor, *, peak: bool) -> Tensor:
    """Give the maps under a Gaussian whose peak is 1, or whose sum is."""
    places = torch.arange(WINDOW, dtype=maps.dtype, device=maps.device) - WINDOW // 2
    line = (-places.square() / (2 * SPREAD**2)).exp()
    line = line if peak else line / line.sum()
    planes = maps.flatten(0, 1)[:, None]
    rows = conv2d(planes, line.view(1, 1, -1, 1), padding=(WINDOW // 2, 0))
    return conv2d(rows, line.view(1, 1, 1, -1), padding=(0, WINDOW // 2)).view(maps.shape)


def _in_size_of(features: Tensor, maps: Tensor) -> Tensor:
    if maps.shape[2:] == features.shape[2:]:
        return maps
    return interpolate(maps, features.shape[2:], mode="area")
