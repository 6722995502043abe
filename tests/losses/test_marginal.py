import pytest
import torch
from torch.nn.functional import nll_loss

from polyclinic.losses import LOSSES, LabelError, Marginal, segmentation_loss, soft_dice
from polyclinic.losses.marginal import grouped, summed

DISC, CUP = (0, 1, 1), (0, 0, 2)


@pytest.fixture
def logits():
    torch.manual_seed(0)
    return torch.randn(2, 3, 8, 8, requires_grad=True)


def label(*numbers):
    torch.manual_seed(1)
    return torch.tensor(numbers, dtype=torch.uint8)[torch.randint(len(numbers), (2, 8, 8))]


@pytest.mark.parametrize(("groups", "numbers"), [(DISC, (0, 1, 255)), (CUP, (0, 2, 255))])
def test_cross_entropy_is_that_of_summed_probabilities(logits, groups, numbers):
    found = Marginal(LOSSES["ce"], (groups,))(logits, label(*numbers))

    probabilities = logits.softmax(1)
    background = probabilities[:, [0]] if groups == DISC else probabilities[:, :2]
    both = torch.stack((background.sum(1), 1 - background.sum(1)), 1)
    truth = (label(*numbers).long() > 0).long().masked_fill(label(*numbers) == 255, -100)
    assert found.item() == pytest.approx(nll_loss(both.log(), truth).item(), abs=1e-6)


def test_dice_is_that_of_summed_probabilities(logits):
    found = Marginal(LOSSES["dice"], (DISC,))(logits, label(0, 1))

    both = summed(logits.softmax(1), DISC)
    assert found.item() == pytest.approx(soft_dice(both, label(0, 1)).item(), abs=1e-6)


def test_what_is_not_told_apart_gets_no_preference(logits):
    Marginal(LOSSES["ce+dice"], (CUP,))(logits, label(0, 2)).backward()

    # Of background and rim, both move with their share: where one is likelier it moves more.
    share = logits.detach()[:, :2].softmax(1)
    moved = logits.grad[:, :2]
    assert torch.allclose(moved, share * moved.sum(1, keepdim=True), atol=1e-7)
    assert logits.grad[:, 2].abs().max() > 0


def test_all_classes_in_their_own_group_change_nothing(logits):
    for kind in ("ce", "dice", "ce+dice"):
        plain = segmentation_loss(logits, label(0, 1, 2, 255), kind)
        assert Marginal(LOSSES[kind], ((0, 1, 2),))(logits, label(0, 1, 2, 255)) == plain


def test_one_group_of_all_classes_teaches_nothing(logits):
    Marginal(LOSSES["ce"], ((0, 0, 0),))(logits, label(0)).backward()

    assert logits.grad.abs().max() < 1e-7


def test_any_loss_sees_logits_and_labels_of_the_groups(logits):
    seen = []
    Marginal(lambda *both: seen.extend(both), (CUP,))(logits, label(0, 2, 255))

    assert seen[0].shape == (2, 2, 8, 8)
    assert torch.allclose(seen[0].softmax(1)[:, 1], logits.softmax(1)[:, 2])
    assert seen[1].dtype == torch.uint8
    assert seen[1].unique().tolist() == [0, 1, 255]


def test_groupings_count_by_their_labelled_pixels(logits):
    disc, cup = label(0, 1)[:1], label(0, 2)[1:]
    cup[0, :4] = 255
    mixed = torch.cat((disc, torch.where(cup == 255, 255, cup + 3)))

    found = Marginal(LOSSES["ce"], (DISC, CUP))(logits, mixed)
    parts = [
        Marginal(LOSSES["ce"], (groups,))(logits[n : n + 1], each)
        for n, (groups, each) in enumerate([(DISC, disc), (CUP, cup)])
    ]
    assert found.item() == pytest.approx((parts[0] * 64 + parts[1] * 32).item() / 96, abs=1e-6)


def test_without_a_labelled_pixel_groupings_cost_nothing(logits):
    found = Marginal(LOSSES["ce"], (DISC, CUP))(logits, label(255))

    assert found == 0


def test_labels_that_no_group_has_are_refused(logits):
    with pytest.raises(LabelError):
        Marginal(LOSSES["ce"], (CUP,))(logits, label(0, 1))
    with pytest.raises(LabelError, match="2 classes are grouped, the network has 3"):
        grouped(logits, label(0), (0, 0))


def test_half_precision_is_summed_in_float32(logits):
    found, _ = grouped(logits.bfloat16(), label(0), DISC)

    assert found.dtype == torch.float32
