import numpy as np
import pytest

from polyclinic.masks import UNLABELLED
from polyclinic.weak import PRESETS, weaken
from tests.weak.masks import blob, disc_and_cup

MASKS = {"octa": blob(256), "fundus": disc_and_cup(384)}
CASES = [(preset, *about) for preset, known in PRESETS.items() for about in known]


def draw(mask, kind, task, preset="released"):
    return weaken(mask, kind, np.random.default_rng(0), task, preset=preset)


@pytest.mark.parametrize(("preset", "task", "kind"), CASES)
def test_a_preset_draws_without_dice(preset, task, kind):
    mask = MASKS[task]
    first = weaken(mask, kind, np.random.default_rng(0), task, preset=preset)
    second = weaken(mask, kind, np.random.default_rng(1), task, preset=preset)

    assert np.array_equal(first, second)
    labelled = first != UNLABELLED
    assert (first[labelled] == mask[labelled]).mean() > 0.99


def test_the_published_blocks_are_eroded_off_their_middle():
    mask = np.zeros((256, 256), np.uint8)
    mask[100:160, 110:150] = 1

    for preset, rows in (("released", (110, 153)), ("released-tall", (119, 147))):
        found = np.argwhere(draw(mask, "block", "octa", preset) == 1)
        assert found.min(axis=0).tolist() == [rows[0], 111]
        assert found.max(axis=0).tolist() == [rows[1] - 1, 148]


def test_the_published_box_is_grown_one_pixel_more_downwards():
    mask = np.zeros((256, 256), np.uint8)
    mask[100:160, 110:150] = 1
    label = draw(mask, "box-block", "octa")

    near = np.argwhere(label != 0)
    assert near.min(axis=0).tolist() == [75, 85]
    assert near.max(axis=0).tolist() == [159 + 26, 149 + 26]


def test_at_the_border_boxes_and_points_are_cut():
    mask = np.zeros((256, 256), np.uint8)
    mask[:40, 100:140] = 1

    assert (draw(mask, "box-block", "octa") == 1).any()
    assert (draw(mask, "point", "octa") == 0).sum() == 3 * 13


@pytest.mark.parametrize(("task", "kind"), [("octa", "point"), ("fundus", "point")])
def test_a_class_that_is_missing_is_said(task, kind):
    with pytest.raises(ValueError, match="every class of its task"):
        draw(np.zeros((64, 64), np.uint8), kind, task)
