import pytest
import torch
from torch import nn
from torch.nn import functional

from polyclinic.networks import NETWORKS
from polyclinic.networks.blocks import JoinedConv, Norm


def test_a_joined_convolution_equals_the_convolution_of_the_joined_maps():
    torch.manual_seed(0)
    conv = JoinedConv(3, 5, 4).double()
    maps = [torch.randn(2, c, 6, 7, dtype=torch.float64, requires_grad=True) for c in (3, 5)]
    inputs = [*maps, conv.weight, conv.bias]

    separate = conv(*maps)
    joined = functional.conv2d(torch.cat(maps, 1), conv.weight, conv.bias, padding=1)
    torch.testing.assert_close(separate, joined)
    toward = torch.randn_like(joined)
    for mine, other in zip(
        torch.autograd.grad(separate, inputs, toward),
        torch.autograd.grad(joined, inputs, toward),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_a_joined_convolution_has_the_weights_of_an_ordinary_one():
    torch.manual_seed(3)
    joined = JoinedConv(3, 5, 4)
    torch.manual_seed(3)
    ordinary = nn.Conv2d(8, 4, 3, padding=1)
    assert joined.state_dict().keys() == ordinary.state_dict().keys()
    assert torch.equal(joined.weight, ordinary.weight)


def test_a_norm_gives_what_batch_norm_gives_without_its_counter():
    norm, reference = Norm(3), nn.BatchNorm2d(3)
    images = torch.randn(4, 3, 5, 5)
    assert torch.equal(norm(images), reference(images))
    assert torch.equal(norm.running_var, reference.running_var)
    assert reference.state_dict().keys() - norm.state_dict().keys() == {"num_batches_tracked"}


@pytest.mark.parametrize("name", ["unet", "classic_unet"])
def test_a_level_takes_an_attention_that_sees_the_enlarged_map_first(name):
    torch.manual_seed(0)
    net = NETWORKS[name](channels=1, classes=2, width=2).eval()
    images = torch.rand(1, 1, 32, 32)
    without = net(images)
    seen = []

    class Watch(nn.Module):
        def forward(self, enlarged, beside):
            seen.append((enlarged, beside))
            return enlarged

    for level in net.decoder.levels:
        level.attention = Watch()
    assert torch.equal(net(images), without)
    features = net.encoder(images.to(memory_format=torch.channels_last))
    below = [features[-1], *net.decoder(features)]
    for level, (enlarged, beside), source, skip in zip(
        net.decoder.levels, seen, below, reversed(features[:-1]), strict=False
    ):
        assert torch.equal(enlarged, level.enlarged(source))
        assert torch.equal(beside, skip)
        assert level.widths == (enlarged.shape[1], beside.shape[1])


def test_what_an_attention_gives_takes_the_enlarged_maps_place():
    torch.manual_seed(0)
    level = NETWORKS["unet"](channels=1, classes=2, width=2).eval().decoder.levels[0]
    below, beside = torch.rand(1, 32, 2, 2), torch.rand(1, 16, 4, 4)

    class Nothing(nn.Module):
        def forward(self, enlarged, beside):
            return torch.zeros_like(enlarged)

    level.attention = Nothing()
    expected = level.combine(beside, torch.zeros(1, 16, 4, 4))
    assert torch.equal(level(below, beside), expected)
