"""Terms that stand in for labels: their units, and what they leave alone."""

import pytest
import torch

from polyclinic.config import WeakSettings
from polyclinic.losses import Seen, crf_energy, gated_crf, pseudo_dice, tree_filtered, weak_terms
from polyclinic.losses.box_tightness import box_tightness, told_boxes


def disc(side, radius=0.25):
    """A bright disc in the middle of a dark image, smooth at its border, and its true classes."""
    places = (torch.arange(side, dtype=torch.float64) + 0.5) / side - 0.5
    away = (places[:, None].square() + places.square()).sqrt()
    image = torch.sigmoid((radius - away) * 40)[None, None]
    inside = (away < radius).double()
    return image, torch.stack([1 - inside, inside])[None]


def test_no_term_is_on_by_default_and_each_alone_is_one():
    assert not WeakSettings().on
    for name in ("crf", "tree", "box_tightness", "pseudo_labels"):
        assert WeakSettings(**{name: 0.1}).on


@pytest.mark.parametrize("settings", [WeakSettings(), WeakSettings(crf_alike=0.2)])
def test_a_border_costs_the_crf_about_the_same_at_every_resolution(settings):
    found = [float(crf_energy(settings, disc(side)[1], disc(side)[0])) for side in (96, 192, 384)]
    assert max(found) < 1.25 * min(found)


def test_the_published_window_at_its_size_has_the_published_energy():
    image, truth = disc(256)
    published = WeakSettings(crf_reach=5 / 256, crf_near=6 / 256, crf_alike=0.1)
    expected = gated_crf(truth, image, radius=5, sigma_xy=6.0, sigma_rgb=0.1)
    torch.testing.assert_close(crf_energy(published, truth, image), expected)


def test_more_channels_of_the_same_change_neither_crf_nor_trees():
    image, truth = disc(32)
    image = image + 0.05 * torch.rand(image.shape, generator=torch.Generator().manual_seed(0))
    three = image.repeat(1, 3, 1, 1)
    settings = WeakSettings()
    inside = torch.ones(1, 32, 32, dtype=torch.bool)
    energies = [crf_energy(settings, truth, each, inside) for each in (image, three)]
    torch.testing.assert_close(*energies)
    filtered = [tree_filtered(settings, truth, [each]) for each in (image, three)]
    torch.testing.assert_close(*filtered)
    torch.testing.assert_close(tree_filtered(settings, truth, [5 * image - 2]), filtered[0])


def test_an_image_without_any_step_is_filtered_to_its_mean():
    truth = disc(16)[1]
    filtered = tree_filtered(WeakSettings(), truth, [torch.full((1, 1, 16, 16), 0.3)])
    torch.testing.assert_close(filtered, truth.mean((2, 3), keepdim=True).expand_as(truth))


def test_pseudo_labels_need_two_branches_and_are_then_their_dice():
    rng = torch.Generator().manual_seed(0)
    logits, second = torch.randn(2, 2, 2, 8, 8, generator=rng)
    labels = torch.full((2, 8, 8), 255, dtype=torch.uint8)
    settings = WeakSettings(pseudo_labels=0.5, least_share=0.2)
    assert weak_terms(settings, Seen(logits, logits[:, :1], labels)) == 0
    torch.manual_seed(1)
    found = weak_terms(settings, Seen(logits, logits[:, :1], labels, second=second))
    torch.manual_seed(1)
    expected = 0.5 * pseudo_dice(logits.softmax(1), second.softmax(1), low=0.2)
    assert torch.equal(found, expected)


def box_label(angle=0):
    """A label of the kind box-block: the central third of a box of 24 × 12 pixels, maybe turned."""
    rows, columns = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    turn = torch.deg2rad(torch.tensor(float(angle)))
    down, right = rows - 23.5, columns - 23.5
    along = torch.cos(turn) * down - torch.sin(turn) * right
    across = torch.sin(turn) * down + torch.cos(turn) * right
    label = torch.full((48, 48), 255, dtype=torch.uint8)
    label[(along.abs() > 16) | (across.abs() > 10)] = 0
    label[(along.abs() < 4) & (across.abs() < 2)] = 1
    return label, along, across


@pytest.mark.parametrize("angle", [0, 30])
def test_objects_that_fill_their_box_are_tight_and_smaller_ones_are_not(angle):
    label, along, across = box_label(angle)
    (box,) = told_boxes(label.numpy(), 1 / 3)
    assert sorted((box.height, box.width)) == pytest.approx([12, 24], abs=1.5 if angle else 0.1)

    def missed(inside):
        maps = torch.stack([~inside, inside]).float()[None]
        return float(box_tightness(maps, label[None], "box-block"))

    ellipse = (along / 12).square() + (across / 6).square()
    assert missed(ellipse < 1) < 0.02
    assert missed(ellipse < 0.25) == pytest.approx(0.5, abs=0.15)
    assert missed(ellipse < 0) == 1


def test_tightness_draws_the_likeliest_pixel_of_every_line_and_no_other():
    label, along, across = box_label()
    maps = torch.full((1, 2, 48, 48), 0.5)
    maps[0, 1, 24] = 0.6
    maps.requires_grad_()
    box_tightness(maps, label[None], "box-block").backward()
    assert not maps.grad[0, 0].any()
    assert maps.grad[0, 1].max() <= 0
    assert not maps.grad[0, 1][(along.abs() > 12) | (across.abs() > 6)].any()
    assert maps.grad[0, 1, 24, 19:29].lt(0).all()


@pytest.mark.parametrize("kind", ["point", "scribble", "block", "box-scribble", "mixed"])
def test_labels_that_tell_no_box_have_no_tightness(kind):
    label = box_label()[0]
    maps = torch.full((1, 2, 48, 48), 0.5)
    assert box_tightness(maps, label[None], kind) == 0


def test_a_box_at_the_border_of_the_image_does_not_count():
    label = torch.full((16, 16), 255, dtype=torch.uint8)
    label[0:4, 5:9] = 1
    assert not list(told_boxes(label.numpy(), 1 / 3))
    assert box_tightness(torch.full((1, 2, 16, 16), 0.5), label[None], "box-block") == 0
