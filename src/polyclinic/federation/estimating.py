"""What norm layers receive, measured on a site's training images: no labels, no augmentation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from polyclinic.data.batches import spread_out
from polyclinic.data.tiling import tile_places
from polyclinic.federation.message import Message
from polyclinic.federation.site import Site
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import BATCH_NORMS, nonempty, statistics

if TYPE_CHECKING:
    from polyclinic.federation.method import Method, Stage


@dataclass
class Moments:
    """Count, mean and mean square deviation of each channel, pooled batch by batch exactly."""

    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    variance: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def add(self, maps: Tensor) -> None:
        """Take in maps (B×C×…)."""
        others = [axis for axis in range(maps.dim()) if axis != 1]
        variance, mean = torch.var_mean(maps.float(), others, correction=0)
        variance, mean = variance.double(), mean.double()
        more = maps.numel() // maps.shape[1]
        share = more / (self.count + more)
        apart = mean - self.mean
        between = (1 - share) * apart.square()
        self.variance = self.variance + share * (variance - self.variance + between)
        self.mean = self.mean + share * apart
        self.count += more


@torch.no_grad()
def input_moments(method: "Method", site: Site, *, by_batch: bool) -> dict[str, Moments]:
    """The moments of what each BatchNorm layer receives while the site predicts its train images.

    With `by_batch` layers normalise each batch by itself, as in training, and so move their running
    statistics; else they use these and leave them. Layers that a prediction does not reach have
    none. The order of the images is fixed, so the same weights give the same moments.
    """
    found: dict[str, Moments] = {}
    site.net.eval()
    with _listening(site.net, found, train=by_batch):
        for batch in spread_out(site.data.train, batch=site.training.batch, device=site.device):
            for rows, columns in tile_places(batch.images.shape[-1], site.task.tile, 0):
                method.predict(site, batch.images[..., rows, columns])
    site.net.eval()
    return found


def reestimate(method: "Method", site: Site) -> None:
    """Compute the running statistics of the model in use anew from the site's training images."""
    for path, moments in input_moments(method, site, by_batch=True).items():
        unbiased = moments.variance * moments.count / max(moments.count - 1, 1)
        site.load({f"{path}.running_mean": moments.mean, f"{path}.running_var": unbiased})


def reestimating(method: "Method", stage: "Stage") -> "Stage":
    """The stage with the statistics of the model in use estimated anew behind its work."""

    def work(site: Site) -> Message:
        reply = stage.work(site)
        with method.in_use(site):
            reestimate(method, site)
        return reply

    return replace(stage, work=work, check=refuse_without_statistics)


def refuse_without_statistics(net: Segmenter) -> None:
    """Raise an error where a network has no statistics to estimate."""
    nonempty(
        statistics(net),
        net,
        "sites are to estimate the running statistics of BatchNorm layers anew",
        "take a network with such layers (unet, resnet_fpn), or leave out reestimate and "
        'federation.statistics = "estimated"',
    )


@contextmanager
def _listening(net: nn.Module, found: dict[str, Moments], *, train: bool) -> Iterator[None]:
    """While open, every BatchNorm layer's inputs are added to what was found."""

    def listen(path: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def hear(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found.setdefault(path, Moments()).add(inputs[0])

        return module.train(train).register_forward_pre_hook(hear)

    norms = [(p, m) for p, m in net.named_modules() if isinstance(m, BATCH_NORMS)]
    handles = [listen(path, module) for path, module in norms]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
