from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import Weights


def weights(seed: int, size: int = 5000) -> Weights:
    rng = torch.Generator().manual_seed(seed)
    return Weights.pack(
        {"a": torch.randn(size, generator=rng), "b": torch.randn(3, 2, generator=rng)}
    )


def row(count: int, seed: int) -> list[float]:
    shares = np.random.default_rng(seed).random(count)
    return list(shares / shares.sum())


@given(st.integers(1, 7), st.integers(0, 100))
def test_mixing_is_the_weighted_sum_in_double_precision(count, seed):
    parts = {str(index): weights(seed + index) for index in range(count)}
    shares = row(count, seed)
    expected = sum(w * part.flat.double() for w, part in zip(shares, parts.values(), strict=True))
    assert torch.equal(mix(parts, shares).flat, expected.float())


@given(st.integers(1, 9), st.integers(0, 100))
def test_equal_parts_are_a_fixed_point_bit_by_bit(count, seed):
    part = weights(seed)
    parts = {str(index): part for index in range(count)}
    assert torch.equal(mix(parts, row(count, seed)).flat, part.flat)


def test_a_row_of_the_identity_gives_that_part_bit_by_bit():
    parts = {"one": weights(1), "two": weights(2), "three": weights(3)}
    assert torch.equal(mix(parts, [0, 1, 0]).flat, parts["two"].flat)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_the_order_of_the_parts_changes_no_bit(order):
    """Summed by name, the large ones cancel first; in another order the small one is lost."""
    values = {"a": 1e16, "b": -1e16, "c": 1.0}
    parts = {site: Weights.pack({"w": torch.tensor([values[site]]).double()}) for site in order}
    assert mix(parts, [1.0] * 3).flat.tolist() == [1.0]


def test_other_types_are_mixed_the_same_way():
    values = {"one": [1.0, 2.0], "two": [3.0, 6.0]}
    parts = {site: Weights.pack({"a": torch.tensor(v).double()}) for site, v in values.items()}
    assert mix(parts, [0.5, 0.5]).flat.tolist() == [2.0, 4.0]
    assert mix(parts, [0.5, 0.5]).flat.dtype == torch.float64


def test_different_names_or_shapes_are_refused_with_the_site_named():
    parts = {
        "amber": weights(1),
        "birch": Weights.pack({"a": torch.zeros(5000), "c": torch.zeros(6)}),
    }
    with pytest.raises(ValueError, match=r"birch and amber cannot be mixed.*b, c"):
        mix(parts, [0.5, 0.5])
    parts = {"amber": weights(1), "birch": weights(1, size=4000)}
    with pytest.raises(ValueError, match="birch and amber cannot be mixed; other shapes"):
        mix(parts, [0.5, 0.5])
