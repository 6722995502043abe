import numpy as np
import pytest
from scipy import ndimage

from polyclinic.data.pictures import (
    CLASSES,
    PREDICTED,
    TRUE,
    as_picture,
    colour_of,
    compared,
    draw_classes,
    draw_contours,
    draw_heat,
    draw_label,
)
from polyclinic.data.tasks import TASKS

BLACK = np.zeros((40, 40, 3), np.uint8)


def disc(row=20, column=20, radius=9, side=40):
    rows, columns = np.mgrid[:side, :side]
    return np.hypot(rows - row, columns - column) < radius


def where(picture, colour):
    return (picture == np.array(colour)).all(axis=2)


def test_colour_images_keep_their_pixels():
    image = np.random.default_rng(0).integers(0, 256, (3, 8, 9), dtype=np.uint8)

    assert np.array_equal(as_picture(image), image.transpose(1, 2, 0))


def test_grey_floats_span_black_to_white():
    picture = as_picture(np.linspace(-3, 5, 64, dtype=np.float32).reshape(1, 8, 8))

    assert picture.shape == (8, 8, 3)
    assert (picture.min(), picture.max()) == (0, 255)


def test_constant_floats_and_other_sizes_are_no_problem():
    assert as_picture(np.ones((1, 8, 8), np.float32), side=32).shape == (32, 32, 3)


def test_the_contour_is_the_regions_border_pixels():
    region = disc()
    border = region & ~ndimage.binary_erosion(region)

    assert np.array_equal(where(draw_contours(BLACK, region, TRUE), TRUE), border)


def test_the_outer_contour_is_just_beyond_the_region():
    region = disc()
    ring = ndimage.binary_dilation(region, iterations=2) & ~region

    drawn = draw_contours(BLACK, region, TRUE, width=2, outside=True)
    assert np.array_equal(where(drawn, TRUE), ring)


def test_regions_that_touch_the_border_are_closed_along_it():
    region = np.zeros((40, 40), bool)
    region[:10, :10] = True

    assert where(draw_contours(BLACK, region, TRUE), TRUE)[0, :10].all()


def test_nothing_is_drawn_for_an_empty_region_and_the_picture_stays():
    assert not draw_contours(BLACK, np.zeros((40, 40), bool), TRUE).any()
    draw_contours(BLACK, disc(), TRUE)
    assert not BLACK.any()


def test_smaller_regions_are_enlarged_to_the_picture():
    drawn = draw_contours(np.zeros((80, 80, 3), np.uint8), disc(), TRUE)

    assert where(drawn, TRUE)[40].any()


def test_true_and_predicted_contours_are_both_seen_even_where_they_agree():
    mask = disc(side=64, row=32, column=32, radius=15).astype(np.uint8)
    picture = compared(np.zeros((1, 64, 64), np.uint8), mask, mask, TASKS["octa"])

    assert picture.shape == (384, 384, 3)
    assert where(picture, TRUE).sum() > 300
    assert where(picture, PREDICTED).sum() > 300


def test_labels_tint_only_what_they_label():
    label = np.full((40, 40), 255, np.uint8)
    label[:5] = 0
    label[10:15] = 1
    grey = np.full((40, 40, 3), 200, np.uint8)

    drawn = draw_label(grey, label, classes=2)
    assert (drawn[20:] == 200).all()
    assert (drawn[:5, :, 2] > 200).all()
    assert (drawn[:5, :, :2] < 130).all()
    assert drawn[12, 0, 1] > drawn[12, 0, 0]


def test_heat_is_blue_where_it_is_low_and_yellow_where_it_is_high():
    image = np.full((1, 32, 32), 128, np.uint8)
    heat = np.array([[0.0, 5.0], [0.0, 5.0]])
    picture = draw_heat(image, heat, side=64).astype(int)
    assert picture.shape == (64, 64, 3)
    yellow = picture[:, :, 0] - picture[:, :, 2]
    assert (yellow[:, :8] < 0).all()
    assert (yellow[:, -8:] > 0).all()


def test_heat_of_one_value_everywhere_still_shows_the_image():
    image = np.linspace(0, 255, 32 * 32).astype(np.uint8).reshape(1, 32, 32)
    picture = draw_heat(image, np.ones((4, 4)), side=32)
    assert picture[-1].mean() > picture[0].mean() + 50


def test_classes_without_order_have_their_own_colours_and_none_between():
    image = np.full((1, 32, 32), 128, np.uint8)
    numbers = np.array([[0, 11], [5, 11]])
    picture = draw_classes(image, numbers, side=63)
    colours = {tuple(pixel) for pixel in picture.reshape(-1, 3)}
    assert len(colours) == 3
    alone = draw_classes(image, np.array([[11]]), side=63)
    assert (picture[:, -1] == alone[:, -1]).all()  # the same number, the same colour


def test_two_dozen_classes_without_order_differ():
    image = np.full((1, 32, 32), 128, np.uint8)
    picture = draw_classes(image, np.arange(24).reshape(4, 6), side=96)
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 3)}) == 24


# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear light.
BLIND = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def as_lab(colours, seen_by):
    """CIE Lab (D65) of 8-bit sRGB colours as someone sees them."""
    shares = np.array(colours) / 255
    linear = np.where(shares > 0.04045, ((shares + 0.055) / 1.055) ** 2.4, shares / 12.92)
    linear = (linear @ np.array(seen_by).T).clip(0, 1)
    x, y, z = (np.cbrt((linear @ np.array(TO_XYZ).T) / (0.9505, 1.0, 1.089))).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


@pytest.mark.parametrize("eyes", [np.eye(3), *BLIND.values()], ids=["all", *BLIND])
def test_colour_blind_eyes_tell_classes_without_order_apart(eyes):
    seen = as_lab(CLASSES, eyes)
    for number, one in enumerate(seen):
        assert all(np.linalg.norm(one - other) > 15 for other in seen[:number])


def test_every_class_has_a_colour_of_its_own():
    colours = {colour_of(number) for number in range(254)}

    assert len(colours) == 254
    assert colour_of(0) == TRUE


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_images_of_any_number_of_channels_make_a_picture(channels):
    image = np.random.default_rng(0).random((channels, 8, 8))

    assert as_picture(image).shape == (8, 8, 3)
