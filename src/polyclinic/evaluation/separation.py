"""How far the features of foreground and background lie apart."""

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-3  # of a feature's whole variance: one that a side never has must not outweigh all


def separation(features: NDArray[np.float64], foreground: NDArray[np.bool_]) -> float:
    """The KL divergence of foreground and background features (N×D), mean of both ways and of D.

    Each feature of each side is taken for normally distributed. 0 means that they cannot be told
    apart, larger that they can; not a number where a side has fewer than two pixels.
    """
    sides = features[foreground], features[~foreground]
    if min(map(len, sides)) < 2:
        return float("nan")
    least = _LEAST * features.var(0) + 1e-12
    (m1, v1), (m2, v2) = ((side.mean(0), np.maximum(side.var(0), least)) for side in sides)
    apart = (m1 - m2) ** 2
    return float(np.mean((v1 + apart) / v2 + (v2 + apart) / v1 - 2) / 4)
