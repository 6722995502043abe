import pytest
import torch
from bench.step import PlainUNet, plain_loss
from torch import nn

from polyclinic.losses import segmentation_loss
from polyclinic.networks.classic_unet import ClassicUNet
from polyclinic.networks.parts import norms, parameters
from polyclinic.networks.unet import UNet


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("channels", "classes", "total"), [(1, 2, 1_813_474), (3, 2, 1_813_762), (3, 3, 1_813_907)]
)
def test_the_papers_network_has_the_papers_size(channels, classes, total):
    assert count(UNet(channels=channels, classes=classes)) == total


def test_every_block_has_the_papers_size():
    net = UNet(channels=1, classes=2)
    assert [count(level) for level in net.encoder.levels] == [
        2_544,
        14_016,
        55_680,
        221_952,
        886_272,
    ]
    assert [count(level) for level in net.decoder.levels] == [476_032, 119_232, 29_920, 7_536]
    assert (count(net.encoder), count(net.decoder), count(net.head)) == (1_180_464, 632_720, 290)
    assert (
        count(UNet(channels=3, classes=3).encoder),
        count(UNet(channels=3, classes=3).head),
    ) == (
        1_180_752,
        435,
    )


def test_norm_layers_have_the_papers_number_of_parameters():
    net = UNet(channels=1, classes=2)
    state = net.state_dict()
    assert sum(state[name].numel() for name in norms(net) & parameters(net)) == 2_944


def test_dropout_grows_with_depth_and_leaves_the_decoder_alone():
    net = UNet(channels=1, classes=2)
    assert [level.dropout.p for level in net.encoder.levels] == [0.05, 0.1, 0.2, 0.3, 0.5]
    assert {level.combine.dropout.p for level in net.decoder.levels} == {0.0}


def test_activations_are_leaky_with_the_papers_slope():
    activations = [m for m in UNet(channels=1, classes=2).modules() if isinstance(m, nn.LeakyReLU)]
    assert len(activations) == 18
    assert {module.negative_slope for module in activations} == {0.01}


def without_dropout(plain):
    for module in plain.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def pairs(net, plain):
    """Parameters of ours beside those of the plain network."""
    ours = [*net.encoder.levels, *(level.narrow for level in net.decoder.levels)]
    ours += [*(level.combine for level in net.decoder.levels), net.head]
    plains = [*plain.down, *plain.narrow, *plain.up, plain.head]
    for mine, other in zip(ours, plains, strict=True):
        yield from zip(mine.parameters(), other.parameters(), strict=True)


def twins(seed=0, activation=None):
    """Our network and the plain one with the same weights, without dropout."""
    torch.manual_seed(seed)
    net, plain = UNet(channels=1, classes=2, dropout=(0.0,) * 5), PlainUNet()
    without_dropout(plain)
    for mine, other in pairs(net, plain):
        other.data.copy_(mine)
    if activation:
        replace_activations(net, activation)
        replace_activations(plain, activation)
    return net, plain


def replace_activations(module, activation):
    for name, child in module.named_children():
        if isinstance(child, nn.LeakyReLU):
            setattr(module, name, activation())
        replace_activations(child, activation)


def scene(precision, size=32):
    labels = torch.randint(0, 2, (4, size, size), dtype=torch.uint8)
    labels[:, :10] = 255
    return torch.rand(4, 1, size, size, dtype=precision), labels


@pytest.mark.parametrize("training", [True, False])
def test_logits_and_gradients_are_those_of_the_plain_network(training):
    net, plain = (module.double().train(training) for module in twins())
    images, labels = scene(torch.float64)
    ours, theirs = net(images), plain(images)
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)
    segmentation_loss(ours, labels).backward()
    plain_loss(theirs, labels).backward()
    for mine, other in pairs(net, plain):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-11, rtol=0)


# Short numbers are compared within one layout: torch sums the statistics of channels-last maps
# one by one, which alone moves logits by 1e-5 to 1e-4, in the plain network as in ours.
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("training", [True, False])
def test_short_numbers_give_the_plain_logits_in_the_same_layout(seed, training):
    net, plain = (m.to(memory_format=torch.channels_last).train(training) for m in twins(seed))
    images, _ = scene(torch.float32)
    theirs = plain(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(net(images), theirs, atol=1e-5, rtol=0)


# Smooth activations, because a value that rounding carries across the kink of a leaky one
# changes a gradient by 1e-4: one value in a million, in whatever order sums are taken.
@pytest.mark.parametrize("seed", range(3))
def test_short_numbers_give_the_plain_gradients_in_the_same_layout(seed):
    net, plain = (m.to(memory_format=torch.channels_last) for m in twins(seed, nn.Softplus))
    images, labels = scene(torch.float32)
    segmentation_loss(net(images), labels).backward()
    plain_loss(plain(images.to(memory_format=torch.channels_last)), labels).backward()
    for mine, other in pairs(net, plain):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=0)


def test_the_classic_network_has_the_classic_size():
    with torch.device("meta"):
        net = ClassicUNet(channels=3, classes=1)
    assert count(net) == 31_043_521
    assert count(net.encoder) == 18_851_136
