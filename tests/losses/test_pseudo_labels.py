import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.losses import (
    TensorError,
    mixed_label,
    pseudo_dice,
    soft_dice,
)


def branches(seed=0, classes=3, size=(6, 5)):
    rng = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, 2, classes, *size, generator=rng, dtype=torch.float64)
    return first.requires_grad_(), second.requires_grad_()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(seed=st.integers(0, 9999), share=st.floats(0, 1))
def test_the_label_is_the_likeliest_class_of_the_mixture(seed, share):
    first, second = (each.softmax(1) for each in branches(seed))
    label = mixed_label(first, second, share, share)
    assert label.dtype is torch.uint8
    expected = (share * first + (1 - share) * second).argmax(1)
    assert torch.equal(label.long(), expected)


def test_the_share_comes_from_the_generator_alone_once_a_batch():
    half = torch.tensor([0.5, 0.5])[None, :, None, None].expand(1, 2, 1, 1)
    # With these the label flips from 1 to 0 at a share of one half.
    first, second = half + torch.tensor([0.1, -0.1])[:, None, None], half.clone()
    second[:, 0] -= 0.1
    second[:, 1] += 0.1
    rng = generator(1)
    drawn = [mixed_label(first, second, 0.0, 1.0, rng).item() for _ in range(400)]
    assert 140 < sum(drawn) < 260
    rng = generator(1)
    torch.manual_seed(7)
    assert drawn == [mixed_label(first, second, 0.0, 1.0, rng).item() for _ in range(400)]
    rng = generator(1)
    shares = torch.stack(
        [torch.empty((), dtype=torch.float64).uniform_(0, 1, generator=rng) for _ in range(400)]
    )
    assert drawn == (shares < 0.5).long().tolist()


def test_without_a_generator_torchs_own_decides():
    first, second = (each.softmax(1) for each in branches(3, size=(40, 40)))
    labels = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        labels.append(mixed_label(first, second, 0.0, 1.0))
    assert torch.equal(labels[0], labels[1])
    assert not torch.equal(labels[0], labels[2])


def test_dice_is_the_mean_of_both_branches_against_the_label():
    first, second = (each.softmax(1) for each in branches(4))
    label = mixed_label(first, second, rng=generator())
    expected = (soft_dice(first, label) + soft_dice(second, label)) / 2
    torch.testing.assert_close(pseudo_dice(first, second, rng=generator()), expected)


def test_with_a_mask_only_its_pixels_count():
    first, second = (each.softmax(1) for each in branches(4, size=(6, 6)))
    mask = torch.zeros(2, 6, 6, dtype=torch.bool)
    mask[:, :, :4] = True
    inside = pseudo_dice(first[..., :4], second[..., :4], rng=generator())
    torch.testing.assert_close(pseudo_dice(first, second, rng=generator(), mask=mask), inside)
    with pytest.raises(TensorError, match="mask should be boolean"):
        pseudo_dice(first, second, mask=mask.long())


def test_both_branches_learn_and_the_label_is_constant():
    first, second = branches(6)
    assert torch.autograd.gradcheck(
        lambda one, two: pseudo_dice(one.softmax(1), two.softmax(1), rng=generator()),
        (first, second),
    )
    assert not mixed_label(first, second).requires_grad


def test_mistakes_are_told():
    first, second = branches(8)
    with pytest.raises(TensorError, match="differ in their number of classes"):
        mixed_label(first, second[:, :2])
    with pytest.raises(TensorError, match=r"differ in size; .* not low 0.9 and high 0.1"):
        mixed_label(first, second[:, :, :3], 0.9, 0.1)
