"""DICOM images as volumes: the files of a series, a file of many frames, or a single image."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.instances import FrameGroups, Instance, Place, in_words
from polyclinic.data.formats.jpeg import add_decoders
from polyclinic.data.formats.limits import MAX_VOXELS, check_size
from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.volume import LPS, Array, Axis, Volume, turned_volume

GAP, SAME = 0.01, 1e-3  # share of a slice's distance, and of a direction, that may be rounding


def read_instances(
    instances: Sequence[Instance], axis: Axis = "acquired", stored_window: bool = False
) -> Volume:
    """The volume of files whose headers were read already, slices in the order in which they lie.

    Values are rescaled as the files say and, with `stored_window`, seen through their own window;
    of MONOCHROME1 bright and dark are exchanged. A single image is seen as it is.
    """
    first = instances[0]
    frames = sum(len(each.places) for each in instances)
    check_size((frames, first.rows, first.columns), MAX_VOXELS)
    ordered, affine = _ordered(instances)
    files = tuple(each.file for each in ordered)
    stored = np.concatenate([_pixels(file, stored_window) for file in files])
    if affine is not None and frames > 1:
        return turned_volume(stored, affine, axis, files, across=0)
    voxels = np.ascontiguousarray(stored.transpose(0, 3, 1, 2))
    return Volume(voxels, files, affine=affine, spacing=first.spacing)


def _ordered(instances: Sequence[Instance]) -> tuple[list[Instance], Array | None]:
    """The files in the order of their place, and the affine where they say it."""
    first = instances[0]
    for each in instances:
        if (each.rows, each.columns, each.spacing) != (first.rows, first.columns, first.spacing):
            raise UnreadableError(
                f"is a series of mixed sizes: {_size(first)} and {_size(each)} ({each.file.name})"
            )
    if len(instances) > 1 and any(len(each.places) > 1 for each in instances):
        raise UnreadableError("has several files of several frames; each is a volume of its own")
    places = [place for each in instances for place in each.places]
    known = [place for place in places if place is not None]
    if not known or first.spacing is None:
        return list(instances), None
    if len(known) < len(places):
        raise UnreadableError("says of some of its frames only where they lie")
    along = _along(known)
    _check_gaps(along, [each.file.name for each in instances])
    if len(instances) > 1:
        order = np.argsort(along)
        return [instances[n] for n in order], _affine([known[n] for n in order], first)
    if len(known) > 1 and len(set(np.sign(np.diff(along)))) > 1:
        raise UnreadableError("has frames that do not follow each other in space")
    return list(instances), _affine(known, first)


def _size(instance: Instance) -> str:
    size = f"{instance.rows}×{instance.columns}"
    return (
        f"{size} of {instance.spacing[0]:g}×{instance.spacing[1]:g} mm"
        if instance.spacing
        else size
    )


def _along(places: Sequence[Place]) -> Array:
    """How far along the slices' common normal each of them lies; they must be parallel."""
    orientation = np.array(places[0].orientation)
    if any(abs(np.array(place.orientation) - orientation).max() > SAME for place in places):
        raise UnreadableError("holds images of several directions (a localizer?)")
    normal = np.cross(orientation[:3], orientation[3:])
    return np.array([place.position for place in places]) @ normal


def _check_gaps(along: Array, names: Sequence[str]) -> None:
    """Refuse two slices at one place, and places at which one is missing."""
    if len(along) < 2:
        return
    order = np.argsort(along)
    gaps = np.diff(along[order])
    usual = float(np.median(gaps))
    if gaps.min() <= GAP * max(usual, 1e-6):
        pair = order[gaps.argmin() :][:2]
        named = " and ".join(names[each] for each in pair) if len(names) == len(along) else ""
        raise UnreadableError(
            "has two images at the same place: several phases, echoes or copies; keep one of each"
            + (f" ({named})" if named else "")
        )
    wide = np.flatnonzero(gaps > usual * (1 + 10 * GAP))
    narrow = np.flatnonzero(gaps < usual * (1 - 10 * GAP))
    if len(wide) or len(narrow):
        place = int((*wide, *narrow)[0])
        after = f" after {names[order[place]]}" if len(names) == len(along) else ""
        raise UnreadableError(
            f"misses slices: they are {usual:.4g} mm apart, but {gaps[place]:.4g} mm{after}"
        )


