"""What a camera saw of its square picture: photographs have black corners that show nothing."""

import torch
from torch import Tensor


def in_view(images: Tensor, dark: float | None) -> Tensor | None:
    """Which pixels (boolean B×H×W) of normalised images (B×C×H×W) are brighter than `dark`.

    One channel is enough. None where the task knows no darkness: then everything was seen.
    """
    return None if dark is None else images.amax(1) > dark


def background_out_of_view(probabilities: Tensor, view: Tensor | None) -> Tensor:
    """The probabilities (B×K×H×W), with certain background (class 0) where nothing was seen."""
    if view is None:
        return probabilities
    background = torch.zeros_like(probabilities)
    background[:, 0] = 1
    return torch.where(view[:, None], probabilities, background)
