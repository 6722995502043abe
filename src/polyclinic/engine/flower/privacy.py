"""Differential privacy of an update: its clipping and noise, and the ε that releases cost.

Floating-point noise added to floating-point values leaks through the last bits of the sum. Here the
clipped update is cut to whole multiples of a step, towards zero, so that its norm never grows; the
noise is a whole number of the same steps, drawn without looking at the update; their sum is exact.
In exact arithmetic that is a rounded Gaussian mechanism. What float64 adds to ε in computing the
Gaussians is below 0.01 for two million weights.
"""

import math
import secrets
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

STEPS = 2**20  # to a standard deviation of the noise


class NotFinite(ValueError):
    """An update has no length, so that nothing could bound it."""

    refuses = "policy"


def released(change: NDArray[np.float64], clip: float, noise: float) -> NDArray[np.float64]:
    """The update cut to the L2 norm `clip`, with Gaussian noise of deviation `noise · clip`."""
    with np.errstate(over="ignore"):  # an infinite norm is refused below
        norm = float(np.linalg.norm(change))
    if not math.isfinite(norm):
        raise NotFinite("the update has values that are not finite numbers, which no clip bounds")
    clipped = change * min(1.0, clip / max(norm, 1e-300))
    if not noise:
        return clipped
    step = noise * clip / STEPS
    whole: NDArray[np.float64] = np.trunc(clipped / step) + np.rint(gaussian(change.size) * STEPS)
    return whole * step


def gaussian(count: int) -> NDArray[np.float64]:
    """Independent standard Gaussians (Box and Muller), every bit from the operating system.

    Radii come from 106 bits, so that the tails are as smooth as the middle.
    """
    pairs = (count + 1) // 2
    words = np.frombuffer(secrets.token_bytes(24 * pairs), dtype=np.uint64).reshape(3, pairs)
    high, low, turn = (words >> np.uint64(11)).astype(np.float64) / 2**53
    radius = np.sqrt(-2 * np.log(high + (low + 2.0**-54) / 2**53))
    angle = 2 * np.pi * turn
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return both[:count]


def epsilon_of(noises: Iterable[float], delta: float) -> float:
    """The exact ε at δ of Gaussian releases with these noise multipliers, taken together.

    They are one Gaussian mechanism of sensitivity µ = √(Σ 1 / noise²) and deviation 1 (Dong, Roth
    and Su, 2022), whose δ at each ε is known (Balle and Wang, 2018). A multiplier of 0 gives ∞.
    """
    each = list(noises)
    if not each:
        return 0.0
    if not all(each):
        return math.inf
    mu = math.hypot(*(1 / noise for noise in each))

    def excess(epsilon: float) -> float:
        first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
        return float(np.exp(first) - np.exp(epsilon + second)) - delta

    if excess(0.0) <= 0:
        return 0.0
    loose = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # of zero-concentrated privacy
    return float(brentq(excess, 0.0, loose, xtol=1e-12, rtol=1e-10))
