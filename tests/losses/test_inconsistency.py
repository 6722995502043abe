import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from polyclinic.losses.inconsistency import guided_entropy, inconsistency

RNG = torch.Generator().manual_seed(0)
MAPS = torch.rand(4, 2, 3, 5, 5, generator=RNG).softmax(2)


def test_the_paper_s_formula_is_the_mean_squared_distance_to_the_others():
    expected = sum((MAPS[0] - MAPS[j]) ** 2 for j in range(4)) / 3  # the sum includes itself
    found = inconsistency(MAPS, "distance", relative=False)
    torch.testing.assert_close(found, expected)


def test_the_released_formula_is_the_unbiased_deviation_over_the_batch_s_largest():
    deviation = np.std(MAPS.numpy(), axis=0, ddof=1)
    found = inconsistency(MAPS, "deviation", relative=True)
    np.testing.assert_allclose(found.numpy(), deviation / deviation.max(), rtol=1e-4)
    assert found.max() == 1


@pytest.mark.parametrize("formula", ["distance", "deviation"])
@pytest.mark.parametrize("relative", [False, True])
def test_equal_models_and_a_model_alone_agree_exactly(formula, relative):
    for count in range(1, 9):
        found = inconsistency(MAPS[:1].repeat(count, 1, 1, 1, 1), formula, relative=relative)
        assert found.shape == MAPS.shape[1:]
        assert not found.any()


@pytest.mark.parametrize("formula", ["distance", "deviation"])
@pytest.mark.parametrize("relative", [False, True])
def test_coarse_probabilities_are_compared_in_full_precision(formula, relative):
    coarse = MAPS.bfloat16()
    found = inconsistency(coarse, formula, relative=relative)
    assert found.dtype == torch.float32
    assert torch.equal(found, inconsistency(coarse.float(), formula, relative=relative))


def test_the_entropy_is_that_of_each_class_on_its_own_weighted_by_the_guide():
    label = torch.randint(0, 3, (2, 5, 5), generator=RNG).to(torch.uint8)
    truth = torch.stack([(label == c).float() for c in range(3)], 1)
    guide = torch.rand(2, 3, 5, 5, generator=RNG)
    expected = binary_cross_entropy(MAPS[0], truth, weight=guide)
    torch.testing.assert_close(guided_entropy(MAPS[0], label, guide), expected)


def test_with_the_mean_over_the_guide_its_scale_and_what_agrees_are_no_matter():
    probabilities = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).softmax(1)
    label = torch.zeros(2, 4, 4, dtype=torch.uint8)
    guide = torch.zeros(2, 3, 4, 4)
    guide[0, :, :2] = 0.25
    found = guided_entropy(probabilities, label, guide, "guide")
    torch.testing.assert_close(found, guided_entropy(probabilities, label, 0.1 * guide, "guide"))
    disputed = guided_entropy(probabilities[:1, :, :2], label[:1, :2], torch.ones(1, 3, 2, 4))
    torch.testing.assert_close(found, disputed)
    assert guided_entropy(probabilities, label, 0 * guide, "guide") == 0


def test_unlabelled_pixels_count_nothing():
    label = torch.full((2, 5, 5), 255, dtype=torch.uint8)
    guide = torch.ones(2, 3, 5, 5)
    assert guided_entropy(MAPS[0], label, guide) == 0
    label[0, 0, 0] = 1
    expected = binary_cross_entropy(MAPS[0][0, :, 0, 0], torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(guided_entropy(MAPS[0], label, guide), expected)


def test_no_gradient_flows_through_the_guide_and_certain_mistakes_stay_finite():
    guide = torch.ones(1, 2, 2, 2, requires_grad=True)
    probabilities = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2).clone()
    probabilities.requires_grad_()
    label = torch.ones(1, 2, 2, dtype=torch.uint8)
    loss = guided_entropy(probabilities, label, guide)
    loss.backward()
    assert loss.isfinite()
    assert loss > 10
    assert guide.grad is None
