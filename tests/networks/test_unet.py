import pytest
import torch
from bench.step import PlainUNet, plain_loss
from torch import nn

from polyclinic.losses import segmentation_loss
from polyclinic.networks import ClassicUNet, UNet, norms, parameters


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


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_logits_and_gradients_equal_those_of_a_plain_network(precision, training):
    torch.manual_seed(0)
    net, plain = UNet(channels=1, classes=2, dropout=(0.0,) * 5), PlainUNet()
    without_dropout(plain)
    for mine, other in pairs(net, plain):
        other.data.copy_(mine)
    net.to(precision).to(memory_format=torch.channels_last).train(training)
    plain.to(precision).train(training)
    images = torch.rand(4, 1, 32, 32, dtype=precision)
    labels = torch.randint(0, 2, (4, 32, 32), dtype=torch.uint8)
    labels[:, :10] = 255

    ours, theirs = net(images), plain(images)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    segmentation_loss(ours, labels).backward()
    plain_loss(theirs, labels).backward()
    for mine, other in pairs(net, plain):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_the_classic_network_has_the_classic_size():
    with torch.device("meta"):
        net = ClassicUNet(channels=3, classes=1)
    assert count(net) == 31_043_521
    assert count(net.encoder) == 18_851_136
