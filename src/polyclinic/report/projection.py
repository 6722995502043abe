"""Many channels as two: principal components, and exact t-SNE (van der Maaten & Hinton, 2008)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Float = TypeVar("Float", np.float32, np.float64)

_STEPS, _EARLY = 400, 100  # in all, and those in which near points are drawn together
_EXAGGERATION = 12.0
_HALVINGS = 40  # in the search for each point's width: beyond double precision's need
_FEWEST = 4  # points that have neighbourhoods worth the name
_LEAST = 1e-12


def principal_components(values: Points) -> Points:
    """Along the two directions of largest variance (points × 2), the farthest point positive."""
    centred = values - values.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:2].T
    found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    farthest = np.abs(found).argmax(axis=0)
    return found * np.where(found[farthest, range(2)] < 0, -1.0, 1.0)


def tsne(values: Points, perplexity: float = 30.0) -> Points:
    """Points near each other stay near (points × 2); begins at the principal components.

    Every pair is computed, so it is for hundreds of points. Nothing is drawn at random.
    """
    count = len(values)
    if count < _FEWEST:
        return principal_components(values)
    shares = neighbourhoods(values, min(perplexity, max(1.0, (count - 1) / 3)))
    near = ((shares + shares.T) / (2 * count)).astype(np.float32)  # half the memory to walk through
    found = principal_components(values)
    found *= 1e-4 / max(float(found[:, 0].std()), _LEAST)
    rate = max(count / _EXAGGERATION / 4, 50.0)
    step, gain = np.zeros_like(found), np.ones_like(found)
    for number in range(_STEPS):
        early = number < _EARLY
        slope = _slope(found, near, _EXAGGERATION if early else 1.0)
        # A coordinate that turns back has gone too far: it goes on in smaller steps.
        gain = np.maximum(np.where(step * slope < 0, gain + 0.2, 0.8 * gain), 0.01)
        step = (0.5 if early else 0.8) * step - rate * gain * slope
        found = found + step
    return found - found.mean(axis=0)


def neighbourhoods(values: Points, perplexity: float) -> Points:
    """How near each point (a row) finds the others: rows sum to 1 and have this perplexity."""
    squared = _squared_distances(values)
    squared /= max(float(squared.mean()), _LEAST)
    low, high = np.full(len(values), 1e-3), np.full(len(values), 1e6)
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        flat = _entropy(_shares(squared, middle)) > np.log(perplexity)
        low, high = np.where(flat, middle, low), np.where(flat, high, middle)
    return _shares(squared, np.sqrt(low * high))


def _slope(found: Points, near: NDArray[np.float32], exaggeration: float) -> Points:
    places = found.astype(np.float32)
    closeness = _squared_distances(places)
    closeness += 1
    np.reciprocal(closeness, out=closeness)
    np.fill_diagonal(closeness, 0)
    pull = closeness * np.float32(-1 / closeness.sum(dtype=np.float64))
    pull += near * np.float32(exaggeration)
    pull *= closeness
    return 4.0 * (pull.sum(axis=1, keepdims=True) * found - pull @ places)


def _shares(squared: Points, sharpness: NDArray[np.float64]) -> Points:
    own = np.eye(len(squared), dtype=np.bool_)
    nearest = np.where(own, np.inf, squared).min(axis=1, keepdims=True)
    weights = np.where(own, 0.0, np.exp(-sharpness[:, None] * np.maximum(squared - nearest, 0)))
    return weights / weights.sum(axis=1, keepdims=True)


def _entropy(shares: Points) -> NDArray[np.float64]:
    return -(shares * np.log(np.maximum(shares, _LEAST))).sum(axis=1)


def _squared_distances(values: NDArray[Float]) -> NDArray[Float]:
    lengths = (values * values).sum(axis=1)
    squared = values @ values.T
    squared *= -2
    squared += lengths
    squared += lengths[:, None]
    return np.maximum(squared, 0, out=squared)
