"""Tree filter and tree energy: pseudo labels that follow the borders of an image and of features.

A filtered value is the mean of all values of its image, weighted by the product of the edge
similarities exp(−d²/sigma) along the path in the guide's minimum spanning tree, where d is the
distance of two neighbours' guide vectors. Trees and sums are compiled code on the CPU; tensors of
other devices travel there and back.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyclinic.losses import tree_kernels
from polyclinic.losses.checks import (
    image_mistakes,
    map_mistakes,
    pixel_mistakes,
    positive_mistakes,
    refuse,
)
from polyclinic.losses.host import accuracy, each_image, on_host
from polyclinic.losses.spanning_tree import grow


def tree_energy(
    probabilities: Tensor,
    image: Tensor,
    guides: Sequence[Tensor],
    unlabelled: Tensor,
    sigma_low: float = 0.02,
    sigma_high: float = 1.0,
) -> Tensor:
    """Give how far probabilities are from their filtered selves, a mean over unlabelled pixels.

    Probabilities (N×K×H×W) are filtered on the tree of the image (N×C×H×W), the result on the tree
    of the first guide (N×C'×H×W), and so on; absolute differences are summed over the classes and
    divided by the number of unlabelled pixels (boolean N×H×W): 0 where there are none. Gradients
    reach the probabilities, on both sides of the difference, and the guides. What a diverged
    network makes NaN gives NaN; an image with NaN is refused.
    """
    maps = {f"guide {number}": guide for number, guide in enumerate(guides, 1)}
    refuse(
        "tree_energy",
        (
            *map_mistakes(probabilities=probabilities, image=image, **maps),
            *pixel_mistakes("unlabelled", unlabelled, probabilities),
            *image_mistakes(image),
            *positive_mistakes(sigma_low=sigma_low, sigma_high=sigma_high),
        ),
    )
    filtered = tree_filter(probabilities, image.detach(), sigma_low)
    for guide in guides:
        filtered = tree_filter(filtered, guide, sigma_high)
    differences = (probabilities - filtered).abs().sum(1)
    return (differences * unlabelled).sum() / unlabelled.sum().clamp(min=1)


def tree_filter(values: Tensor, guide: Tensor, sigma: float) -> Tensor:
    """Give the values (N×K×H×W) averaged along the minimum spanning tree of a guide (N×C×H×W).

    Gradients reach the values and, through the weights of the edges but not their choice, the
    guide. Among edges of equal weight the vertical ones come first, each kind in reading order.
    """
    precision = accuracy(values, guide)
    filtered: Tensor = _TreeFilter.apply(  # type: ignore[no-untyped-call]
        values.to(precision), guide.to(precision), sigma
    )
    return filtered


class _TreeFilter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, guide: Tensor, sigma: float) -> Tensor:
        own, tree = on_host(values), _tree(on_host(guide), sigma)
        filtered = torch.empty_like(own)
        each_image(tree_kernels.average, *tree, own.flatten(2), filtered.flatten(2))
        # The sums are made again in backward: cheaper than keeping them in memory.
        ctx.save_for_backward(values, guide, *tree)
        ctx.sigma = sigma
        return filtered.to(values.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, guide, *tree = ctx.saved_tensors
        gradient = on_host(gradients[0])
        on_values, on_guide = torch.empty_like(gradient), None
        if ctx.needs_input_grad[1]:
            on_guide = _on_guide(
                tree, on_host(values), on_host(guide), gradient, on_values, ctx.sigma
            ).to(guide.device)
        else:
            each_image(
                tree_kernels.values_gradient, *tree, gradient.flatten(2), on_values.flatten(2)
            )
        return on_values.to(values.device), on_guide, None


def _tree(guide: Tensor, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Each image's tree in breadth-first order: pixels, positions of parents, edge weights."""
    shape = batch, pixels = len(guide), guide[0, 0].numel()
    order, parent = torch.empty(2, *shape, dtype=torch.int32)
    cost = guide.new_empty(shape)
    costs = guide.new_empty(batch, 2 * pixels)
    bits = costs.view(torch.int64 if costs.itemsize == 8 else torch.int32)
    each_image(grow, guide, costs, bits, order, parent, cost)
    return order, parent, cost.div_(-sigma).exp_()


def _on_guide(
    tree: Sequence[Tensor],
    values: Tensor,
    guide: Tensor,
    gradient: Tensor,
    on_values: Tensor,
    sigma: float,
) -> Tensor:
    """The gradient with respect to the guide; that with respect to the values is filled in."""
    order, parent, weight = tree
    on_cost, on_guide = torch.empty_like(weight), torch.empty_like(guide)
    maps = (each.flatten(2) for each in (values, gradient, on_values))
    each_image(tree_kernels.gradients, *tree, *maps, on_cost)
    on_cost.mul_(weight).div_(-sigma)
    maps = (each.flatten(2) for each in (guide, on_guide))
    each_image(tree_kernels.guide_gradient, order, parent, on_cost, *maps)
    return on_guide
