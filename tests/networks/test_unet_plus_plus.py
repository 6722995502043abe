import pytest
import torch
from torch.nn import functional

from polyclinic.networks.parts import norms, parameters
from polyclinic.networks.unet_plus_plus import UNetPlusPlus


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_network_has_the_papers_size_but_for_its_norms():
    net = UNetPlusPlus(channels=3, classes=1)
    state = net.state_dict()
    of_norms = sum(state[name].numel() for name in norms(net) & parameters(net))
    assert count(net) - of_norms == 9_042_177  # "9.04 M"
    assert count(net.encoder) == 4_716_192


def test_columns_grow_shorter():
    columns = UNetPlusPlus(channels=1, classes=2, width=2).decoder.columns
    assert [len(column) for column in columns] == [4, 3, 2, 1]


def double(block, maps):
    """Two convolutions with the statistics of the batch, written out."""
    for conv, norm in ((block.conv1, block.norm1), (block.conv2, block.norm2)):
        maps = functional.conv2d(maps, conv.weight, conv.bias, padding=1)
        maps = functional.batch_norm(maps, None, None, norm.weight, norm.bias, training=True)
        maps = maps.clamp(min=0)
    return maps


def plain(net, images):
    """The nodes one by one, by their places in the paper's figure: X[row, column]."""
    x, below = {}, images
    for row, block in enumerate(net.encoder.levels):
        x[row, 0] = double(block, below)
        below = functional.max_pool2d(x[row, 0], 2)
    for column in range(1, 5):
        for row in range(5 - column):
            node = net.decoder.columns[column - 1][row]
            enlarge = node.enlarge
            up = functional.conv_transpose2d(
                x[row + 1, column - 1], enlarge.weight, enlarge.bias, stride=2
            )
            before = [x[row, each] for each in range(column)]
            x[row, column] = double(node.combine, torch.cat([*before, up], 1))
    return x


@pytest.fixture
def net():
    torch.manual_seed(0)
    return UNetPlusPlus(channels=2, classes=3, width=3).double()


def test_maps_are_those_of_the_papers_figure(net):
    images = torch.rand(2, 2, 32, 48, dtype=torch.float64)
    x = plain(net, images)
    features = net.encoder(images)
    for row, each in enumerate(features):
        torch.testing.assert_close(each, x[row, 0], atol=1e-10, rtol=0)
    maps = net.decoder(features)
    for mine, place in zip(maps, ((3, 1), (2, 2), (1, 3), (0, 4)), strict=True):
        torch.testing.assert_close(mine, x[place], atol=1e-10, rtol=0)
    head = functional.conv2d(x[0, 4], net.head.weight, net.head.bias)
    torch.testing.assert_close(net(images), head, atol=1e-10, rtol=0)


def test_a_node_takes_an_attention(net):
    node = net.decoder.columns[3][0]
    assert node.widths == (3, 12)
    images = torch.rand(2, 2, 16, 16, dtype=torch.float64)
    before = net(images)
    node.attention = torch.nn.Module()
    node.attention.forward = lambda enlarged, beside: 0 * enlarged + beside.mean()
    assert not torch.allclose(net(images), before)
