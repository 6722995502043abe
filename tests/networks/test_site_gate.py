import pytest
import torch

from polyclinic.networks import NETWORKS
from polyclinic.networks.contract import ImageError
from polyclinic.networks.gated_segmenter import GatedSegmenter, SiteGate, gated


def small(**changes):
    torch.manual_seed(0)
    settings = {"sites": 3, "pooling": "average+max", "projected": True, **changes}
    return GatedSegmenter(NETWORKS["unet"](channels=1, classes=2, width=2), **settings)


@pytest.mark.parametrize("pooling", ["average+max", "average"])
def test_gates_lie_between_nought_and_one_and_differ_between_sites(pooling):
    torch.manual_seed(0)
    gate = SiteGate(8, 3, pooling)
    maps = torch.rand(2, 8, 4, 4)
    gate.code[1] = 1
    own, others = gate(maps), gate.of_others(maps)
    assert own.shape == (2, 8)
    assert others.shape == (2, 2, 8)
    assert ((own > 0) & (own < 1)).all()
    assert not torch.allclose(own, others[0])


def test_average_and_largest_value_both_count_in_two_branches_and_the_average_alone_in_one():
    torch.manual_seed(0)
    maps = torch.rand(1, 8, 4, 4)
    same_mean = maps.clone()
    same_mean[:, :, 0, 0] += 1
    same_mean[:, :, 1, 1] -= 1
    for pooling, heard in (("average+max", True), ("average", False)):
        gate = SiteGate(8, 2, pooling)
        gate.code[0] = 1
        assert torch.allclose(gate(maps), gate(same_mean), atol=1e-6) != heard


def test_two_branches_add_up_before_the_sigmoid():
    gate = SiteGate(4, 2)
    gate.code[0] = 1
    maps = torch.rand(3, 4, 5, 5)
    embedded = gate.embed(gate.code).expand(3, 4)
    branches = [
        gate.weigh(torch.cat((pooled, embedded), 1))
        for pooled in (maps.mean((2, 3)), maps.amax((2, 3)))
    ]
    torch.testing.assert_close(gate(maps), (branches[0] + branches[1]).sigmoid())


def test_a_gate_of_nought_leaves_the_map_and_one_doubles_it():
    maps = torch.rand(2, 3, 4, 4)
    assert torch.equal(gated(maps, torch.zeros(2, 3)), maps)
    assert torch.equal(gated(maps, torch.ones(2, 3)), 2 * maps)


def test_guides_have_the_size_of_the_images():
    images = torch.rand(2, 1, 32, 48)
    for projected, channels in ((True, [2, 2, 2]), (False, [8, 4])):
        net = small(projected=projected)
        guides = net.guide(images, net.look(images).maps)
        assert [guide.shape[1] for guide in guides] == channels
        assert all(guide.shape[2:] == (32, 48) for guide in guides)


def test_the_deepest_map_is_kept_as_it_was_before_the_gate():
    net = small().eval()
    seen = net.look(torch.rand(1, 1, 32, 32))
    torch.testing.assert_close(seen.gates, net.gate(seen.deepest))
    assert small(pooling=None).look(torch.rand(1, 1, 32, 32)).gates is None


def test_errors_name_the_network_of_the_study():
    with pytest.raises(ImageError, match="network 'unet' cannot take these images"):
        small()(torch.rand(1, 2, 30, 32))


def test_every_part_is_registered():
    assert set(small().parts()) == {"encoder", "decoder", "head", "gate", "guides", "norms"}
