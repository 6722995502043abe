"""Views of images: random crops, flips and shifts of colour of a whole batch on its device."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

DRAWS = 9  # random numbers for each image, whatever is switched on


@dataclass(frozen=True)
class Views:
    """How much a view may differ from its image.

    It shows at least the `smallest` share of the area, enlarged; brightness and contrast change by
    up to `colour`, and with them the saturation of colour images and the gamma of grey ones. Half
    of the colour images are blurred, by a Gaussian of up to `blur` pixels.
    """

    smallest: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Smallest share of the area that a view shows."""
    flips: bool = True
    """Mirror views at random."""
    colour: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Largest change of brightness, contrast and saturation (gamma in grey images)."""
    blur: Annotated[float, Field(ge=0)] = 2.0
    """Largest blur in pixels, for half of the colour images."""

    @torch.no_grad()
    def draw(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """One view of each of B×C×H×W images; everything random comes from `rng`, on the CPU."""
        # Mixed precision would round the places that pixels are taken from.
        with torch.autocast(images.device.type, enabled=False):
            return self._drawn(images, rng)

    def _drawn(self, images: Tensor, rng: torch.Generator) -> Tensor:
        draws = torch.rand(DRAWS, len(images), generator=rng).to(images.device)
        view = self._cropped(images, draws[:5])
        if self.colour:
            view = self._recoloured(view, draws[5:8].view(3, -1, 1, 1, 1) * 2 - 1)
        if self.blur and images.shape[1] == 3:
            # One draw says both whether (its upper half) and how much.
            view = blurred(view, self.blur * (draws[8] * 2 - 1).clamp(min=0))
        return view.contiguous(memory_format=torch.channels_last)

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        side = (self.smallest + (1 - self.smallest) * draws[0]).sqrt()
        room = 1 - side
        maps = torch.zeros(len(images), 2, 3, device=images.device)
        for axis, (place, flip) in enumerate(((draws[1], draws[2]), (draws[3], draws[4]))):
            maps[:, axis, axis] = side * (1 - 2 * (flip < 0.5).float() * self.flips)
            maps[:, axis, 2] = room * (2 * place - 1)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        return grid_sample(images, grid, padding_mode="border", align_corners=False)

    def _recoloured(self, view: Tensor, draws: Tensor) -> Tensor:
        """Contrast, brightness, then saturation or gamma, whatever the scale of the values is."""
        contrast, brightness, third = draws * self.colour
        mean, deviation = (
            fact(view, dim=(1, 2, 3), keepdim=True) for fact in (torch.mean, torch.std)
        )
        view = mean + (view - mean) * (1 + contrast) + brightness * deviation
        if view.shape[1] == 3:
            grey = view.mean(dim=1, keepdim=True)
            return grey + (view - grey) * (1 + third)
        low, high = (fact(view, dim=(1, 2, 3), keepdim=True) for fact in (torch.amin, torch.amax))
        span = (high - low).clamp(min=1e-6)
        return low + ((view - low) / span).clamp(0, 1) ** third.exp() * span


def blurred(images: Tensor, deviations: Tensor) -> Tensor:
    """The images (B×C×H×W), each blurred by a Gaussian of its own deviation in pixels."""
    count, channels, *size = images.shape
    radius = min(math.ceil(2 * float(deviations.max())), min(size) - 1)
    if not radius:
        return images
    taps = torch.arange(-radius, radius + 1, device=images.device)
    kernels = torch.exp(-0.5 * (taps / deviations.clamp(min=1e-3)[:, None]) ** 2)
    kernels = (kernels / kernels.sum(1, keepdim=True)).repeat_interleave(channels, dim=0)
    # Every channel of every image is a channel of one image, so that each has its own kernel.
    planes = images.reshape(1, count * channels, *size)
    planes = pad(planes, (radius,) * 4, mode="reflect")
    planes = conv2d(planes, kernels[:, None, :, None], groups=count * channels)
    planes = conv2d(planes, kernels[:, None, None, :], groups=count * channels)
    return planes.view(count, channels, *size)
