import subprocess
import sys

import numpy as np
import pytest

from polyclinic.data.preparing import prepare
from polyclinic.data.tasks import TASKS, Task

PLAIN = Task(name="plain", channels=3, classes=("background", "thing"), resolution=32)


def an_image(shape=(3, 40, 60), dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(3, 200, shape).astype(dtype)


def framed(image, border, value=0):
    """The image with a border around it, rows above and below, columns left and right."""
    return np.pad(image, ((0, 0), *border), constant_values=value)


def test_stretching_fills_the_square():
    ready = prepare(an_image(), PLAIN)

    assert ready.pixels.shape == (3, 32, 32)
    assert ready.view is None
    assert ready.geometry.pixel == (40 / 32, 60 / 32)


def test_padding_keeps_the_ratio_and_fills_the_rest_with_what_the_task_says():
    ready = prepare(an_image(), PLAIN.changed(fit="pad", fill=0.25))
    square = ready.normalised()
    place = ready.geometry.place

    assert place == (5, 0, 21, 32)
    assert ready.geometry.pixel[0] == pytest.approx(ready.geometry.pixel[1], rel=0.05)
    assert np.allclose(np.delete(square, range(5, 26), axis=1), 0.25, atol=0.5 / ready.scale[0])
    assert (square[:, 5:26].min(), square[:, 5:26].max()) == (0, 1)


def test_what_is_not_image_is_out_of_view():
    view = prepare(an_image(), PLAIN.changed(fit="pad")).view

    assert view[5:26].all()
    assert not view[:5].any()
    assert not view[26:].any()


@pytest.mark.parametrize("value", [0, 255])
def test_cropping_takes_a_border_of_one_value_away(value):
    image = framed(an_image((3, 30, 30)), ((4, 6), (20, 10)), value)
    ready = prepare(image, PLAIN.changed(fit="crop"))

    assert ready.geometry.box == (4, 20, 30, 30)
    assert ready.geometry.fills
    assert np.array_equal(ready.pixels, prepare(an_image((3, 30, 30)), PLAIN).pixels)


def test_cropping_takes_a_dark_border_away_though_it_has_noise():
    noise = np.random.default_rng(1).integers(0, 5, (3, 60, 60), dtype=np.uint8)
    noise[:, 10:40, 20:60] = an_image((3, 30, 40)) + 50
    ready = prepare(noise, PLAIN.changed(fit="crop", dark=0.05))

    assert ready.geometry.box == (10, 20, 30, 40)


def test_an_image_that_is_all_border_is_kept_whole():
    image = np.full((3, 20, 30), 7, np.uint8)

    assert prepare(image, PLAIN.changed(fit="crop")).geometry.box == (0, 0, 20, 30)


@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("shape", [(40, 60), (90, 33), (16, 16)])
def test_masks_come_back_where_they_were(fit, shape):
    image = framed(an_image((3, *shape)), ((8, 8), (4, 0)))
    mask = np.zeros(image.shape[1:], np.uint8)
    mask[12:20, 8:14] = 1
    mask[15:20, 8:14] = 2
    geometry = prepare(image, PLAIN.changed(fit=fit, resolution=256)).geometry
    square = geometry.mask_there(mask)
    probabilities = np.stack([square == number for number in range(3)]).astype(np.float32)
    probabilities[0] += square == 255
    back = geometry.probabilities_back(probabilities)

    assert np.array_equal(back.argmax(axis=0), mask)
    assert np.allclose(back.sum(axis=0), 1, atol=1e-6)


def test_beyond_the_content_a_prediction_is_background():
    geometry = prepare(framed(an_image((1, 6, 6)), ((2, 2), (2, 2))), PLAIN.changed(
        channels=1, fit="crop", resolution=8
    )).geometry  # fmt: skip
    back = geometry.probabilities_back(np.stack([np.zeros((8, 8)), np.ones((8, 8))]))

    assert np.array_equal(back.argmax(axis=0), np.pad(np.ones((6, 6)), 2))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_minmax_and_standard_are_joint_over_channels(dtype):
    image = an_image((3, 32, 32), dtype)
    ready = prepare(image, PLAIN).normalised()
    assert (ready.min(), ready.max()) == (0, 1)
    assert np.allclose(ready, (image - image.min()) / (image.max() - np.float32(image.min())))

    ready = prepare(image, PLAIN.changed(normalisation="standard")).normalised()
    assert np.allclose((ready.mean(), ready.std()), (0, 1), atol=1e-5)


def test_channelwise_gives_every_channel_mean_0_and_deviation_1():
    image = an_image((3, 32, 32), np.float32) * np.array([1, 10, 100], np.float32)[:, None, None]
    ready = prepare(image, PLAIN.changed(normalisation="channelwise")).normalised()

    assert np.allclose(ready.mean(axis=(1, 2)), 0, atol=1e-5)
    assert np.allclose(ready.std(axis=(1, 2)), 1, atol=1e-5)


def test_percentiles_clip_what_lies_beyond():
    image = an_image((3, 32, 32), np.float32)
    image[0, 0, :3] = 1e6
    task = PLAIN.changed(normalisation="percentile", percentiles=(5.0, 95.0))
    low, high = np.percentile(image, (5, 95))
    ready = prepare(image, task).normalised()

    assert np.allclose(ready, np.clip((image - low) / (high - low), 0, 1), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_window_is_the_same_for_every_image(dtype):
    image = an_image((3, 32, 32), dtype)
    task = PLAIN.changed(normalisation="window", window=(50.0, 150.0))
    ready = prepare(image, task).normalised()

    assert np.allclose(ready, np.clip((image.astype(float) - 50) / 100, 0, 1), atol=1e-6)


@pytest.mark.parametrize("how", ["minmax", "standard", "channelwise", "percentile"])
def test_a_constant_image_becomes_0(how):
    ready = prepare(np.full((3, 8, 8), 9, np.uint8), PLAIN.changed(normalisation=how))

    assert not ready.normalised().any()


def test_one_channel_brighter_than_dark_is_enough_to_be_in_view():
    image = np.zeros((3, 32, 32), np.uint8)
    image[1, :, 16:] = 14
    image[2, :8] = 200
    view = prepare(image, PLAIN.changed(dark=0.06)).view

    assert view[:8].all()
    assert view[:, 16:].all()
    assert not view[8:, :16].any()


def test_darkness_means_the_same_whatever_the_normalisation():
    image = an_image((3, 32, 32))
    views = [
        prepare(image, PLAIN.changed(dark=0.3, normalisation=how)).view
        for how in ("minmax", "standard", "percentile")
    ]

    assert 0.1 < views[0].mean() < 1
    assert np.array_equal(views[0], views[1])
    assert np.array_equal(views[0], views[2])


def test_a_view_that_is_given_counts_instead_of_darkness():
    view = np.zeros((64, 64), np.bool_)
    view[:32] = True
    seen = prepare(an_image((3, 64, 64)), PLAIN.changed(dark=0.3), view).view

    assert seen[:16].all()
    assert not seen[16:].any()


def test_preparing_needs_neither_torch_nor_any_reader_of_files():
    code = (
        "import sys, polyclinic.data.preparing\n"
        "assert not {'torch', 'h5py', 'PIL', 'scipy', 'numba'} & set(sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_papers_tasks_stretch_and_use_the_whole_range():
    assert {(task.fit, task.normalisation) for task in TASKS.values()} == {("stretch", "minmax")}
