"""The one mixing function: nearly every server rule is a row of weights over the sites' replies."""

from collections.abc import Mapping, Sequence

import torch

from polyclinic.federation.weights import Weights


def mix(parts: Mapping[str, Weights], row: Sequence[float]) -> Weights:
    """The sum of `row[i] · part i`, in double precision and in the order of the sites' names.

    So the order of the parts changes no bit, and equal parts are a fixed point: with a row that
    sums to one they come back bit by bit.
    """
    shares = dict(zip(parts, row, strict=True))
    first = min(parts)
    total = torch.zeros_like(parts[first].flat, dtype=torch.float64)
    for site in sorted(parts):
        _refuse_different(site, parts[site], first, parts[first])
        total.add_(parts[site].flat, alpha=shares[site])
    return Weights(parts[first].layout, total.to(parts[first].flat.dtype))


def _refuse_different(site: str, weights: Weights, first: str, expected: Weights) -> None:
    if weights.layout == expected.layout:
        return
    names = sorted(weights.names ^ expected.names)
    what = f"weights that only one of them has: {', '.join(names[:5])}" if names else "other shapes"
    raise ValueError(f"the replies of {site} and {first} cannot be mixed; {what}")
