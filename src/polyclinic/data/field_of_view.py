"""What a camera saw of its square picture: photographs have black corners that show nothing."""

import torch
from torch import Tensor


def background_out_of_view(probabilities: Tensor, view: Tensor | None) -> Tensor:
    """The probabilities (B×K×H×W), with certain background (class 0) where nothing was seen."""
    if view is None:
        return probabilities
    background = torch.zeros_like(probabilities)
    background[:, 0] = 1
    return torch.where(view[:, None], probabilities, background)
