import pytest
import torch
from torch.nn import functional

from polyclinic.networks.res_unet import ResUNet


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_network_has_the_papers_size_but_for_its_projections():
    net = ResUNet(channels=3, classes=1)
    projections = [module for name, module in net.named_modules() if name.endswith("project")]
    assert len(projections) == 7
    assert round((count(net) - sum(map(count, projections))) / 1e6, 1) == 7.8
    assert [count(level) for level in net.encoder.levels] == [
        39_104,
        230_144,
        919_040,
        3_673_088,
    ]
    assert [count(level) for level in net.decoder.levels] == [2_558_720, 640_384, 160_448]


def unit(module, maps, stride, first=False):
    """A residual unit with the statistics of the batch, written out."""

    def normed(norm, values):
        values = functional.batch_norm(values, None, None, norm.weight, norm.bias, training=True)
        return values.clamp(min=0)

    inner = maps if first else normed(module.norm1, maps)
    inner = functional.conv2d(inner, module.conv1.weight, module.conv1.bias, stride, padding=1)
    inner = normed(module.norm2, inner)
    inner = functional.conv2d(inner, module.conv2.weight, module.conv2.bias, padding=1)
    return inner + functional.conv2d(maps, module.project.weight, module.project.bias, stride)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return ResUNet(channels=2, classes=3, width=2).double()


def test_logits_are_those_of_the_plain_network(net):
    images = torch.rand(2, 2, 24, 32, dtype=torch.float64)
    maps = [images]
    for place, level in enumerate(net.encoder.levels):
        maps.append(unit(level, maps[-1], 1 if place == 0 else 2, first=place == 0))
    below = maps[4]
    for level, beside in zip(net.decoder.levels, (maps[3], maps[2], maps[1]), strict=True):
        up = below.repeat_interleave(2, 2).repeat_interleave(2, 3)
        below = unit(level.combine, torch.cat((beside, up), 1), 1)
    expected = functional.conv2d(below, net.head.weight, net.head.bias)
    torch.testing.assert_close(net(images), expected, atol=1e-10, rtol=0)


def test_as_many_channels_as_a_level_is_wide_change_nothing_about_the_units():
    net = ResUNet(channels=4, classes=2, width=2)
    assert [level.norm1 is None for level in net.encoder.levels] == [True, False, False, False]


def test_levels_tell_the_widths_an_attention_sees(net):
    assert [level.widths for level in net.decoder.levels] == [(16, 8), (8, 4), (4, 2)]
