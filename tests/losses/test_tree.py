from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from polyclinic.losses import TensorError, tree_energy, tree_filter
from polyclinic.losses.tree import _tree
from tests.losses import brute_force
from tests.losses.brute_force import edge_costs, grid_edges, waves

sizes = st.tuples(st.integers(1, 5), st.integers(1, 5))


def golden():
    logits, image = waves(2, 3, 6, 5)
    y, x = torch.meshgrid(torch.arange(6.0).double(), torch.arange(5.0).double(), indexing="ij")
    guide = torch.stack([torch.sin(0.4 * x + 0.9 * y), torch.cos(1.1 * x - 0.2 * y)])[None]
    return logits.softmax(1), image, guide, ((x + y) % 3 != 0)[None]


def sample(seed, batch=2, classes=2, channels=2, size=(5, 4), levels=0, precision=torch.float64):
    """Values and a guide; with levels the guide has few different numbers, so that edges tie."""
    rng = torch.Generator().manual_seed(seed)
    values = torch.rand(batch, classes, *size, generator=rng, dtype=torch.float64)
    guide = torch.rand(batch, channels, *size, generator=rng, dtype=torch.float64)
    if levels:
        guide = (guide * levels).floor() / levels
    return values.to(precision).requires_grad_(), guide.to(precision).requires_grad_()


def test_the_cascade_gives_the_golden_numbers():
    probabilities, image, guide, unlabelled = golden()
    low = tree_filter(probabilities, image, 0.02)
    high = tree_filter(low, guide, 1.0)
    found = [each[0, k, y, x].item() for each in (low, high) for k, y, x in ((0, 0, 0), (1, 3, 2))]
    assert found == pytest.approx([0.5000193, 0.3435350, 0.5515709, 0.4129882], abs=5e-8)
    assert unlabelled.sum() == 20
    energies = [tree_energy(probabilities, image, g, unlabelled).item() for g in ([], [guide])]
    assert energies == pytest.approx([4.386007e-05, 0.1556150], rel=5e-7)


def test_the_trees_of_the_golden_numbers_cost_what_they_should():
    _, image, guide, _ = golden()
    costs = [-_tree(each, 1.0)[2].log().sum().item() for each in (image, guide)]
    assert costs == pytest.approx([6.846306, 7.014527], abs=1e-6)


@given(seed=st.integers(0, 9999), size=sizes, levels=st.integers(0, 4), channels=st.integers(1, 3))
def test_a_tree_costs_as_little_as_scipys(seed, size, levels, channels):
    _, guide = sample(seed, batch=1, channels=channels, size=size, levels=levels)
    order, parent, weight = (part[0].numpy() for part in _tree(guide.detach(), 1.0))
    edges = grid_edges(*size)
    here, there = np.array(edges, dtype=int).reshape(-1, 2).T
    # An edge of weight 0 is no edge for scipy.
    matrix = coo_array(
        (1 + np.array(edge_costs(guide[0], edges)), (here, there)), shape=(order.size,) * 2
    )
    expected = minimum_spanning_tree(matrix.tocsr()).sum() - (order.size - 1)
    assert -np.log(weight[1:]).sum() == pytest.approx(expected)
    assert sorted(order) == list(range(order.size))
    assert all(parent[1:] < np.arange(1, order.size))
    found = {tuple(sorted(pair)) for pair in zip(order[1:], order[parent[1:]], strict=True)}
    assert found <= set(edges)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 9999),
    size=sizes,
    levels=st.integers(0, 3),
    classes=st.integers(1, 3),
    channels=st.integers(1, 3),
    sigma=st.sampled_from([0.02, 0.3, 1.0]),
)
def test_values_and_gradients_are_those_of_the_definition(
    seed, size, levels, classes, channels, sigma
):
    values, guide = sample(seed, 2, classes, channels, size, levels)
    direction = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed))
    ours = tree_filter(values, guide, sigma)
    theirs = brute_force.tree_filter(values, guide, sigma)
    torch.testing.assert_close(ours, theirs)
    found, expected = (
        torch.autograd.grad((each * direction).sum(), (values, guide), materialize_grads=True)
        for each in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)


def test_gradients_are_right():
    assert torch.autograd.gradcheck(lambda v, g: tree_filter(v, g, 0.7), sample(0))
    values, guide = sample(1)
    image = sample(2, channels=3)[1].detach()
    unlabelled = torch.rand(2, 5, 4) < 0.7
    assert torch.autograd.gradcheck(
        lambda v, g: tree_energy(v, image, [g, g.flip(1) * 2], unlabelled, 0.5, 1.5),
        (values, guide),
    )


