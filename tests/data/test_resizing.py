import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from polyclinic.data.resizing import resized_image, resized_mask, triangle_weights

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
