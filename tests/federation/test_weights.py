import pytest
import torch
from torch import nn

from polyclinic.federation.weights import Weights, flatten
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, part


@pytest.fixture
def net():
    return NETWORKS["unet"](channels=1, classes=2, width=2).to(memory_format=torch.channels_last)


def test_flattening_changes_no_value(net):
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    images = torch.rand(2, 1, 32, 32)
    net.eval()
    expected = net(images)
    weights = flatten(net)
    assert weights.names == everything(net)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert torch.equal(net(images), expected)


def test_the_network_and_its_weights_are_one(net):
    weights = flatten(net)
    variance = next(name for name in weights if name.endswith("running_var"))
    before = weights[variance].clone()
    net.train()(torch.rand(4, 1, 32, 32)).square().mean().backward()
    net.head.bias.data.add_(3)
    assert torch.equal(weights["head.bias"], net.head.bias)
    assert not torch.equal(weights[variance], before)
    weights.load({name: torch.zeros_like(tensor) for name, tensor in weights.items()})
    assert all(not tensor.any() for tensor in net.state_dict().values())


def test_four_dimensional_weights_lie_channels_last(net):
    flatten(net)
    for parameter in net.parameters():
        if parameter.dim() == 4:
            assert parameter.is_contiguous(memory_format=torch.channels_last)


def test_picking_and_loading_a_part_is_exact(net):
    weights = flatten(net)
    names = part(net, "decoder") | frozenset({"head.bias"})
    picked = weights.pick(names)
    assert picked.names == names
    for name in names:
        assert torch.equal(picked[name], weights[name])
    rest = weights.pick(everything(net) - names)
    changed = Weights(picked.layout, picked.flat + 1)
    weights.load(changed)
    for name in names:
        assert torch.equal(weights[name], changed[name])
    for name in rest:
        assert torch.equal(weights[name], rest[name])


def test_loading_plain_tensors_in_any_order_is_exact(net):
    weights = flatten(net)
    tensors = {n: torch.randn_like(t).contiguous() for n, t in reversed(list(weights.items()))}
    weights.load(tensors)
    assert all(torch.equal(weights[name], tensor) for name, tensor in tensors.items())
    weights.load(Weights.pack({n: t + 1 for n, t in tensors.items()}))
    assert all(torch.equal(weights[name], tensor + 1) for name, tensor in tensors.items())


def test_a_copy_shares_nothing(net):
    weights = flatten(net)
    copied = weights.copy()
    copied.flat.add_(1)
    assert not torch.equal(copied.flat, weights.flat)
    picked = weights.pick(weights.names)
    picked.flat.add_(1)
    assert not torch.equal(picked.flat, weights.flat)


def test_unknown_names_are_refused_by_name(net):
    weights = flatten(net)
    with pytest.raises(ValueError, match=r"no weights named head\.wait"):
        weights.load({"head.wait": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"no weights named decoder\.nothing"):
        weights.pick(frozenset({"decoder.nothing"}))


def test_picking_nothing_gives_nothing(net):
    assert len(flatten(net).pick(frozenset())) == 0


def test_a_network_of_its_own_making_can_be_flattened():
    net = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    weights = flatten(net)
    assert weights.nbytes == 4 * (6 + 2 + 2 + 2)
    assert "Layout" in repr(weights.layout)