def test_the_energy_is_the_mean_over_unlabelled_pixels_of_the_cascades_changes():
    values, first = sample(3)
    image, second = sample(4)
    unlabelled = torch.rand(2, 5, 4) < 0.5
    filtered = values
    for guide, sigma in ((image, 0.02), (first, 1.0), (second, 1.0)):
        filtered = brute_force.tree_filter(filtered, guide, sigma)
    changes = (values - filtered).abs().permute(0, 2, 3, 1)[unlabelled]
    energy = tree_energy(values, image, [first, second], unlabelled)
    torch.testing.assert_close(energy, changes.sum() / unlabelled.sum())


def test_the_image_of_the_energy_has_no_gradient():
    values, guide = sample(5)
    image = sample(6)[1]
    tree_energy(values, image, [guide], torch.ones(2, 5, 4, dtype=torch.bool)).backward()
    assert image.grad is None
    assert guide.grad.any()


def test_a_guide_may_learn_while_the_values_do_not():
    values, guide = sample(7)
    direction = torch.randn(values.shape)
    (tree_filter(values.detach(), guide, 1.0) * direction).sum().backward()
    expected = brute_force.tree_filter(values, guide, 1.0)
    (wanted,) = torch.autograd.grad((expected * direction).sum(), guide)
    torch.testing.assert_close(guide.grad, wanted)


@pytest.mark.parametrize("threads", [1, 3])
def test_single_precision_threads_and_layout_change_nothing_that_matters(threads):
    values, guide = sample(8, batch=5, size=(40, 30))
    values, guide = values.detach(), guide.detach().float().double()  # so that trees are equal
    expected = tree_filter(values, guide, 0.5)
    torch.set_num_threads(threads)
    try:
        last = [m.float().to(memory_format=torch.channels_last) for m in (values, guide)]
        found = tree_filter(*last, 0.5)
    finally:
        torch.set_num_threads(1)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=0)


def test_several_callers_at_once_get_what_one_gets():
    values, guide = sample(9, batch=4, size=(64, 64), precision=torch.float32)
    expected = tree_filter(values, guide, 1.0)
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda _: tree_filter(values, guide, 1.0), range(6)))
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(each, expected) for each in found)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_short_numbers_are_filtered_as_longer_ones(precision):
    values, guide = (each.detach() for each in sample(10, precision=precision))
    values.requires_grad_()
    guide.requires_grad_()
    filtered = tree_filter(values, guide, 1.0)
    torch.testing.assert_close(filtered, tree_filter(values.float(), guide.float(), 1.0))
    filtered.sum().backward()
    assert values.grad.dtype is guide.grad.dtype is precision


def test_a_constant_image_averages_everything():
    values = torch.rand(1, 2, 256, 256)
    filtered = tree_filter(values, torch.full((1, 1, 256, 256), 0.3), 0.02)
    expected = values.double().mean((2, 3), keepdim=True).float().expand_as(values)
    torch.testing.assert_close(filtered, expected, rtol=1e-6, atol=0)


def test_unlike_regions_do_not_mix_even_where_similarity_vanishes():
    image = torch.zeros(1, 1, 6, 6)
    image[..., 3:] = 100.0
    values = torch.rand(1, 1, 6, 6).requires_grad_()
    filtered = tree_filter(values, image.requires_grad_(), 0.02)
    halves = [half.mean().expand(1, 1, 6, 3) for half in values.split(3, 3)]
    torch.testing.assert_close(filtered, torch.cat(halves, 3))
    filtered.square().sum().backward()
    assert not image.grad.any()


def test_without_unlabelled_pixels_there_is_nothing_to_pay_or_learn():
    values, guide = sample(11)
    energy = tree_energy(values, guide, [guide], torch.zeros(2, 5, 4, dtype=torch.bool))
    energy.backward()
    assert energy == 0
    assert not values.grad.any()
    assert not guide.grad.any()


def test_what_a_diverged_network_gives_stays_visible():
    values, guide = sample(12)
    unlabelled = torch.ones(2, 5, 4, dtype=torch.bool)
    for broken in (float("nan"), float("inf")):
        spoiled = guide.detach().clone()
        spoiled[:, :, :3] = broken
        assert tree_energy(values, guide, [spoiled], unlabelled).isnan()
        assert not tree_energy(values * broken, guide, [guide], unlabelled).isfinite()


def test_every_mistake_is_told_at_once():
    values, guide = sample(13)
    image = guide.detach().clone()
    image[0, 0, 2, 2] = float("nan")
    with pytest.raises(TensorError) as caught:
        tree_energy(values, image, [guide[0], guide[:, :, :2]], torch.ones(2, 5), sigma_low=0)
    for mistake in (
        "image holds NaN or infinite pixels",
        "guide 1 should be batch × channels × height × width, not 2×5×4",
        "guide 2 (2×2×2×4) and probabilities (2×2×5×4) differ in size",
        "unlabelled should be boolean, not torch.float32",
        "unlabelled (2×5) and the maps (2×2×5×4) differ in size",
        "sigma_low should be above 0, not 0",
    ):
        assert mistake in str(caught.value)
