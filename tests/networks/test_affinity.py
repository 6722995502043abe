from itertools import chain

import pytest
import torch
from torch import nn

from polyclinic.networks import NETWORKS
from polyclinic.networks.affinity import (
    Affinity,
    NoPlaceForAttention,
    Projection,
    add_affinity,
    affinity,
)
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import everything


def small(name="unet", projection=None):
    torch.manual_seed(0)
    net = NETWORKS[name](channels=3, classes=2, width=4)
    add_affinity(net, projection or Projection())
    return net


def inputs(channels=3):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, channels, 6, 5, generator=generator) for _ in range(2)]


def by_hand(module, layers, maps):
    """A projection written out: 1×1 convolution, then the norm at rest."""
    conv, norm = layers
    mixed = torch.einsum("oi,bihw->bohw", conv.weight[:, :, 0, 0], maps)
    mixed = mixed + conv.bias[None, :, None, None]
    mean, variance = norm.running_mean, norm.running_var
    scaled = (mixed - mean[None, :, None, None]) / (variance + norm.eps).sqrt()[None, :, None, None]
    return scaled * norm.weight[None, :, None, None] + norm.bias[None, :, None, None]


@pytest.mark.parametrize("matrix", ["linear", "sigmoid"])
@pytest.mark.parametrize("result", ["alone", "added"])
def test_it_is_the_papers_formula(matrix, result):
    torch.manual_seed(0)
    module = Affinity(3, 3, Projection(matrix=matrix, result=result)).eval()
    for norm in (layers[1] for layers in (module.query, module.key, module.matrix)):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    enlarged, beside = inputs()
    query = by_hand(module, module.query, enlarged)
    key = by_hand(module, module.key, beside)
    weights = by_hand(module, module.matrix, (query + key).clamp(min=0))
    expected = query * (weights.sigmoid() if matrix == "sigmoid" else weights)
    if result == "added":
        expected = enlarged + expected
    torch.testing.assert_close(module(enlarged, beside), expected)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("norm", [True, False])
def test_every_projection_keeps_size_and_channels(kernel, norm):
    module = Affinity(4, 6, Projection(kernel=kernel, norm=norm))
    enlarged, beside = torch.rand(2, 4, 8, 6), torch.rand(2, 6, 8, 6)
    assert module(enlarged, beside).shape == enlarged.shape
    assert any(isinstance(each, nn.BatchNorm2d) for each in module.modules()) == norm


@pytest.mark.parametrize(("name", "levels"), [("unet", 4), ("classic_unet", 4), ("pvt_fpn", 3)])
def test_every_level_of_the_decoder_gets_one_that_learns(name, levels):
    net = small(name)
    found = [module for module in net.modules() if isinstance(module, Affinity)]
    assert len(found) == levels
    net(torch.rand(2, 3, 64, 64)).square().mean().backward()
    for parameter in chain.from_iterable(module.parameters() for module in found):
        assert parameter.grad is not None
    for module in found:
        for role in (module.query, module.key, module.matrix):
            assert role[0].weight.grad.any()


def test_roles_are_found_with_their_norms_and_make_up_all_that_was_added():
    torch.manual_seed(0)
    before = everything(NETWORKS["unet"](channels=3, classes=2, width=4))
    net = small()
    roles = [affinity(net, role) for role in ("query", "key", "matrix")]
    assert before.isdisjoint(frozenset.union(*roles))
    assert before | frozenset.union(*roles) == everything(net)
    assert affinity(net, "query", "matrix") == roles[0] | roles[2]
    assert affinity(net) == frozenset()
    kinds = {"weight", "bias", "running_mean", "running_var"}
    for names in roles:
        assert len(names) == 4 * 6
        assert {name.rpartition(".")[2] for name in names} == kinds


def test_what_was_there_keeps_its_first_weights():
    torch.manual_seed(0)
    plain = NETWORKS["unet"](channels=3, classes=2, width=4).state_dict()
    altered = small().state_dict()
    assert all(torch.equal(altered[name], plain[name]) for name in plain)


def test_a_network_without_a_place_for_it_is_refused_by_name():
    class Flat(Segmenter):
        name = "flat"

    parts = {part: nn.Identity() for part in ("encoder", "decoder", "head")}
    with pytest.raises(NoPlaceForAttention, match=r"network 'flat'.*paa = false"):
        add_affinity(Flat(channels=1, classes=2, **parts), Projection())
