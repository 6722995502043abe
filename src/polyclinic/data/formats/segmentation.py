"""DICOM segmentations (DICOM-SEG) as class numbers for the images that they are about."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.instances import Instance, in_words
from polyclinic.data.formats.limits import check_file
from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.volume import Array, Volume


def read_segmentation(path: Path, volume: Volume, instances: Sequence[Instance]) -> Array:
    """Segment numbers (slices × rows × columns) for a volume out of these instances.

    What no frame of the segmentation is about is background, 0. Segments must not overlap.
    """
    check_file(path)
    order = {file: number for number, file in enumerate(volume.files)}
    uids = [each.uid for each in sorted(instances, key=lambda each: order[each.file])]
    highdicom = needed("highdicom")
    try:
        segmentation = highdicom.seg.segread(path)
        frames = _frames(segmentation, uids, len(volume.voxels))
    except UnreadableError:
        raise
    except Exception as error:  # a damaged file makes highdicom raise anything
        raise UnreadableError(f"cannot be read as a segmentation: {in_words(error)}") from error
    sides = tuple(int(side) for side in frames.shape)
    if sides != volume.restored(volume.voxels[:, 0]).shape:
        raise UnreadableError("has frames of another size than the images that it is about")
    if frames.max(initial=0) > 254:
        raise UnreadableError(f"has {frames.max()} segments; there are at most 254")
    return np.ascontiguousarray(volume.turn.turned(frames.astype(np.uint8)))


def _frames(segmentation: Any, uids: Sequence[str], slices: int) -> Array:
    known = {str(uid) for _, _, uid in segmentation.get_source_image_uids()}
    if not known & set(uids):
        raise UnreadableError("is about none of the images it was matched with")
    # A segmentation may leave out frames in which nothing is segmented.
    asked: dict[str, Any] = {
        "combine_segments": True,
        "relabel": False,
        "ignore_spatial_locations": True,
        "assert_missing_frames_are_empty": True,
    }
    if len(uids) == 1 and slices > 1:
        numbers = list(range(1, slices + 1))
        return segmentation.get_pixels_by_source_frame(uids[0], numbers, **asked)
    return segmentation.get_pixels_by_source_instance(list(uids), **asked)
