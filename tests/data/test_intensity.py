import numpy as np
import pytest
import torch
from scipy import ndimage

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment import augmented, draw_moves
from polyclinic.data.augment_kernels import move
from polyclinic.data.batches import batches
from polyclinic.data.intensity import draw_looks, ranges_of
from tests.data.augmenting import SIDE, cases, everything, moves
from tests.data.by_torch import altered, moved_by_torch

OFF = {"flips": False, "rotation": 0.0}
ALL = AugmentationSettings(gamma=0.7, contrast=0.4, noise=0.1, blur=1.5, low_resolution=0.6)
EACH = [
    {"gamma": 0.7},
    {"contrast": 0.4},
    {"noise": 0.1},
    {"blur": 1.5},
    {"low_resolution": 0.6},
]


def looks_of(data, augmentation, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return draw_looks(everything(data), ranges_of(data), augmentation, SIDE, rng)


def looking(data, augmentation, seed=0):
    """The cases as they lie, with other looks, and how these were drawn."""
    looks = looks_of(data, augmentation, seed)
    batch = augmented(data, everything(data), moves(len(data)), fill=0.0, looks=looks)
    return batch.images, looks


@pytest.mark.parametrize("settings", [*EACH, {}])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_compiled_way_gives_what_torch_gives(settings, channels):
    data = cases(count=8, channels=channels)
    augmentation = AugmentationSettings(**settings) if settings else ALL
    looks = looks_of(data, augmentation)
    both = draw_moves(8, augmentation, torch.Generator().manual_seed(1))
    fast = augmented(data, everything(data), both, 0.3, looks=looks)
    slow = moved_by_torch(data, everything(data), both, 0.3, "cpu", looks)

    assert torch.allclose(fast.images, slow.images, atol=2e-3)
    assert fast.labels.equal(slow.labels)


def test_moves_and_looks_are_one_compiled_function():
    data = cases(count=2)
    plain, _ = looking(data, AugmentationSettings(**OFF))
    batch = augmented(data, everything(data), moves(2), 0.0)
    compiled = list(move.signatures)
    changed, _ = looking(data, ALL)

    assert move.signatures == compiled
    assert torch.allclose(batch.images, plain, atol=1e-5)
    assert not torch.allclose(changed, plain, atol=1e-2)


@pytest.mark.parametrize("settings", EACH)
def test_every_change_happens_to_about_half_of_the_images(settings):
    data = cases(count=60, channels=1)
    plain, _ = looking(data, AugmentationSettings(), 0)
    images, _ = looking(data, AugmentationSettings(**settings), 0)
    span = (plain.amax((1, 2, 3)) - plain.amin((1, 2, 3))).view(-1, 1, 1, 1)
    apart = ((images - plain).abs() / span).amax((1, 2, 3)) > 1e-3

    assert 0.25 < apart.float().mean() < 0.75


def test_labels_and_views_stay():
    data = cases()
    batch = augmented(data, everything(data), moves(6), 0.0, looks=looks_of(data, ALL))

    assert batch.labels.equal(data.labels)
    assert batch.view is None


def test_switching_one_change_off_leaves_the_others_as_they_were():
    data = cases(count=8)
    all_of_them, without = looks_of(data, ALL), looks_of(data, ALL.model_copy(update={"blur": 0.0}))

    assert not without.blurs.any()
    assert all_of_them.blurs.any()
    for name in ("nodes", "noises", "seeds", "curves"):
        assert getattr(all_of_them, name).equal(getattr(without, name))


def test_gamma_and_contrast_keep_an_image_within_its_range_and_in_its_order():
    data = cases(count=12, channels=1)
    plain, _ = looking(data, AugmentationSettings())
    images, _ = looking(data, AugmentationSettings(gamma=1.0, contrast=0.5))

    for before, after in zip(plain.flatten(1), images.flatten(1), strict=True):
        order = before.argsort()
        assert (after[order].diff() >= -1e-4).all()
        assert after.min() >= before.min() - 1e-4
        assert after.max() <= before.max() + 1e-4


def test_blur_is_a_gaussian():
    data = cases(count=8, channels=2)
    plain, _ = looking(data, AugmentationSettings())
    images, looks = looking(data, AugmentationSettings(blur=2.0))

    for before, after, deviation in zip(plain, images, looks.blurs.tolist(), strict=True):
        if deviation > 0:
            radius = int(np.ceil(2 * deviation))
            theirs = [
                ndimage.gaussian_filter(plane.numpy(), deviation, mode="mirror", radius=radius)
                for plane in before
            ]
            assert np.allclose(after, np.stack(theirs), atol=2e-3)


def test_noise_has_the_deviation_drawn_and_no_direction():
    data = cases(count=8, channels=1)
    flat = torch.full_like(data.images, 128)
    flat[:, :, 0, 0], flat[:, :, 0, 1] = 0, 255  # so that there is a range
    data = type(data)(**{**vars(data), "images": flat})
    plain, _ = looking(data, AugmentationSettings())
    images, looks = looking(data, AugmentationSettings(noise=0.1))
    span = looks.spans.view(-1, 1, 1, 1)
    added = ((images - plain) / span)[:, 0, 1:].flatten(1)

    assert looks.noises.count_nonzero() > 1
    assert torch.allclose(added.std(1), looks.noises, rtol=0.1, atol=1e-4)
    assert (added.mean(1).abs() < 0.01).all()
    assert not torch.allclose(added[looks.noises > 0][0], added[looks.noises > 0][1])


def test_lost_resolution_leaves_as_many_values_as_were_kept():
    data = cases(count=8, channels=1)
    plain, _ = looking(data, AugmentationSettings())
    images, looks = looking(data, AugmentationSettings(low_resolution=0.9))

    for before, after, nodes in zip(plain, images, looks.nodes.tolist(), strict=True):
        if nodes:
            assert after[0].var() < before[0].var()
            rank = torch.linalg.matrix_rank(after[0].double(), atol=1e-2)
            assert rank <= nodes


def test_nothing_is_altered_when_all_is_off():
    images = torch.rand(2, 1, 8, 8)
    data = cases(count=2)
    off = looks_of(data, AugmentationSettings())
    span = off.spans.view(-1, 1, 1, 1)
    within = off.lows.view(-1, 1, 1, 1) + images * span

    assert torch.allclose(altered(within, off), within, atol=1e-5)


def test_streams_with_other_looks_are_drawn_again_alike():
    data = cases(count=8)
    settings = {"batch": 4, "steps": 2, "augmentation": ALL, "fill": 0.0}
    first, again = (
        list(batches(data, rng=torch.Generator().manual_seed(3), **settings)) for _ in range(2)
    )

    for one, other in zip(first, again, strict=True):
        assert one.images.equal(other.images)
    assert not first[0].images.equal(first[1].images)
