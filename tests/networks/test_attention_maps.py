import torch
from torch.nn import functional

from polyclinic.networks import NETWORKS
from polyclinic.networks.attention_maps import middle_attention
from polyclinic.networks.parts import part

IMAGES = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))


def the_network():
    torch.manual_seed(0)
    return NETWORKS["pvt_fpn"](channels=1, classes=2, width=4).eval()


def test_maps_are_shares_of_attention_in_each_stage():
    maps = middle_attention(the_network(), IMAGES)
    assert list(maps) == ["stage 1", "stage 2", "stage 3", "stage 4"]
    for each in maps.values():
        assert each.shape == (2, 2, 2)
        assert (each > 0).all()
        torch.testing.assert_close(each.sum((1, 2)), torch.ones(2))


def test_they_are_the_weights_by_which_the_network_adds_up_its_values(monkeypatch):
    """With the values replaced by one place's mark, what comes out is the attention to it."""
    net = the_network()
    found = []
    plain = functional.scaled_dot_product_attention

    def watched(queries, keys, values):
        marks = torch.eye(keys.shape[2]).expand(*keys.shape[:3], -1)
        found.append(plain(queries, keys, marks))
        return plain(queries, keys, values)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    net(IMAGES)
    for weights, each in zip(found[1::2], middle_attention(net, IMAGES).values(), strict=True):
        side = round(weights.shape[2] ** 0.5)
        middle = side // 2 * side + side // 2
        torch.testing.assert_close(weights[:, :, middle].mean(1).view_as(each), each)


def test_other_queries_look_elsewhere_and_nothing_is_left_behind():
    net = the_network()
    before = middle_attention(net, IMAGES)
    with torch.no_grad():
        for name in part(net, "queries"):
            net.get_parameter(name).mul_(-30)
    after = middle_attention(net, IMAGES)
    assert all(not torch.allclose(before[stage], after[stage]) for stage in before)
    assert not any(module._forward_pre_hooks for module in net.modules())
