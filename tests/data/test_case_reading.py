import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from polyclinic.data.case_reading import (
    normalisation,
    read_content,
    read_contents,
    resized_image,
    resized_mask,
)
from polyclinic.data.folder import read_site
from polyclinic.data.tasks import TASKS
from tests.data.folders import write_labels, write_picture, write_site

FUNDUS = TASKS["fundus"]


@pytest.fixture
def folder(tmp_path):
    return write_site(tmp_path / "alpha", 2)


def mistakes(folder, kinds=()):
    contents = read_contents(read_site(folder).cases, FUNDUS, kinds)
    return [(file.name, text) for content in contents for file, text in content.mistakes]


def test_good_cases_have_no_findings(folder):
    write_labels(folder, "point")

    content = read_content(read_site(folder).cases[0], FUNDUS, ("point",))
    assert (content.mistakes, content.warnings) == ([], [])
    assert content.image.shape == (3, 32, 32)
    assert content.size == (32, 32)
    assert content.labels["point"].shape == (32, 32)


def test_only_labels_asked_for_are_read(folder):
    write_labels(folder, "point")

    assert read_content(read_site(folder).cases[0], FUNDUS, ()).labels == {}


def test_sizes_must_agree(folder):
    write_picture(folder / "masks" / "01.png", np.zeros((16, 20), np.uint8))

    assert mistakes(folder) == [("01.png", "is 16×20 pixels, its image 32×32")]


def test_unknown_classes_are_named_with_the_known_ones(folder):
    write_picture(folder / "masks" / "00.png", np.full((32, 32), 7, np.uint8))

    assert mistakes(folder) == [
        ("00.png", "has the value 7; a mask has 0 background, 1 rim, 2 cup")
    ]


def test_255_in_a_mask_is_explained(folder):
    write_picture(folder / "masks" / "00.png", np.diag([255] * 32).astype(np.uint8))

    assert "255 means unlabelled and belongs in labels/ only" in mistakes(folder)[0][1]


def test_labels_may_be_unlabelled_but_not_everywhere(folder):
    write_labels(folder, "point")
    write_picture(folder / "labels" / "point" / "00.png", np.full((32, 32), 255, np.uint8))
    write_picture(folder / "labels" / "point" / "01.png", np.full((32, 32), 9, np.uint8))

    assert mistakes(folder, ("point",)) == [
        ("00.png", "labels no pixel: all are 255"),
        ("01.png", "has the value 9; a label has 0 background, 1 rim, 2 cup, 255 unlabelled"),
    ]


def test_unreadable_files_are_mistakes_and_the_others_are_still_read(folder):
    write_labels(folder, "point")
    (folder / "images" / "00.png").write_text("broken")
    (folder / "masks" / "01.png").write_text("broken")
    (folder / "labels" / "point" / "01.png").write_text("broken")

    found = mistakes(folder, ("point",))
    assert [name for name, _ in found] == ["00.png", "01.png", "01.png"]
    assert all("cannot be read" in text for _, text in found)


def test_a_constant_image_is_a_warning(folder):
    write_picture(folder / "images" / "00.png", np.full((32, 32), 9, np.uint8))

    content = read_content(read_site(folder).cases[0], FUNDUS, ())
    assert content.mistakes == []
    assert content.warnings[0][1] == "every pixel has the same value"


def test_the_right_size_is_left_alone_bit_by_bit():
    image = np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)

    assert resized_image(image, 32) is image
    assert resized_mask(image[0], 32) is not None
    assert np.array_equal(resized_mask(image[0], 32), image[0])


@pytest.mark.parametrize("shape", [(96, 64), (20, 40), (48, 48)])
def test_images_are_resized_like_an_antialiased_bilinear_filter(shape):
    image = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    theirs = interpolate(torch.from_numpy(image)[None], (32, 32), mode="bilinear", antialias=True)[
        0
    ].numpy()

    assert np.allclose(resized_image(image, 32), theirs, atol=1e-5)
    small = resized_image((image * 255).astype(np.uint8), 32)
    assert small.dtype == np.uint8
    assert abs(small / 255 - theirs).max() < 0.02


@pytest.mark.parametrize("shape", [(96, 64), (20, 40)])
def test_masks_take_the_class_of_the_nearest_pixel(shape):
    mask = np.random.default_rng(0).integers(0, 3, shape, dtype=np.uint8)
    rows = ((np.arange(32) + 0.5) * shape[0] / 32).astype(int)
    columns = ((np.arange(32) + 0.5) * shape[1] / 32).astype(int)

    assert np.array_equal(resized_mask(mask, 32), mask[np.ix_(rows, columns)])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_normalisation_is_joint_over_channels(dtype):
    images = np.random.default_rng(0).integers(3, 200, (4, 3, 16, 16)).astype(dtype)

    offset, scale = normalisation(images, "minmax")
    ready = (images - offset[:, None, None, None]) / scale[:, None, None, None]
    assert (ready.min(axis=(1, 2, 3)) == 0).all()
    assert (ready.max(axis=(1, 2, 3)) == 1).all()

    offset, scale = normalisation(images, "standard")
    ready = (images - offset[:, None, None, None]) / scale[:, None, None, None]
    assert np.allclose(ready.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    assert np.allclose(ready.std(axis=(1, 2, 3)), 1, atol=1e-5)


@pytest.mark.parametrize("how", ["minmax", "standard"])
def test_constant_images_and_no_images_are_normalised_too(how):
    offset, scale = normalisation(np.full((1, 1, 4, 4), 9, np.uint8), how)
    none = normalisation(np.empty((0, 1, 4, 4), np.uint8), how)

    assert (offset, scale) == (9, 1)
    assert [part.shape for part in none] == [(0,), (0,)]


def test_equal_images_have_equal_digests(folder):
    first, second = read_contents(read_site(folder).cases, FUNDUS, ())

    assert first.digest() == read_content(first.case, FUNDUS, ()).digest()
    assert first.digest() != second.digest()
