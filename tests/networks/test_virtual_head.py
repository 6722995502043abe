import copy
import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from polyclinic.federation.weights import flatten
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, parameters
from polyclinic.networks.virtual_head import VirtualHead, orthogonal_rows, replace_head


def a_head(channels=8, **changes):
    settings = {"classes": 3, "virtual": 4, "scale": 5.0, "seed": 1, **changes}
    return VirtualHead(channels, **settings)


@given(st.integers(1, 20), st.integers(1, 24), st.integers(0, 2**62))
def test_rows_are_of_unit_length_and_orthogonal_within_each_base(count, width, seed):
    rows = orthogonal_rows(count, width, seed).double()
    for start in range(0, count, width):
        base = rows[start : start + width]
        torch.testing.assert_close(base @ base.T, torch.eye(len(base)).double(), atol=1e-6, rtol=0)


def test_all_kernels_are_orthogonal_where_they_fit_real_ones_too():
    head = a_head(channels=16, virtual=12, classes=3)
    kernels = torch.cat((head.virtual, head.weight.detach()))
    torch.testing.assert_close(kernels @ kernels.T, torch.eye(15), atol=1e-6, rtol=0)


def test_where_they_do_not_fit_no_two_virtual_kernels_are_alike():
    head = a_head(channels=4, virtual=11)
    cosines = (head.virtual @ head.virtual.T).fill_diagonal_(0)
    assert cosines.abs().max() < 0.999


def test_the_same_seed_makes_the_same_bits_on_every_machine():
    rows = orthogonal_rows(15, 16, 2026)
    assert torch.equal(rows, orthogonal_rows(15, 16, 2026))
    assert not torch.equal(rows, orthogonal_rows(15, 16, 2027))
    # Written down once: a machine that makes other bits could not take part.
    known = "52f2360115c2a58f6a7ae7a96180abed86ec9bed7934fddba67d1b7b0bea414d"
    assert hashlib.sha256(rows.numpy().tobytes()).hexdigest() == known


def test_logits_are_scaled_cosines():
    torch.manual_seed(0)
    head, maps = a_head(), torch.randn(2, 8, 5, 6)
    real, virtual = head.both(maps)
    for logits, kernels in ((real, head.weight), (virtual, head.virtual)):
        expected = functional.cosine_similarity(
            maps[:, None], kernels[None, :, :, None, None], dim=2
        )
        torch.testing.assert_close(logits, 5 * expected)
    assert torch.equal(head(maps), real)
    torch.testing.assert_close(head(3 * maps), real)


def test_an_embedding_of_nought_has_neither_logits_nor_a_boundless_slope():
    maps = torch.zeros(1, 8, 2, 2, requires_grad=True)
    logits = a_head()(functional.relu(maps))
    logits.sum().backward()
    assert not logits.any()
    assert not maps.grad.any()


def test_virtual_kernels_are_no_weights_and_leave_no_trace():
    net = NETWORKS["unet"](channels=1, classes=2, width=4)
    replace_head(net, virtual=3, scale=1.0, seed=0)
    assert {name for name in everything(net) if name.startswith("head.")} == {"head.weight"}
    assert not any("virtual" in name for name in [*net.state_dict(), *parameters(net)])
    before = net.head.virtual.clone()
    weights = flatten(net)
    weights.flat.zero_()
    assert torch.equal(copy.deepcopy(net).head.virtual, before)
    assert not net.head.weight.any()


@pytest.mark.parametrize("name", ["unet", "classic_unet", "pvt_fpn", "fcn"])
def test_every_network_keeps_its_size_of_logits(name):
    channels = 3
    net = NETWORKS[name](channels=channels, classes=3, width=4).eval()
    images = torch.rand(1, channels, 64, 96)
    own = net(images)
    replace_head(net, virtual=5, scale=1.0, seed=0)
    assert net(images).shape == own.shape
    assert net(images).abs().max() <= 1 + 1e-6
    maps = net.embed(images)
    real, virtual = net.head.both(maps)
    assert real.shape == own.shape
    assert virtual.shape == (1, 5, *maps.shape[2:])
