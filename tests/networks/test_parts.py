import pytest
import torch
from torch import nn

from polyclinic.networks.parts import (
    EmptySelection,
    PartError,
    everything,
    nonempty,
    norms,
    of_type,
    parameters,
    part,
    statistics,
    under,
)
from polyclinic.networks.unet import UNet


@pytest.fixture(scope="module")
def net():
    return UNet(channels=1, classes=2, width=2)


def chain(length):
    return nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(length)))


def test_everything_is_all_but_counters():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert everything(net) == {
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
    }


def test_a_path_never_captures_one_that_merely_begins_alike():
    net = nn.ModuleDict({"conv": chain(12)})
    assert under(net, "conv.1") == {"conv.1.weight", "conv.1.bias"}
    assert under(net, "conv.1", "conv.10") == under(net, "conv.1") | under(net, "conv.10")
    assert under(net, "conv") == everything(net)


def test_an_unknown_path_is_refused_with_the_nearest(net):
    with pytest.raises(
        PartError, match=r'network .unet. has no module .encodr.; did you mean "encoder"'
    ):
        under(net, "encodr")


def test_a_path_that_resembles_nothing_is_refused_with_all_there_is():
    with pytest.raises(PartError, match="network 'Sequential' has no module 'head'; it has 0, 1"):
        under(chain(2), "head")


def test_layers_are_found_by_type_including_derived_types(net):
    found = of_type(net, nn.BatchNorm2d)
    expected = {
        name
        for path, module in net.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for name in (f"{path}.{leaf}" for leaf in module.state_dict())
    }
    assert found == expected
    assert of_type(net, nn.BatchNorm2d, nn.Conv2d) == everything(net)
    assert of_type(net, nn.Linear) == frozenset()


def test_the_network_itself_may_be_of_the_type():
    norm = nn.BatchNorm2d(3)
    assert norms(norm) == {"weight", "bias", "running_mean", "running_var"}


def test_norms_are_parameters_and_statistics_of_all_eighteen_layers(net):
    assert len(norms(net)) == 18 * 4
    assert len(statistics(net)) == 18 * 2
    assert statistics(net) <= norms(net)
    assert statistics(net).isdisjoint(parameters(net))
    assert statistics(net) | parameters(net) == everything(net)


def test_shared_modules_are_selected_under_both_their_names():
    layer = nn.Linear(2, 2)
    net = nn.ModuleDict({"first": layer, "second": layer})
    assert under(net, "second") == {"second.weight", "second.bias"}
    assert parameters(net) == everything(net)


def test_the_published_parts_are_found_by_name(net):
    assert part(net, "head") == {"head.weight", "head.bias"}
    assert part(net, "norms") == norms(net)
    assert part(net, "encoder") == under(net, "encoder")
    with pytest.raises(PartError, match=r'has no part .norm.; did you mean "norms"'):
        part(net, "norm")


def test_a_module_added_later_is_a_part_of_its_own():
    net = UNet(channels=1, classes=2, width=2)
    net.gate = nn.Linear(4, 4)
    assert part(net, "gate") == {"gate.weight", "gate.bias"}


def test_a_selection_that_may_not_be_empty_says_why():
    plain = chain(1)
    with pytest.raises(
        EmptySelection,
        match="FedBN keeps BatchNorm layers at the site, but network 'Sequential' has none",
    ):
        nonempty(norms(plain), plain, "FedBN keeps BatchNorm layers at the site")
    assert norms(plain) == frozenset()
    assert nonempty(frozenset({"a"}), plain, "x") == {"a"}
    assert issubclass(EmptySelection, ValueError)


def test_selections_do_not_touch_the_weights(net):
    before = {name: value.clone() for name, value in net.state_dict().items()}
    norms(net), statistics(net), net.parts()
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
