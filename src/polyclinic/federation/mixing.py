"""The one mixing function: nearly every server rule is a row of weights over the sites' replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np
import torch
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from polyclinic.federation.weights import Weights

BLOCK = 2048  # values per block: the double precision sums of a block stay in the fastest cache


def mix(parts: Mapping[str, Weights], row: Sequence[float]) -> Weights:
    """The sum of `row[i] · part i`, in double precision and in the order of the sites' names.

    So the order of the parts changes no bit, and equal parts are a fixed point: with a row that
    sums to one they come back bit by bit.
    """
    shares = dict(zip(parts, row, strict=True))
    first, *others = sorted(parts)
    for site in others:
        _refuse_different(site, parts[site], first, parts[first])
    flat = mix_flat(
        [parts[site].flat for site in sorted(parts)], [shares[s] for s in sorted(parts)]
    )
    return Weights(parts[first].layout, flat)


def mix_flat(flats: Sequence[Tensor], row: Sequence[float]) -> Tensor:
    """The weighted sum of equally long vectors, each read once."""
    assert len(flats) == len(row), "a row has one weight per part"
    if flats[0].device.type != "cpu" or flats[0].dtype != torch.float32:
        total = torch.zeros(flats[0].shape, dtype=torch.float64, device=flats[0].device)
        for flat, weight in zip(flats, row, strict=True):
            total.add_(flat, alpha=weight)
        return total.to(flats[0].dtype)
    assert all(flat.is_contiguous() and flat.shape == flats[0].shape for flat in flats)
    mixed = torch.empty_like(flats[0])
    addresses = np.array([flat.data_ptr() for flat in flats], dtype=np.uint64)
    _mix_blocks(addresses, np.asarray(row, dtype=np.float64), mixed.numpy())
    return mixed


def _refuse_different(site: str, weights: Weights, first: str, expected: Weights) -> None:
    if weights.layout == expected.layout:
        return
    names = sorted(weights.names ^ expected.names)
    what = f"weights that only one of them has: {', '.join(names[:5])}" if names else "other shapes"
    raise ValueError(f"the replies of {site} and {first} cannot be mixed; {what}")


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001  # pragma: no cover
    """A memory address as a pointer to floats, so that one kernel serves any number of parts."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.uint64), build


@numba.njit(parallel=True, cache=True)
def _mix_blocks(addresses: Any, row: Any, mixed: Any) -> None:  # pragma: no cover (compiled)
    size, parts = mixed.size, addresses.size
    for block in numba.prange((size + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        stop = min(size, start + BLOCK)
        sums = np.zeros(BLOCK)
        part = 0
        while part + 3 < parts:  # four in one pass, in the same order as one by one
            a = _piece(addresses[part], start, stop)
            b = _piece(addresses[part + 1], start, stop)
            c = _piece(addresses[part + 2], start, stop)
            d = _piece(addresses[part + 3], start, stop)
            for i in range(stop - start):
                sums[i] = (
                    sums[i]
                    + row[part] * a[i]
                    + row[part + 1] * b[i]
                    + row[part + 2] * c[i]
                    + row[part + 3] * d[i]
                )
            part += 4
        while part < parts:
            a = _piece(addresses[part], start, stop)
            for i in range(stop - start):
                sums[i] += row[part] * a[i]
            part += 1
        for i in range(stop - start):
            mixed[start + i] = sums[i]


@numba.njit(inline="always")
def _piece(address: Any, start: int, stop: int) -> Any:  # pragma: no cover (compiled)
    return numba.carray(_pointer(address), stop)[start:stop]  # type: ignore[attr-defined,call-arg]
