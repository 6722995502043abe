from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.masks import UNLABELLED
from polyclinic.weak import KINDS, Box, Kind, label_boxes, sparsity_of, weaken
from polyclinic.weak.boxes import find_boxes
from polyclinic.weak.scribbles import scribbles
from polyclinic.weak.style import style_of
from tests.weak.masks import blob, disc_and_cup, nasty_masks

BOXED = [name for name, kind in KINDS.items() if kind.convert]
OTHERS = [name for name, kind in KINDS.items() if not kind.convert]
# As a task has them: one in which a class lies within another's outline, and one without.
TASKS = [
    None,
    "fundus",
    "octa",
    "polyp",
    SimpleNamespace(name="other", regions={"both": (1, 2), "second": (2,)}),
]
tasks = st.sampled_from(TASKS)
seeds = st.integers(0, 3)


def draw(mask, kind, seed=0, task=None, **settings):
    return weaken(mask, kind, np.random.default_rng(seed), task, **settings)


@given(nasty_masks(), st.sampled_from(list(KINDS)), tasks, seeds)
def test_every_class_of_the_mask_has_a_pixel_and_no_other_class_has(mask, kind, task, seed):
    label = draw(mask, kind, seed, task)

    assert label.shape == mask.shape
    assert label.dtype == np.uint8
    assert set(np.unique(label)) - {UNLABELLED} == set(np.unique(mask))


@given(nasty_masks(), st.sampled_from(OTHERS), tasks, seeds)
def test_labelled_pixels_agree_with_the_mask(mask, kind, task, seed):
    label = draw(mask, kind, seed, task)

    labelled = label != UNLABELLED
    assert (label[labelled] == mask[labelled]).all()


@given(nasty_masks(), st.sampled_from(BOXED), tasks, seeds)
def test_labels_out_of_boxes_agree_with_the_boxes(mask, kind, task, seed):
    label = draw(mask, kind, seed, task)

    boxes = find_boxes(mask, style_of(task), turned="rotated" in kind)
    for number in set(np.unique(label)) - {UNLABELLED}:
        # Of background what is outside all boxes, of a class what is inside one of its own.
        inside = [box.inside(mask.shape, margin=0.5) for box in boxes if number in (0, box.number)]
        meant = np.any([np.zeros(mask.shape, bool), *inside], axis=0) ^ (number == 0)
        wrong = (label == number) & ~meant & (mask != number)
        if number == 0:
            tight = np.any([mask < 0, *(box.inside(mask.shape) for box in boxes)], axis=0)
            wrong = (label == 0) & tight & (mask != 0)
        assert not wrong.any()


@given(nasty_masks(), st.sampled_from(list(KINDS)), tasks, seeds)
def test_the_generator_alone_decides_and_the_mask_is_left_alone(mask, kind, task, seed):
    before = mask.copy()
    first, again = draw(mask, kind, seed, task), draw(mask, kind, seed, task)

    assert np.array_equal(first, again)
    assert np.array_equal(mask, before)


@given(nasty_masks(), st.sampled_from(list(KINDS)))
def test_what_a_mask_leaves_unlabelled_is_no_class(mask, kind):
    mask[:, ::3] = UNLABELLED

    label = draw(mask, kind)
    assert set(np.unique(label)) - {UNLABELLED} == set(np.unique(mask)) - {UNLABELLED}
    assert (label[mask == UNLABELLED] == UNLABELLED).all()


@given(nasty_masks(), st.sampled_from(["scribble2"]), tasks, seeds)
def test_the_ragged_scribble_is_part_of_the_scribble_of_the_same_dice(mask, kind, task, seed):
    whole, ragged = draw(mask, "scribble", seed, task), draw(mask, kind, seed, task)

    # But for a class that would have nothing left.
    alone = {number for number in np.unique(ragged) if (ragged == number).sum() == 1}
    kept = (ragged != UNLABELLED) & ~np.isin(ragged, list(alone))
    assert (ragged[kept] == whole[kept]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("task", "mask"), [("fundus", disc_and_cup), ("octa", blob), ("polyp", blob), (None, blob)]
)
def test_a_label_keeps_its_character_at_any_size(kind, task, mask):
    def shares(side):
        labels = [draw(mask(side), kind, seed, task) for seed in range(6)]
        return [np.mean([label == number for label in labels]) for number in np.unique(mask(64))]

    for small, large in zip(shares(96), shares(384), strict=True):
        assert large / 2.1 < small < large * 2.1


def test_the_order_of_memory_does_not_matter():
    mask = disc_and_cup(48)

    for kind in KINDS:
        turned = draw(np.asfortranarray(mask), kind, 0, "fundus")
        assert np.array_equal(turned, draw(mask, kind, 0, "fundus"))


def test_unknown_names_are_refused_with_the_nearest():
    mask = disc_and_cup(16)
    with pytest.raises(ValueError, match=r'no kind "scrible"; .*did you mean "scribble"\?'):
        draw(mask, "scrible")
    with pytest.raises(ValueError, match=r'no task "fundsu"; .*did you mean "fundus"\?'):
        draw(mask, "box", task="fundsu")


@pytest.mark.parametrize("wrong", [np.zeros((0, 4), np.uint8), np.zeros((2, 2, 2), np.uint8)])
def test_what_is_no_mask_is_refused(wrong):
    with pytest.raises(ValueError, match="a mask is H×W and uint8"):
        draw(wrong, "box")


def test_numbers_that_are_not_bytes_are_refused():
    with pytest.raises(ValueError, match="not float64"):
        draw(np.zeros((4, 4)), "box")


@pytest.mark.parametrize("kind", BOXED)
def test_boxes_of_an_annotator_make_the_label_that_the_masks_boxes_make(kind):
    mask = disc_and_cup(64)
    boxes = find_boxes(mask, style_of("fundus"), turned="rotated" in kind)

    label = label_boxes(boxes, mask.shape, kind, np.random.default_rng(0), "fundus")
    assert np.array_equal(label, draw(mask, kind, 0, "fundus"))


def test_boxes_make_boxed_kinds_only():
    with pytest.raises(ValueError, match="they make box, rotated-box, box-block"):
        label_boxes([Box(1, 4, 4, 2, 2)], (8, 8), "point", np.random.default_rng(0))


def test_each_kind_says_what_it_is_and_what_it_costs():
    for kind in KINDS.values():
        assert kind.summary
        assert kind.cost


def test_a_kind_says_how_sparse_it_is_and_is_medium_where_it_does_not(monkeypatch):
    monkeypatch.setitem(KINDS, "smear", Kind(scribbles, "a smear", "1 stroke"))
    kinds = ("point", "scribble", "box-scribble", "block", "mask", "smear", "files of their own")
    assert [sparsity_of(kind) for kind in kinds] == [
        "sparse", "medium", "medium", "dense", "dense", "medium", "medium",
    ]  # fmt: skip
