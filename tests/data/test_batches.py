from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.config import AugmentationSettings
from polyclinic.data.batches import batches, in_order, steps_per_epoch
from polyclinic.data.cases import Cases

STILL = AugmentationSettings(flips=False, rotation=0.0)


def numbered(count, side=16):
    """Cases whose pixels all hold the case's number."""
    numbers = torch.arange(count, dtype=torch.uint8)
    labels = numbers.view(-1, 1, 1).repeat(1, side, side)
    return Cases(
        names=tuple(map(str, range(count))),
        patients=tuple(map(str, range(count))),
        images=labels[:, None].clone(),
        labels=labels,
        masks=labels,
        offset=torch.zeros(count, 1),
        scale=torch.ones(count, 1),
        spacing=torch.ones(count, 2, dtype=torch.float64),
    )


def stream(cases, batch, steps, seed=0, augmentation=STILL):
    rng = torch.Generator().manual_seed(seed)
    return list(
        batches(cases, batch=batch, steps=steps, rng=rng, augmentation=augmentation, fill=0.0)
    )


def seen(found):
    return [int(label[0, 0]) for each in found for label in each.labels]


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 12))
def test_batches_are_always_full_and_shuffles_follow_without_gap(count, batch, steps):
    found = stream(numbered(count), batch, steps)
    size = min(batch, count)

    assert [len(each.labels) for each in found] == [size] * steps
    order = seen(found)
    for start in range(0, len(order) - count + 1, count):
        assert sorted(order[start : start + count]) == list(range(count))


@given(st.integers(1, 50), st.integers(1, 12))
def test_an_epoch_sees_every_case(count, batch):
    steps = steps_per_epoch(count, batch)

    assert (steps - 1) * batch < count <= steps * batch


def test_an_epoch_of_batches_holds_every_case_at_least_once():
    assert set(seen(stream(numbered(10), 4, steps_per_epoch(10, 4)))) == set(range(10))


def test_the_same_seed_gives_the_same_batches_and_another_seed_others():
    moving = AugmentationSettings()
    first, again, other = (stream(numbered(9), 4, 5, seed, moving) for seed in (1, 1, 2))

    assert all(a.images.equal(b.images) for a, b in zip(first, again, strict=True))
    assert seen(first) != seen(other)


def test_taking_fewer_steps_gives_the_beginning_of_the_same_stream():
    long, short = stream(numbered(7), 3, 6), stream(numbered(7), 3, 2)

    assert seen(long)[:6] == seen(short)


def test_the_generator_goes_on_where_the_last_round_stopped():
    rng = torch.Generator().manual_seed(0)
    keep = {"batch": 3, "rng": rng, "augmentation": STILL, "fill": 0.0}
    first = list(batches(numbered(6), steps=2, **keep))
    second = list(batches(numbered(6), steps=2, **keep))

    assert Counter(seen(first)) == Counter(seen(second))
    assert seen(first) != seen(second)


def test_images_and_labels_stay_together():
    for each in stream(numbered(8), 3, 6, augmentation=AugmentationSettings()):
        assert torch.allclose(each.images[:, 0, 8, 8], each.labels[:, 8, 8].float())


def test_batches_are_made_one_by_one():
    rng = torch.Generator().manual_seed(0)
    endless = batches(numbered(4), batch=2, steps=10**9, rng=rng, augmentation=STILL, fill=0.0)

    assert len(list(islice(endless, 3))) == 3


def test_no_cases_cannot_be_trained_on():
    with pytest.raises(ValueError, match="no cases to train on"):
        stream(numbered(0), 2, 1)


def test_plain_order_visits_every_case_once():
    found = list(in_order(numbered(7), batch=3))

    assert seen(found) == list(range(7))
    assert [len(each.labels) for each in found] == [3, 3, 1]
    assert list(in_order(numbered(0), batch=3)) == []
