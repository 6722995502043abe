"""Weighted sums along the paths of a tree in linear time, compiled and kept on disk.

Every public function works on one image, whose tree is three arrays in breadth-first order:
`order`, the pixel at each position; `parent`, the position of its parent; `weight`, its similarity
to its parent. Sums are made in double precision, which costs no time here and keeps long paths
exact.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polyclinic.losses.spanning_tree import Positions, Reals

Doubles = NDArray[np.float64]


@njit(cache=True, nogil=True)
def average(
    order: Positions, parent: Positions, weight: Reals, values: Reals, filtered: Reals
) -> None:
    """Fill `filtered` with the averages of values (channels × pixels) weighted along the paths."""
    mass = np.ones((2, order.size))
    sums = np.empty_like(mass)
    _add_up(mass, parent, weight)
    for channel in range(len(values)):
        _gather(values[channel], order, sums[0])
        _add_up(sums, parent, weight)
        _divide(sums[1], mass[1])
        _scatter(sums[1], order, filtered[channel])


@njit(cache=True, nogil=True)
def values_gradient(
    order: Positions, parent: Positions, weight: Reals, gradient: Reals, on_values: Reals
) -> None:
    """Fill the gradient of `average` with respect to its values alone."""
    mass = np.ones((2, order.size))
    sums = np.empty_like(mass)
    _add_up(mass, parent, weight)
    for channel in range(len(gradient)):
        _gather(gradient[channel], order, sums[0])
        _divide(sums[0], mass[1])
        _add_up(sums, parent, weight)
        _scatter(sums[1], order, on_values[channel])


@njit(cache=True, nogil=True)
def gradients(
    order: Positions,
    parent: Positions,
    weight: Reals,
    values: Reals,
    gradient: Reals,
    on_values: Reals,
    on_weight: Reals,
) -> None:
    """Fill the gradients of `average` with respect to its values and to the tree's weights."""
    mass, on_mass = np.ones((2, order.size)), np.zeros((2, order.size))
    sums, on_sums = np.empty_like(mass), np.empty_like(mass)
    _add_up(mass, parent, weight)
    on_weight[:] = 0
    for channel in range(len(values)):
        _gather(values[channel], order, sums[0])
        _add_up(sums, parent, weight)
        _gather(gradient[channel], order, on_sums[0])
        _divide(on_sums[0], mass[1])
        for position in range(order.size):
            on_mass[0, position] -= on_sums[0, position] * sums[1, position] / mass[1, position]
        _add_up(on_sums, parent, weight)
        _scatter(on_sums[1], order, on_values[channel])
        _add_slopes(on_weight, sums, on_sums, parent, weight)
    _add_up(on_mass, parent, weight)
    _add_slopes(on_weight, mass, on_mass, parent, weight)


@njit(cache=True, nogil=True)
def guide_gradient(
    order: Positions, parent: Positions, on_cost: Reals, guide: Reals, on_guide: Reals
) -> None:
    """Fill the gradient with respect to the guide (channels × pixels), given that of the costs."""
    on_guide[:] = 0
    for channel in range(len(guide)):
        plane, changes = guide[channel], on_guide[channel]
        for position in range(1, order.size):
            here, above = order[position], order[parent[position]]
            change = 2 * on_cost[position] * (plane[here] - plane[above])
            changes[here] += change
            changes[above] -= change


@njit(cache=True, nogil=True)
def _add_up(sums: Doubles, parent: Positions, weight: Reals) -> None:
    """Turn the values in the first row into sums over the subtrees, in the second over the tree."""
    subtree, tree = sums
    for position in range(parent.size - 1, 0, -1):
        subtree[parent[position]] += weight[position] * subtree[position]
    tree[0] = subtree[0]
    for position in range(1, parent.size):
        passed_up = weight[position] * subtree[position]
        beyond = tree[parent[position]] - passed_up
        tree[position] = subtree[position] + weight[position] * beyond


@njit(cache=True, nogil=True)
def _add_slopes(
    slopes: Reals, sums: Doubles, on_sums: Doubles, parent: Positions, weight: Reals
) -> None:
    """Add what an edge passes: values below it times gradients beyond it, and the reverse."""
    (subtree, tree), (on_subtree, on_tree) = sums, on_sums
    for position in range(1, slopes.size):
        above, factor = parent[position], weight[position]
        below, on_below = subtree[position], on_subtree[position]
        beyond, on_beyond = tree[above] - factor * below, on_tree[above] - factor * on_below
        slopes[position] += on_below * beyond + below * on_beyond


@njit(cache=True, nogil=True)
def _gather(plane: Reals, order: Positions, gathered: Doubles) -> None:
    for position in range(order.size):
        gathered[position] = plane[order[position]]


@njit(cache=True, nogil=True)
def _scatter(gathered: Doubles, order: Positions, plane: Reals) -> None:
    for position in range(order.size):
        plane[order[position]] = gathered[position]


@njit(cache=True, nogil=True)
def _divide(values: Doubles, divisors: Doubles) -> None:
    for position in range(values.size):
        values[position] /= divisors[position]
