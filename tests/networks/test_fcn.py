import pytest
import torch
from torch import nn
from torch.nn import functional

from polyclinic.networks.fcn import FCN

# Places of the convolutions in public checkpoints of VGG-16 with norms: features.0, features.3 …
CONVOLUTIONS = (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_encoder_has_the_known_size_and_names():
    with torch.device("meta"):
        net = FCN(channels=3, classes=1)
    # All of VGG-16 with norms but its three layers for ImageNet's classes.
    classifier = (25_088 + 1) * 4096 + (4096 + 1) * 4096 + (4096 + 1) * 1000
    assert count(net.encoder) == 138_365_992 - classifier == 14_723_136
    layers = net.encoder.features
    assert (
        tuple(i for i, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)) == CONVOLUTIONS
    )
    assert len(layers) == 44
    # Three scores and two enlargements of 64 channels.
    assert count(net.decoder) == (256 + 512 + 512 + 3) * 64 + 2 * 64 * 64 * 16


@pytest.fixture
def net():
    torch.manual_seed(0)
    return FCN(channels=2, classes=3, width=3).double()


def test_enlargement_is_bilinear_at_first(net):
    level = net.decoder.levels[0]
    maps = torch.rand(1, 3, 4, 5, dtype=torch.float64)
    expected = functional.interpolate(maps, scale_factor=2, mode="bilinear")
    inside = (..., slice(1, -1), slice(1, -1))  # borders see noughts instead of copies
    torch.testing.assert_close(level.enlarge(maps)[inside], expected[inside], atol=1e-12, rtol=0)


def test_logits_are_the_enlarged_sum_of_three_scores(net):
    images = torch.rand(2, 2, 64, 96, dtype=torch.float64)
    maps, below = [], images
    for layer in net.encoder.features:
        if isinstance(layer, nn.Conv2d):
            below = functional.conv2d(below, layer.weight, layer.bias, padding=1)
        elif isinstance(layer, nn.BatchNorm2d):
            below = functional.batch_norm(
                below, None, None, layer.weight, layer.bias, training=True
            )
        elif isinstance(layer, nn.MaxPool2d):
            below = below.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
            maps.append(below)
        else:
            below = below.clamp(min=0)
    assert [each.shape[-1] for each in maps] == [48, 24, 12, 6, 3]
    fourth, third = net.decoder.levels
    scores = net.decoder.deepest(maps[4])
    scores = fourth.enlarge(scores) + fourth.score(maps[3])
    scores = third.enlarge(scores) + third.score(maps[2])
    expected = functional.interpolate(net.head.score(scores), scale_factor=8, mode="bilinear")
    torch.testing.assert_close(net(images), expected, atol=1e-10, rtol=0)