def _affine(places: Sequence[Place], first: Instance) -> Array:
    """Frame, row and column to millimetres to the right, front and head."""
    assert first.spacing is not None
    # Files round their directions.
    row, column = (_unit(places[0].orientation[part]) for part in (slice(3), slice(3, 6)))
    start, end = np.array(places[0].position), np.array(places[-1].position)
    normal = np.cross(row, column)
    step = (end - start) / (len(places) - 1) if len(places) > 1 else normal * first.between
    affine = np.eye(4)
    # Going down a column moves from row to row, along a row from column to column.
    affine[:3, :3] = np.stack([step, column * first.spacing[0], row * first.spacing[1]], axis=1)
    affine[:3, 3] = start
    affine[:3] = LPS @ affine[:3]
    return affine


def _unit(vector: Sequence[float]) -> Array:
    length = np.linalg.norm(vector)
    if not length:
        raise UnreadableError("says that a row or column has no direction")
    return np.array(vector) / length


def _pixels(file: Path, stored_window: bool) -> Array:
    """Frames × rows × columns × channels, uint8 where the file has no more, else float32."""
    dicom = needed("pydicom")
    try:
        data = dicom.dcmread(file)
        frames = _decoded(data)
        seen = np.stack(
            [_seen(frame, data, number, stored_window) for number, frame in enumerate(frames)]
        )
    except UnreadableError as error:
        raise UnreadableError(f"{file.name} {error}") from error
    except Exception as error:  # damaged files make decoders raise anything
        raise UnreadableError(f"{file.name} cannot be read: {in_words(error)}") from error
    if seen.dtype != np.uint8 and not np.isfinite(seen).all():
        raise UnreadableError(f"{file.name} has numbers that are NaN or infinite")
    return seen


def _decoded(data: Any) -> Array:
    """Frames × rows × columns × channels as stored, colours as RGB."""
    pixels = needed("pydicom.pixels")
    add_decoders()
    array = pixels.pixel_array(data)
    if str(data.PhotometricInterpretation) == "PALETTE COLOR":
        array = pixels.apply_color_lut(array, data)[..., :3]
        array = (array >> 8).astype(np.uint8) if array.dtype == np.uint16 else array
    single = int(data.get("NumberOfFrames") or 1) == 1
    colours = array.ndim - (2 if single else 3) > 0
    array = array[None] if single else array
    return array if colours else array[..., None]


def _seen(frame: Array, data: Any, number: int, stored_window: bool) -> Array:
    """One frame with its rescaling, its window and bright as bright."""
    if frame.shape[-1] > 1:
        return frame if frame.dtype == np.uint8 else frame.astype(np.float32)
    pixels = needed("pydicom.pixels")
    said = _said(data, number)
    values = pixels.apply_modality_lut(frame, said)
    window = stored_window and ("WindowCenter" in said or "VOILUTSequence" in said)
    if window:
        values = pixels.apply_voi_lut(values, said)
    if str(data.PhotometricInterpretation) == "MONOCHROME1":
        low, high = _range(said)
        values = (low + high) - values
    small = values.dtype.kind in "ui" and frame.dtype == np.uint8
    return values.astype(np.uint8 if small else np.float32)


def _range(said: Any) -> tuple[Any, Any]:
    """The values of the smallest and the largest number that a pixel can hold."""
    bits = int(said.BitsStored)
    signed = int(said.PixelRepresentation) == 1
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if "RescaleSlope" not in said:
        return low, high
    slope, intercept = float(said.RescaleSlope), float(said.RescaleIntercept)
    return low * slope + intercept, high * slope + intercept


def _said(data: Any, number: int) -> Any:
    """The file's attributes, those of this frame in front."""
    groups = FrameGroups(data, number)
    said = needed("pydicom").Dataset()
    for name in ("PhotometricInterpretation", "BitsStored", "PixelRepresentation"):
        setattr(said, name, data.get(name))
    for name, group in (
        ("RescaleSlope", "PixelValueTransformationSequence"),
        ("RescaleIntercept", "PixelValueTransformationSequence"),
        ("WindowCenter", "FrameVOILUTSequence"),
        ("WindowWidth", "FrameVOILUTSequence"),
        ("VOILUTFunction", "FrameVOILUTSequence"),
        ("ModalityLUTSequence", ""),
        ("VOILUTSequence", ""),
    ):
        value = groups.get(name, group) if group else data.get(name)
        if value is not None:
            setattr(said, name, value)
    return said
