import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from polyclinic.losses import LabelError, segmentation_loss, soft_dice

KINDS = ("ce", "dice", "ce+dice")


def golden():
    """Softmax of cosine waves and a striped target, 16×16, three classes."""
    k, y, x = np.meshgrid(np.arange(3), np.arange(16), np.arange(16), indexing="ij")
    logits = torch.tensor(np.cos(0.5 * (k + 1) * x + 0.3 * y))
    target = torch.tensor((y[0] + 2 * x[0]) % 3).to(torch.uint8)
    return logits.softmax(0)[None], target[None]


def test_dice_gives_the_golden_number():
    assert soft_dice(*golden()).item() == pytest.approx(0.526915, abs=1e-6)


def test_dice_leaves_ignored_rows_out():
    probabilities, target = golden()
    target[:, :4] = 255
    assert soft_dice(probabilities, target).item() == pytest.approx(0.524305, abs=1e-6)


def test_the_mask_of_one_sample_does_not_reach_another():
    probabilities, target = golden()
    masked = target.clone()
    masked[:, :4] = 255
    batch = torch.cat([probabilities, probabilities.flip(2)])
    labels = torch.cat([masked, target])
    assert soft_dice(batch, labels).item() == pytest.approx(0.524916, abs=1e-6)


def sample(seed, classes=3, unlabelled=0.4, size=(2, 4, 5), precision=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    batch, *sides = size
    logits = torch.randn(batch, classes, *sides, generator=rng, dtype=precision)
    label = torch.randint(0, classes, size, generator=rng, dtype=torch.uint8)
    label[torch.rand(size, generator=rng) < unlabelled] = 255
    return logits, label


def dice_by_hand(probabilities, label, smooth=1e-5):
    losses = []
    for value in range(probabilities.shape[1]):
        overlap = size = 0.0
        for b, row, column in np.ndindex(*label.shape):
            if label[b, row, column] == 255:
                continue
            p, t = probabilities[b, value, row, column], float(label[b, row, column] == value)
            overlap, size = overlap + p * t, size + p**2 + t**2
        losses.append(1 - (2 * overlap + smooth) / (size + smooth))
    return np.mean(losses)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 4),
    unlabelled=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_dice_equals_sums_pixel_by_pixel(seed, classes, unlabelled):
    logits, label = sample(seed, classes, unlabelled)
    probabilities = logits.softmax(1)
    expected = dice_by_hand(probabilities.numpy(), label.numpy())
    assert soft_dice(probabilities, label).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 5))
def test_cross_entropy_is_torchs_mean_over_the_labelled_pixels_of_the_batch(seed, classes):
    logits, label = sample(seed, classes, unlabelled=0.3)
    expected = functional.cross_entropy(logits, label.long(), ignore_index=255)
    torch.testing.assert_close(segmentation_loss(logits, label, "ce"), expected)


def test_the_sum_of_both_is_their_sum():
    logits, label = sample(0)
    dice = soft_dice(logits.softmax(1), label)
    torch.testing.assert_close(segmentation_loss(logits, label, "dice"), dice)
    expected = segmentation_loss(logits, label, "ce") + dice
    torch.testing.assert_close(segmentation_loss(logits, label), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unlabelled", [0.0, 0.5])
def test_gradients_are_right(kind, unlabelled):
    logits, label = sample(1, unlabelled=unlabelled)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: segmentation_loss(z, label, kind), logits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_labels_costs_nothing_and_teaches_nothing(kind):
    logits, label = sample(2)
    logits.requires_grad_()
    loss = segmentation_loss(logits, torch.full_like(label, 255), kind)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_unlabelled_pixels_have_no_gradient(kind):
    logits, label = sample(3)
    logits.requires_grad_()
    segmentation_loss(logits, label, kind).backward()
    unlabelled = (label == 255)[:, None].expand_as(logits)
    assert not logits.grad[unlabelled].any()
    assert logits.grad[~unlabelled].all()


@pytest.mark.parametrize("kind", KINDS)
def test_layout_and_label_type_do_not_matter(kind):
    logits, label = sample(4, precision=torch.float32)
    expected = segmentation_loss(logits, label, kind)
    last = logits.to(memory_format=torch.channels_last).requires_grad_()
    loss = segmentation_loss(last, label.long(), kind)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert last.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_short_numbers_are_summed_as_longer_ones(precision):
    logits, label = sample(5, size=(4, 64, 64), precision=torch.float32)
    short = logits.to(precision)
    loss = segmentation_loss(short, label)
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, segmentation_loss(short.float(), label))


def test_extreme_logits_stay_finite():
    logits, label = sample(6)
    logits = (1e6 * logits).requires_grad_()
    loss = segmentation_loss(logits, label)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_a_class_the_network_does_not_have_is_refused():
    logits, label = sample(8)
    label[0, 0, 0], label[1, 2, 2] = 7, 3
    with pytest.raises(LabelError, match=r"holds \[3, 7\]; allowed are classes 0 to 2, and 255"):
        segmentation_loss(logits, label)


def test_a_label_of_another_size_is_refused():
    logits, label = sample(9)
    with pytest.raises(LabelError, match="do not belong together"):
        segmentation_loss(logits, label[:, :2])


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"unknown loss 'focal', allowed: ce, dice, ce\+dice"):
        segmentation_loss(*sample(10), kind="focal")
