from itertools import product

import pytest
import torch

from polyclinic import losses

SHAPES = [(1, 1), (1, 8), (8, 1), (2, 2), (16, 16)]
LOSSES = {
    "segmentation_loss": lambda logits, image, label: losses.segmentation_loss(logits, label),
    "soft_dice": lambda logits, image, label: losses.soft_dice(logits.softmax(1), label),
    "gated_crf": lambda logits, image, label: losses.gated_crf(logits.softmax(1), image),
    "masked gated_crf": lambda logits, image, label: losses.gated_crf(
        logits.softmax(1), image, mask=label == 255
    ),
    "tree_energy": lambda logits, image, label: losses.tree_energy(
        logits.softmax(1), image, [logits], label == 255
    ),
    "pseudo_dice": lambda logits, image, label: losses.pseudo_dice(
        logits.softmax(1), logits.flip(1).softmax(1)
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_loss_and_gradient_is_finite(loss, shape):
    for grey, labelled in product((None, 0.0, 0.7), (0.0, 0.5, 1.0)):
        value, slopes = loss_and_gradient(loss, shape, grey, labelled)
        assert value.isfinite(), (grey, labelled)
        assert slopes.isfinite().all(), (grey, labelled)


def loss_and_gradient(loss, shape, grey, labelled):
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, *shape, generator=rng).requires_grad_()
    image = torch.rand(2, 1, *shape, generator=rng)
    if grey is not None:
        image.fill_(grey)
    label = torch.randint(0, 3, (2, *shape), generator=rng, dtype=torch.uint8)
    label[torch.rand(label.shape, generator=rng) >= labelled] = 255
    value = LOSSES[loss](logits, image, label)
    value.backward()
    return value, logits.grad
