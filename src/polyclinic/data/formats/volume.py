"""A volume: slices that lie alike whatever the order in which their file stores them.

Slices are seen as a radiologist sees them. Axial ones follow each other from the feet to the head,
with the patient's front above; coronal ones from front to back and sagittal ones from right to
left, both with the head above. The patient's right is left, in sagittal slices the front is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.errors import UnreadableError

Array = NDArray[Any]
Axis = Literal["axial", "coronal", "sagittal", "acquired"]
AXES: tuple[Axis, ...] = get_args(Axis)
# Where slices, rows and columns go: 1 to the left, 2 to the back, 3 to the head, below 0 away.
VIEWS = {"axial": (3, 2, 1), "coronal": (2, -3, 1), "sagittal": (1, -3, 2)}
ACROSS: dict[int, Axis] = {3: "axial", 2: "coronal", 1: "sagittal"}
LPS = np.diag([-1.0, -1.0, 1.0])  # NIfTI counts to the right and to the front
TILT_TOLD, TILT_REFUSED, SHEAR_REFUSED = 1.0, 40.0, 0.5  # degrees


@dataclass(frozen=True)
class Turn:
    """Which stored axis the slices, rows and columns are, and which of them run backwards."""

    order: tuple[int, int, int] = (0, 1, 2)
    flipped: tuple[bool, bool, bool] = (False, False, False)

    def turned(self, stored: Array) -> Array:
        """Slices × rows × columns (and what follows) of an array as stored, without a copy."""
        rest = range(3, stored.ndim)
        return stored.transpose(*self.order, *rest)[self._steps()]

    def restored(self, turned: Array) -> Array:
        """The array as stored out of slices × rows × columns (and what follows)."""
        rest = range(3, turned.ndim)
        return turned[self._steps()].transpose(*np.argsort(self.order), *rest)

    def _steps(self) -> tuple[slice, ...]:
        return tuple(slice(None, None, -1 if flip else None) for flip in self.flipped)


@dataclass(frozen=True)
class Volume:
    """What one or several files hold as a stack of slices, and how to go back to the files.

    `affine` brings a stored index (of NIfTI: i, j, k; of DICOM: frame, row, column) to millimetres
    to the right, the front and the head, as in NIfTI; it is None where no file says its place.
    """

    voxels: Array  # slices × channels × rows × columns, uint8 or float32
    files: tuple[Path, ...]  # of DICOM in stored order, of NIfTI one for each channel
    turn: Turn = Turn()
    affine: Array | None = None
    spacing: tuple[float, float] | None = None  # millimetres between rows and between columns
    warnings: tuple[str, ...] = ()

    def restored(self, masks: Array) -> Array:
        """Masks of all slices (slices × rows × columns) in the order of the stored array."""
        return self.turn.restored(masks)


def turned_volume(
    stored: Array,
    affine: Array,
    axis: Axis,
    files: Sequence[Path],
    warnings: Sequence[str] = (),
    *,
    across: int,
) -> Volume:
    """The volume of a stored array (three axes and channels) seen along `axis`.

    `across` is the stored axis along which it was acquired. A tilted volume is not resampled: its
    slices are the stored planes nearest to the axis.
    """
    turn, tilt = turn_to(affine, axis, across)
    told = [f"is tilted by {tilt:.0f}°; its slices stay as stored"] if tilt > TILT_TOLD else []
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    spacing = float(sizes[turn.order[1]]), float(sizes[turn.order[2]])
    voxels = np.ascontiguousarray(turn.turned(stored).transpose(0, 3, 1, 2))
    return Volume(voxels, tuple(files), turn, affine, spacing, (*warnings, *told))


def turn_to(affine: Array, axis: Axis, across: int) -> tuple[Turn, float]:
    """The turn after which slices go along `axis`, and by how many degrees it is not exact."""
    directions = _directions(affine)
    axes = [0, 1, 2]
    # stored[n] is the stored axis that goes to the left (0), the back (1) or the head (2).
    stored = max(permutations(axes), key=lambda order: abs(directions[axes, order]).sum())
    tilt = float(np.degrees(np.arccos(np.clip(abs(directions[axes, stored]).min(), 0, 1))))
    if tilt > TILT_REFUSED:
        raise UnreadableError(f"is oblique by {tilt:.0f}°, so that no axis is its own; resample it")
    name = ACROSS[stored.index(across) + 1] if axis == "acquired" else axis
    order, flipped = [], []
    for goal in VIEWS[name]:
        place = abs(goal) - 1
        order.append(stored[place])
        flipped.append(bool(directions[place, stored[place]] * goal < 0))
    return Turn((order[0], order[1], order[2]), (flipped[0], flipped[1], flipped[2])), tilt


def usual_axis(*, dicom: bool) -> Axis:
    """Along which axis volumes are cut where nobody says it."""
    return "acquired" if dicom else "axial"


def axis_of(volume: Volume, unknown: Axis) -> Axis:
    """Along which axis the slices go, `unknown` where the volume does not say its place."""
    if volume.affine is None:
        return unknown
    towards = abs(_directions(volume.affine)[:, volume.turn.order[0]])
    return ACROSS[int(towards.argmax()) + 1]


def same_place(one: Volume, other: Volume) -> bool:
    """Whether two volumes of the same size cover the same space; True where one does not say."""
    if one.affine is None or other.affine is None:
        return True
    corners, others = _corners(one), _corners(other)
    voxel = min(np.linalg.norm(one.affine[:3, :3], axis=0))
    return bool(np.abs(corners - others).max() < 0.5 * voxel)


def _corners(volume: Volume) -> Array:
    """The middles of the first and the last voxel, in millimetres."""
    assert volume.affine is not None
    slices, _, rows, columns = volume.voxels.shape
    shape = np.array([slices, rows, columns])
    ends = []
    for last in (False, True):
        seen = [
            (size - 1) * (last != flip)
            for size, flip in zip(shape, volume.turn.flipped, strict=True)
        ]
        index = np.empty(3)
        index[list(volume.turn.order)] = seen
        ends.append(volume.affine[:3, :3] @ index + volume.affine[:3, 3])
    return np.array(ends)


def _directions(affine: Array) -> Array:
    """Unit vectors of the stored axes as columns, to the left, back and head."""
    steps = LPS @ affine[:3, :3]
    sizes = np.linalg.norm(steps, axis=0)
    if not np.isfinite(affine).all() or sizes.min() <= 0:
        raise UnreadableError("does not say how large its voxels are")
    directions = steps / sizes
    across = abs(directions.T @ directions - np.eye(3)).max()
    if across > np.sin(np.radians(SHEAR_REFUSED)):
        raise UnreadableError("is sheared: its axes do not stand at right angles; resample it")
    return directions
