import math

import pytest
import torch
from torch.nn import functional

from polyclinic.losses import segmentation_loss, virtual_class_loss


def logits(classes=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, classes, 4, 5, dtype=dtype, generator=generator)


def test_it_is_the_cross_entropy_against_each_pixels_own_largest_logit():
    values = logits().requires_grad_()
    expected = functional.cross_entropy(values, values.argmax(1))
    loss = virtual_class_loss(values)
    torch.testing.assert_close(loss, expected)
    (mine,) = torch.autograd.grad(loss, values)
    (theirs,) = torch.autograd.grad(expected, values)
    torch.testing.assert_close(mine, theirs)


def test_it_is_the_log_of_the_number_of_classes_at_worst_and_nought_with_one():
    assert virtual_class_loss(torch.zeros(1, 12, 3, 3)).item() == pytest.approx(math.log(12))
    assert virtual_class_loss(logits(classes=1)) == 0


def test_cosines_need_a_scale_to_cost_little():
    angles = torch.linspace(0, 1, 1001, dtype=torch.float64)  # away from all other kernels at once
    others = -(angles.sin() / math.sqrt(11)).expand(11, -1)
    directions = torch.cat((angles.cos()[None], others)).T[:, :, None, None]
    torch.testing.assert_close(directions.norm(dim=1), torch.ones(1001, 1, 1).double())
    for scale, least in ((1, 1.583), (5, 0.0576), (10, 0.00032)):
        best = min(virtual_class_loss(scale * each[None]).item() for each in directions)
        assert best == pytest.approx(least, rel=0.01)


def test_short_numbers_are_summed_in_long_ones():
    assert virtual_class_loss(logits(dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, 2.0])
def test_the_weight_counts_for_the_cross_entropy_alone(weight):
    values, labels = logits(classes=3), torch.randint(0, 3, (2, 4, 5), dtype=torch.uint8)
    entropy = functional.cross_entropy(values, labels.long())
    dice = segmentation_loss(values, labels, kind="dice")
    both = segmentation_loss(values, labels, kind="ce+dice", entropy_weight=weight)
    torch.testing.assert_close(both, weight * entropy + dice)
    alone = segmentation_loss(values, labels, kind="dice", entropy_weight=weight)
    assert torch.equal(alone, dice)
