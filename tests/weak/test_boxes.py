import numpy as np
from hypothesis import assume, given
from scipy import ndimage

from polyclinic.masks import UNLABELLED
from polyclinic.weak.box_kinds import as_blocks, as_scribbles, filled
from polyclinic.weak.boxes import Box, find_boxes
from polyclinic.weak.style import PLAIN, style_of
from tests.weak.masks import disc_and_cup, nasty_masks

FUNDUS = style_of("fundus")
RNG = np.random.default_rng(0)


@given(nasty_masks(classes=2))
def test_an_upright_box_is_as_tight_as_can_be(mask):
    numbers, _ = ndimage.label(mask == 1, np.ones((3, 3)))
    slices = sorted(
        ((rows.start, rows.stop, columns.start, columns.stop))
        for rows, columns in ndimage.find_objects(numbers)
    )
    boxes = sorted(
        (
            box.row - box.height / 2 + 0.5,
            box.row + box.height / 2 + 0.5,
            box.column - box.width / 2 + 0.5,
            box.column + box.width / 2 + 0.5,
        )
        for box in find_boxes(mask, PLAIN)
    )
    assert boxes == slices


@given(nasty_masks(classes=2))
def test_boxes_hold_all_pixels_of_their_objects(mask):
    for turned in (False, True):
        boxes = find_boxes(mask, PLAIN, turned=turned)
        inside = np.any([mask < 0, *(box.inside(mask.shape) for box in boxes)], axis=0)
        assert inside[mask == 1].all()


@given(nasty_masks(classes=2))
def test_no_turn_makes_a_smaller_box(mask):
    assume((mask == 1).any())
    (box,) = find_boxes(mask, style_of("octa"), turned=True)

    pixels = np.argwhere(mask == 1)
    corners = np.concatenate(
        [pixels + step for step in ((-0.5, -0.5), (-0.5, 0.5), (0.5, 0.5), (0.5, -0.5))]
    )
    for turn in np.radians(np.arange(-45, 45, 1.5)):
        down = corners @ [np.cos(turn), -np.sin(turn)]
        right = corners @ [np.sin(turn), np.cos(turn)]
        assert box.height * box.width <= np.ptp(down) * np.ptp(right) + 1e-6


def test_a_turned_rectangle_is_found():
    drawn = Box(1, row=50, column=60, height=30, width=60, angle=25)
    mask = drawn.inside((110, 120)).astype(np.uint8)
    (box,) = find_boxes(mask, PLAIN, turned=True)

    found = (box.row, box.column, box.height, box.width)
    assert np.allclose(found, (50, 60, 30, 60), atol=1.6)
    assert abs(box.angle - 25) < 1


def test_of_equally_small_boxes_the_upright_one_is_taken():
    mask = np.zeros((20, 20), np.uint8)
    mask[3:9, 4:12] = 1

    (box,) = find_boxes(mask, PLAIN, turned=True)
    assert abs(box.angle) < 1e-6


def test_the_rims_box_is_the_discs():
    mask = disc_and_cup(64)
    rim, cup = find_boxes(mask, FUNDUS)

    rows = np.flatnonzero((mask > 0).any(axis=1))
    assert (rim.number, cup.number) == (1, 2)
    assert rim.height == len(rows)


def test_objects_of_one_class_have_a_box_each_unless_they_are_one():
    mask = np.zeros((20, 30), np.uint8)
    mask[2:5, 2:5] = mask[12:16, 20:27] = 1

    assert len(find_boxes(mask, PLAIN)) == 2
    (whole,) = find_boxes(mask, style_of("octa"))
    assert (whole.height, whole.width) == (14, 25)


def test_filled_boxes_lie_on_background_and_small_ones_on_top():
    boxes = [Box(2, 10, 10, 4, 4), Box(1, 10, 10, 12, 8)]
    label = filled(boxes, (20, 20), RNG, FUNDUS)

    assert np.bincount(label.ravel()).tolist() == [400 - 117, 117 - 25, 25]


def test_blocks_are_a_boxs_central_third_and_background_well_off():
    box = Box(1, 60, 50, 30, 24)
    label = as_blocks([box], (128, 128), RNG, PLAIN)

    rows, columns = np.mgrid[:128, :128]
    core = (abs(rows - 60) <= 5) & (abs(columns - 50) <= 4)
    margin = PLAIN.margin * 128
    near = (abs(rows - 60) <= 15 + margin) & (abs(columns - 50) <= 12 + margin)
    assert np.array_equal(label == 1, core)
    assert np.array_equal(label == 0, ~near)
    assert (label[near & ~core] == UNLABELLED).all()


def test_background_comes_nearer_where_grown_boxes_fill_the_image():
    label = as_blocks([Box(1, 20, 20, 36, 30)], (40, 40), RNG, PLAIN)

    assert (label == 0).any()
    assert (label[4:36, 7:34] != 0).all()


def test_between_two_boxes_blocks_and_scribbles_go_round():
    mask = disc_and_cup(192, disc=0.3, cup=0.12, off=0)
    boxes = find_boxes(mask, FUNDUS)
    for convert in (as_blocks, as_scribbles):
        label = convert(boxes, mask.shape, np.random.default_rng(0), FUNDUS)
        rows, columns = np.nonzero(label == 1)
        radius = np.hypot(rows - 95.5, columns - 95.5) / 192
        assert radius.min() > 0.15
        assert radius.max() < 0.27
        angles = np.arctan2(rows - 95.5, columns - 95.5)
        assert len(np.unique((angles * 6 / np.pi).astype(int))) >= 11


def test_scribbles_out_of_boxes_stay_out_of_them_with_background():
    box = Box(1, 60, 60, 70, 80)
    label = as_scribbles([box], (128, 128), np.random.default_rng(0), PLAIN)

    assert not (label[box.inside((128, 128))] == 0).any()
    assert (label == 0).any()


def test_a_place_is_inside_or_not():
    box = Box(1, 10, 10, 4, 20, angle=45)

    assert box.holds(16, 16)
    assert not box.holds(4, 16)
