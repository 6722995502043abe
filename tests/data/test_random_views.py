import pytest
import torch
from scipy.ndimage import gaussian_filter

from polyclinic.data.random_views import Views, blurred

STILL = Views(smallest=1.0, flips=False, colour=0.0, blur=0.0)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def images(channels=3, count=4, side=32):
    return torch.rand(count, channels, side, side, generator=rng(9))


@pytest.mark.parametrize("channels", [1, 3])
def test_views_have_the_shape_of_their_images_and_are_drawn_from_the_generator_alone(channels):
    batch = images(channels)
    first, again, other = (Views().draw(batch, rng(seed)) for seed in (0, 0, 1))
    assert first.shape == batch.shape
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all(not torch.allclose(first[0], each) for each in batch)


def test_with_everything_off_a_view_is_its_image():
    batch = images()
    torch.testing.assert_close(STILL.draw(batch, rng()), batch, atol=1e-5, rtol=0)


def test_flips_mirror_rows_and_columns_and_nothing_else():
    batch = images(count=32)
    views = Views(smallest=1.0, flips=True, colour=0.0, blur=0.0).draw(batch, rng())
    ways = {axes: batch.flip(axes) for axes in ((), (2,), (3,), (2, 3))}
    found = set()
    for number, view in enumerate(views):
        (way,) = [
            axes for axes, each in ways.items() if torch.allclose(view, each[number], atol=1e-5)
        ]
        found.add(way)
    assert found == set(ways)


def test_a_crop_lies_inside_its_image_and_has_at_least_the_smallest_share():
    side = 64
    down, right = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    batch = torch.stack((down, right, down)).float().expand(50, -1, -1, -1)
    crops = Views(smallest=0.25, flips=False, colour=0.0, blur=0.0).draw(batch, rng())
    spans = (crops[:, :2].amax((2, 3)) - crops[:, :2].amin((2, 3)) + 1) / side
    assert crops.min() >= 0
    assert crops.max() <= side - 1
    assert spans.min() >= 0.5 - 1 / side
    assert spans.min() < 0.7 < 0.9 < spans.max()
    torch.testing.assert_close(spans[:, 0], spans[:, 1], atol=2 / side, rtol=0)


def test_grey_images_keep_their_order_of_brightness_and_colour_images_their_hue_order():
    grey = Views(smallest=1.0, flips=False, blur=0.0).draw(images(1), rng()).flatten(1)
    for view, image in zip(grey, images(1).flatten(1), strict=True):
        ranks = view[image.argsort()]
        assert (ranks.diff() >= -1e-4).all()


def test_changes_of_colour_do_not_depend_on_the_scale_of_the_values():
    views = Views(smallest=1.0, flips=False, blur=0.0)
    for channels in (1, 3):
        batch = images(channels)
        scaled = views.draw(batch * 7 - 3, rng())
        torch.testing.assert_close(views.draw(batch, rng()) * 7 - 3, scaled, atol=1e-3, rtol=1e-3)


def test_constant_images_are_no_trouble():
    assert Views().draw(torch.zeros(3, 1, 16, 16), rng()).isfinite().all()


def test_blurring_is_a_gaussian_of_each_image_s_own_deviation():
    batch = images(count=2, side=48)
    deviations = torch.tensor([0.0, 1.7])
    found = blurred(batch, deviations)
    torch.testing.assert_close(found[0], batch[0])
    plane = gaussian_filter(batch[1, 0].numpy(), 1.7, mode="mirror", radius=4)
    torch.testing.assert_close(found[1, 0], torch.from_numpy(plane), atol=1e-5, rtol=0)
    assert blurred(batch, torch.zeros(2)) is batch


@pytest.mark.parametrize("channels", [1, 3])
def test_mixed_precision_leaves_views_as_they_are(channels):
    batch = images(channels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = Views().draw(batch, rng())
    assert torch.equal(mixed, Views().draw(batch, rng()))
