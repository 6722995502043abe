import pytest
import torch
from torch import nn
from torch.nn import functional

from polyclinic.networks.parts import norms, statistics
from polyclinic.networks.resnet_fpn import ResNet, ResNetFPN


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def checkpoint_shapes(channels=3):
    """Names and shapes of public checkpoints of ResNet-18, without classifier and counters."""
    shapes = {"conv1.weight": (64, channels, 7, 7)}

    def norm(name, width):
        shapes.update({f"{name}.{leaf}": (width,) for leaf in ("weight", "bias")})
        shapes.update({f"{name}.running_{leaf}": (width,) for leaf in ("mean", "var")})

    norm("bn1", 64)
    inputs = 64
    for layer, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            first = inputs if block == 0 else width
            shapes[f"{name}.conv1.weight"] = (width, first, 3, 3)
            norm(f"{name}.bn1", width)
            shapes[f"{name}.conv2.weight"] = (width, width, 3, 3)
            norm(f"{name}.bn2", width)
        if layer > 1:
            shapes[f"layer{layer}.0.downsample.0.weight"] = (width, inputs, 1, 1)
            norm(f"layer{layer}.0.downsample.1", width)
        inputs = width
    return shapes


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    return ResNet(3, 64).double()


def test_the_encoder_has_the_known_size():
    net = ResNetFPN(channels=3, classes=1)
    assert count(net.encoder) == 11_176_512
    # As the transformer's, with other widths to read.
    assert count(net.decoder) == 1_755_904 + (64 + 128 + 256 + 512 - 32 - 64 - 160 - 256) * 256


@pytest.mark.parametrize(("depth", "size"), [(34, 21_284_672), (50, 23_508_032)])
def test_deeper_encoders_have_the_published_size(depth, size):
    with torch.device("meta"):
        assert count(ResNet(3, 64, depth)) == size


def test_names_and_shapes_are_those_of_public_checkpoints(encoder):
    shapes = {name: tuple(each.shape) for name, each in encoder.state_dict().items()}
    assert shapes == checkpoint_shapes()


def test_every_norm_is_a_part(encoder):
    assert len(norms(encoder)) == 20 * 4
    assert len(statistics(encoder)) == 20 * 2


def plain(state, images):
    """ResNet-18 written out, with the statistics of the batch."""

    def step(maps, conv, norm, stride, padding):
        maps = functional.conv2d(maps, state[f"{conv}.weight"], None, stride, padding)
        mean, spread = maps.mean((0, 2, 3)), maps.var((0, 2, 3), correction=0)
        maps = (maps - mean[:, None, None]) / (spread + 1e-5).sqrt()[:, None, None]
        weight, bias = state[f"{norm}.weight"], state[f"{norm}.bias"]
        return maps * weight[:, None, None] + bias[:, None, None]

    below = step(images, "conv1", "bn1", 2, 3).clamp(min=0)
    below = nn.MaxPool2d(3, 2, 1)(below)
    maps = []
    for layer in range(1, 5):
        for block in range(2):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = step(below, f"{name}.conv1", f"{name}.bn1", stride, 1).clamp(min=0)
            inner = step(inner, f"{name}.conv2", f"{name}.bn2", 1, 1)
            if stride == 2:
                below = step(below, f"{name}.downsample.0", f"{name}.downsample.1", 2, 0)
            below = (below + inner).clamp(min=0)
        maps.append(below)
    return maps


def test_maps_are_those_of_the_plain_network(encoder):
    images = torch.rand(2, 3, 64, 96, dtype=torch.float64)
    ours = encoder.train()(images.to(memory_format=torch.channels_last))
    for mine, other in zip(ours, plain(encoder.state_dict(), images), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-9, rtol=0)


def test_maps_have_the_known_shapes():
    with torch.device("meta"):
        maps = ResNet(1, 64).eval()(torch.empty(1, 1, 384, 384))
    assert [tuple(each.shape[1:]) for each in maps] == [
        (64, 96, 96),
        (128, 48, 48),
        (256, 24, 24),
        (512, 12, 12),
    ]
