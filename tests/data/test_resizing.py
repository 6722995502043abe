import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from polyclinic.data.resizing import (
    resized_image,
    resized_label,
    resized_mask,
    triangle_weights,
)
from polyclinic.masks import UNLABELLED

SHAPES = [(96, 64), (20, 40), (48, 48), (1, 5), (33, 32), (200, 31)]


def by_pillow(image, size, how=Image.Resampling.BILINEAR):
    return np.stack([np.asarray(Image.fromarray(plane).resize(size[::-1], how)) for plane in image])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (17, 50)])
def test_eight_bits_are_within_one_grey_level_of_pillow(shape, size):
    image = np.random.default_rng(0).integers(0, 256, (3, *shape), dtype=np.uint8)
    resized = resized_image(image, size)

    assert resized.dtype == np.uint8
    assert abs(resized.astype(int) - by_pillow(image, size)).max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_floats_are_resized_like_pillow_and_torch_do(shape):
    image = np.random.default_rng(0).random((3, *shape), dtype=np.float32) * 1000
    torch_image = torch.from_numpy(image)[None]
    theirs = interpolate(torch_image, (32, 32), mode="bilinear", antialias=True)[0].numpy()

    assert resized_image(image, (32, 32)).dtype == np.float32
    assert np.allclose(resized_image(image, (32, 32)), by_pillow(image, (32, 32)), atol=1e-3)
    assert np.allclose(resized_image(image, (32, 32)), theirs, atol=1e-2)


def test_resizing_is_two_products_with_the_weights():
    image = np.random.default_rng(0).random((2, 70, 45), dtype=np.float32)
    product = triangle_weights(70, 40) @ image @ triangle_weights(45, 50).T

    assert np.allclose(resized_image(image, (40, 50)), product, atol=1e-6)
    assert np.allclose(triangle_weights(70, 40).sum(axis=1), 1)


def test_the_right_size_is_left_alone_bit_by_bit():
    image = np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)

    assert resized_image(image, (32, 32)) is image
    assert resized_mask(image[0], (32, 32)) is not None
    assert np.array_equal(resized_mask(image[0], (32, 32)), image[0])


@pytest.mark.parametrize("shape", [(97, 61), (19, 41), (7, 301)])
def test_masks_take_the_class_of_the_nearest_pixel_as_pillow_does(shape):
    mask = np.random.default_rng(0).integers(0, 3, shape, dtype=np.uint8)
    theirs = by_pillow(mask[None], (32, 48), Image.Resampling.NEAREST)[0]

    assert np.array_equal(resized_mask(mask, (32, 48)), theirs)


def test_a_point_of_one_pixel_stays_where_it_was_put():
    label = np.full((200, 100), UNLABELLED, dtype=np.uint8)
    label[120, 3] = 1
    label[118:121, 78:82] = 2  # on the corner of four pixels to be
    small = resized_label(label, (20, 20))

    assert small[12, 0] == 1
    assert small[11, 15] == 2
    assert (small != UNLABELLED).sum() == 2
    assert (resized_mask(label, (20, 20)) == UNLABELLED).all()  # which is why


@pytest.mark.parametrize(("shape", "size"), [((97, 61), (32, 48)), ((300, 200), (20, 30))])
def test_every_mark_has_its_class_at_its_place_or_beside_it(shape, size):
    rng = np.random.default_rng(0)
    label = np.full(shape, UNLABELLED, dtype=np.uint8)
    rows, columns = rng.integers(0, shape[0], 40), rng.integers(0, shape[1], 40)
    for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
        label[row : row + 2, column : column + 9] = number % 3  # thin strokes, some over others
    small, nearest = resized_label(label, size), resized_mask(label, size)

    assert np.array_equal(small[nearest != UNLABELLED], nearest[nearest != UNLABELLED])
    lost = 0
    for row, column in np.argwhere(label != UNLABELLED):
        top, left = row * size[0] // shape[0], column * size[1] // shape[1]
        around = (slice(max(0, top - 1), top + 2), slice(max(0, left - 1), left + 2))
        own = label[row, column]
        assert own in small[around] or small[top, left] != UNLABELLED
        lost += own not in nearest[around]
    assert lost or size == (32, 48)  # the coarser square would have lost some


def test_a_label_of_the_right_size_or_without_gaps_is_that_of_masks():
    label = np.random.default_rng(0).choice(np.array([0, 1, 255], dtype=np.uint8), (40, 40))
    full = np.where(label == UNLABELLED, np.uint8(0), label)

    assert np.array_equal(resized_label(label, (40, 40)), label)
    assert np.array_equal(resized_label(full, (16, 16)), resized_mask(full, (16, 16)))
