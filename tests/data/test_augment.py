import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment import (
    Tiles,
    augmented,
    draw_moves,
    draw_tiles,
    normalised,
)
from polyclinic.data.cases import Cases
from tests.data.augmenting import SIDE, cases, everything, moves
from tests.data.by_torch import moved_by_torch


def expected(data):
    offset, scale = (each[:, :, None, None] for each in (data.offset, data.scale))
    return (data.images - offset) / scale


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_without_moves_pixels_are_bit_exact(dtype):
    data = cases(dtype=dtype)
    batch = augmented(data, everything(data), moves(6), fill=0.8)

    assert batch.images.equal(expected(data))
    assert batch.labels.equal(data.labels)
    assert batch.images.dtype == torch.float32


def test_normalised_batches_are_the_definition_in_the_order_asked_for():
    data = cases()
    batch = normalised(data, torch.tensor([4, 1]))

    assert batch.images.equal(expected(data)[[4, 1]])
    assert batch.labels.equal(data.labels[[4, 1]])


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_channels_last(channels):
    data = cases(channels=channels)
    for batch in (
        normalised(data, everything(data)),
        augmented(data, everything(data), moves(6, degrees=10.0), fill=0.0),
    ):
        assert batch.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_flips_and_turns_are_exactly_numpys(upside_down, mirrored, turns):
    data = cases()
    batch = augmented(data, everything(data), moves(6, upside_down, mirrored, turns), fill=0.8)

    for got, pixels in ((batch.images, expected(data)), (batch.labels, data.labels)):
        wanted = pixels.numpy()
        wanted = wanted[..., ::-1, :] if upside_down else wanted
        wanted = wanted[..., ::-1] if mirrored else wanted
        assert np.array_equal(got, np.rot90(wanted, turns, axes=(-2, -1)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("seed", range(5))
def test_the_compiled_way_agrees_with_torchs_own_operations(dtype, seed):
    data, rng = cases(16, dtype=dtype), torch.Generator().manual_seed(seed)
    settings = AugmentationSettings(quarter_turns=True)
    arguments = data, torch.randperm(16, generator=rng), draw_moves(16, settings, rng), 0.8
    ours, other = augmented(*arguments), moved_by_torch(*arguments, "cpu")

    assert torch.allclose(ours.images, other.images, atol=2e-4)
    assert (ours.labels == other.labels).float().mean() > 0.999  # half-way pixels may differ


def test_augmenting_leaves_the_cases_as_they_are():
    data, same = cases(), cases()
    augmented(data, everything(data), moves(6, True, True, 1, 30.0), fill=0.8)

    assert data.images.equal(same.images)
    assert data.labels.equal(same.labels)


DEGREES = pytest.mark.parametrize("degrees", [-45.0, -7.3, 20.0, 45.0])


def rotation_back(degrees):
    """Where (row, column) of a counter-clockwise rotation comes from: matrix and offset."""
    angle = np.deg2rad(degrees)
    matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    centre = np.full(2, (SIDE - 1) / 2)
    return matrix, centre - matrix @ centre


@DEGREES
def test_rotated_images_agree_with_scipy(degrees):
    data = cases()
    batch = augmented(data, everything(data), moves(6, degrees=degrees), fill=0.8)
    matrix, offset = rotation_back(degrees)

    wanted = [
        [
            ndimage.affine_transform(plane, matrix, offset, order=1, mode="grid-constant", cval=0.8)
            for plane in image
        ]
        for image in expected(data).double().numpy()
    ]
    assert np.allclose(batch.images, wanted, atol=2e-4)


@DEGREES
def test_rotated_labels_are_exactly_the_nearest_pixels(degrees):
    data = cases()
    batch = augmented(data, everything(data), moves(6, degrees=degrees), fill=0.8)
    matrix, offset = rotation_back(degrees)
    places = np.einsum("ij,jrc->irc", matrix, np.mgrid[:SIDE, :SIDE]) + offset[:, None, None]
    # Half-way between two pixels either is the nearest.
    clear = (abs(places - np.floor(places) - 0.5) > 1e-3).all(axis=0)
    rows, columns = np.round(places).astype(int) + 1
    around = np.pad(data.labels.numpy(), ((0, 0), (1, 1), (1, 1)), constant_values=255)
    wanted = around[:, rows.clip(0, SIDE + 1), columns.clip(0, SIDE + 1)]

    assert clear.mean() > 0.9
    assert np.array_equal(batch.labels.numpy()[:, clear], wanted[:, clear])


def test_positive_degrees_turn_the_same_way_as_quarter_turns():
    data = cases()
    turned = augmented(data, everything(data), moves(6, turns=1), fill=0.0)
    rotated = augmented(data, everything(data), moves(6, degrees=90.0), fill=0.0)

    assert torch.allclose(turned.images, rotated.images, atol=1e-4)
    assert turned.labels.equal(rotated.labels)


def test_images_that_are_not_square_are_rotated_without_distortion():
    data = cases(count=1)
    wide = Cases(
        data.names, data.patients, data.images[..., 8:40, :], data.labels[:, 8:40],
        data.masks[:, 8:40], data.offset, data.scale, data.spacing,
    )  # fmt: skip
    batch = augmented(wide, everything(wide), moves(1, degrees=30.0), fill=0.0)
    whole = augmented(data, everything(data), moves(1, degrees=30.0), fill=0.0)

    assert torch.allclose(
        batch.images[..., 14:18, 20:28], whole.images[..., 22:26, 20:28], atol=1e-4
    )


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(1, 180))
def test_labels_only_ever_hold_classes_and_unlabelled(seed, rotation):
    data = cases(seed=seed % 7)
    rng = torch.Generator().manual_seed(seed)
    drawn = draw_moves(6, AugmentationSettings(rotation=rotation, quarter_turns=True), rng)
    batch = augmented(data, everything(data), drawn, fill=0.5)

    assert batch.labels.dtype == torch.uint8
    assert set(batch.labels.unique().tolist()) <= {0, 1, 2, 255}
    assert batch.images.isfinite().all()


def test_corners_of_rotated_images_are_filled():
    data = cases()
    batch = augmented(data, everything(data), moves(6, degrees=45.0), fill=0.8)

    assert torch.allclose(batch.images[:, :, 0, 0], torch.tensor(0.8), atol=1e-6)
    assert (batch.labels[:, 0, 0] == 255).all()


def test_moves_have_the_papers_probabilities():
    rng = torch.Generator().manual_seed(0)
    drawn = draw_moves(20_000, AugmentationSettings(rotation=45, quarter_turns=True), rng)

    assert drawn.upside_down.float().mean() == pytest.approx(0.5, abs=0.02)
    assert drawn.mirrored.float().mean() == pytest.approx(0.5, abs=0.02)
    assert (drawn.upside_down & drawn.mirrored).float().mean() == pytest.approx(0.25, abs=0.02)
    assert torch.bincount(drawn.turns).tolist() == pytest.approx([5000] * 4, rel=0.06)
    rotated = drawn.degrees[drawn.degrees != 0]
    assert len(rotated) / 20_000 == pytest.approx(0.5, abs=0.02)
    assert rotated.abs().max() <= 45
    assert rotated.std() == pytest.approx(90 / 12**0.5, rel=0.03)


def test_what_is_switched_off_does_not_happen():
    off = AugmentationSettings(flips=False, rotation=0.0)
    drawn = draw_moves(100, off, torch.Generator().manual_seed(0))

    assert not any(part.any() for part in (drawn.upside_down, drawn.mirrored, drawn.turns))
    assert not drawn.degrees.any()


def test_switching_one_move_off_leaves_the_others_as_drawn():
    first = draw_moves(50, AugmentationSettings(), torch.Generator().manual_seed(3))
    second = draw_moves(50, AugmentationSettings(flips=False), torch.Generator().manual_seed(3))

    assert first.degrees.equal(second.degrees)


def seen_in(data, view):
    return Cases(**{**vars(data), "views": view})


@pytest.mark.parametrize("way", [augmented, moved_by_torch])
def test_views_move_with_their_images_and_nothing_is_seen_beyond(way):
    data = cases()
    data = seen_in(data, data.labels > 0)
    labels = Cases(**{**vars(data), "labels": (data.labels > 0).to(torch.uint8)})
    drawn = draw_moves(6, AugmentationSettings(quarter_turns=True), torch.Generator())
    batch = way(data, everything(data), drawn, 0.0, "cpu")

    known = way(labels, everything(data), drawn, 0.0, "cpu").labels
    assert batch.view.equal(known == 1)


@pytest.mark.parametrize("turns", range(4))
def test_tiles_are_parts_of_the_image_turned_exactly(turns):
    data = cases()
    tiles = draw_tiles(6, SIDE, 16, torch.Generator().manual_seed(0))
    batch = augmented(data, everything(data), moves(6, turns=turns), 0.0, tiles=tiles)

    for n, (top, left) in enumerate(tiles.starts.tolist()):
        part = expected(data)[n, :, top : top + 16, left : left + 16]
        assert batch.images[n].equal(part.rot90(turns, (1, 2)))
        part = data.labels[n, top : top + 16, left : left + 16]
        assert batch.labels[n].equal(part.rot90(turns))


def test_a_rotated_tile_shows_what_lies_around_it():
    data = cases()
    starts = torch.full((6, 2), (SIDE - 16) // 2)
    part = augmented(
        data, everything(data), moves(6, degrees=30.0), 0.0, tiles=Tiles(starts, 16, 16)
    )
    whole = augmented(data, everything(data), moves(6, degrees=30.0), 0.0)
    middle = np.s_[(SIDE - 16) // 2 : (SIDE + 16) // 2]

    assert torch.allclose(part.images, whole.images[..., middle, middle], atol=1e-4)
    assert part.labels.equal(whole.labels[:, middle, middle])
    assert (part.labels != 255).all()


def test_tiles_are_the_same_with_torch():
    data = cases()
    drawn = draw_moves(6, AugmentationSettings(quarter_turns=True), torch.Generator())
    tiles = draw_tiles(6, SIDE, 16, torch.Generator().manual_seed(0))
    fast = augmented(data, everything(data), drawn, 0.4, tiles=tiles)
    slow = moved_by_torch(data, everything(data), drawn, 0.4, "cpu", tiles=tiles)

    assert torch.allclose(fast.images, slow.images, atol=1e-3)
    assert (fast.labels == slow.labels).float().mean() > 0.999
