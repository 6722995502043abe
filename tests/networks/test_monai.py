"""Networks beside those of MONAI with the same weights, where it is installed."""

import pytest
import torch
from torch import nn

from polyclinic.networks.blocks import DoubleConvEncoder
from polyclinic.networks.classic_unet import relu
from polyclinic.networks.resnet_fpn import ResNet
from polyclinic.networks.unet_plus_plus import NestedDecoder

nets = pytest.importorskip("monai.networks.nets", reason="MONAI is not installed")


def copy_in_order(source, target):
    """Give a module the parameters of another that declares the same ones in the same order."""
    with torch.no_grad():
        for mine, other in zip(target.parameters(), source.parameters(), strict=True):
            mine.copy_(other.reshape(mine.shape))


def test_u_net_plus_plus_gives_the_same_map():
    torch.manual_seed(0)
    widths = (32, 32, 64, 128, 256)  # MONAI's own, whose finest row it does not narrow
    theirs = nets.BasicUNetPlusPlus(
        spatial_dims=2, in_channels=3, out_channels=2, act="relu", norm="batch"
    ).double()
    encoder = DoubleConvEncoder(3, widths, relu, (0.0,) * 5).double()
    decoder = NestedDecoder(widths).double()
    rows = [theirs.conv_0_0, theirs.conv_1_0, theirs.conv_2_0, theirs.conv_3_0, theirs.conv_4_0]
    for level, row in zip(encoder.levels, rows, strict=True):
        copy_in_order(row, level)
    for number, column in enumerate(decoder.columns, 1):
        for row, node in enumerate(column):
            copy_in_order(getattr(theirs, f"upcat_{row}_{number}"), node)
    images = torch.rand(2, 3, 32, 48, dtype=torch.float64)
    last = decoder(encoder(images))[-1]
    expected = theirs(images)[0]
    torch.testing.assert_close(theirs.final_conv_0_4(last), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_a_resnet_has_the_same_names_and_gives_the_same_maps(depth):
    torch.manual_seed(0)
    theirs = getattr(nets, f"resnet{depth}")(
        spatial_dims=2, n_input_channels=1, conv1_t_stride=2, bias_downsample=False
    ).double()
    theirs.fc = nn.Identity()
    ours = ResNet(1, 64, depth).double()
    state = theirs.state_dict()
    ours.load_state_dict({n: each for n, each in state.items() if "num_batches" not in n})
    images = torch.rand(2, 1, 64, 96, dtype=torch.float64)
    below = theirs.maxpool(theirs.act(theirs.bn1(theirs.conv1(images))))
    for mine, layer in zip(ours(images), ("layer1", "layer2", "layer3", "layer4"), strict=True):
        below = getattr(theirs, layer)(below)
        torch.testing.assert_close(mine, below, atol=1e-9, rtol=0)
