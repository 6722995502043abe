"""The one way from an image as read to what a network sees, and from its prediction back.

`prepare` brings an image of any size to the task's square, which training, scoring and prediction
share; its `geometry` takes masks there and predictions back. Nothing here needs torch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.resizing import Array, Size, resized_image, resized_label, resized_mask
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Mask

View = NDArray[np.bool_]  # H×W: which pixels were seen
SHARE_OF_A_LINE = 0.01  # a row or column with fewer bright pixels than this is border


class Box(NamedTuple):
    """A rectangle of pixels."""

    top: int
    left: int
    high: int
    wide: int

    @property
    def size(self) -> Size:
        """Rows and columns."""
        return self.high, self.wide

    @property
    def within(self) -> tuple[slice, slice]:
        """Its pixels in an H×W array."""
        return slice(self.top, self.top + self.high), slice(self.left, self.left + self.wide)


@dataclass(frozen=True)
class Geometry:
    """Where an image lies in the square: its `box` fills the `place`, and nothing the rest."""

    size: Size  # of the image
    box: Box  # in the image
    place: Box  # in the square
    resolution: int

    @property
    def pixel(self) -> tuple[float, float]:
        """How many rows and columns of the image make one of the square."""
        return self.box.high / self.place.high, self.box.wide / self.place.wide

    @property
    def fills(self) -> bool:
        """Whether the square shows nothing but image."""
        return self.place.size == (self.resolution, self.resolution)

    def mask_there(self, mask: Mask, beyond: int = UNLABELLED) -> Mask:
        """An H×W mask of the image as R×R, each pixel the nearest one's class."""
        return self._square(resized_mask(mask[self.box.within], self.place.size), beyond)

    def label_there(self, label: Mask) -> Mask:
        """An annotator's H×W label as R×R: as a mask, but no mark vanishes."""
        return self._square(resized_label(label[self.box.within], self.place.size), UNLABELLED)

    def probabilities_back(self, probabilities: Array) -> Array:
        """K×R×R class probabilities as K×H×W float32, background (class 0) beyond the box."""
        back = np.zeros((len(probabilities), *self.size), dtype=np.float32)
        back[0] = 1
        inner = np.asarray(probabilities[:, *self.place.within], dtype=np.float32)
        back[:, *self.box.within] = resized_image(inner, self.box.size)
        return back

    def _square(self, inner: Mask, beyond: int) -> Mask:
        if self.fills:
            return inner
        square = np.full((self.resolution, self.resolution), beyond, dtype=inner.dtype)
        square[self.place.within] = inner
        return square


@dataclass(frozen=True)
class Prepared:
    """An image in the task's square; normalised it is `(pixels - offset) / scale`."""

    pixels: Array  # C×R×R, uint8 or float32 as read
    offset: Array  # C float32
    scale: Array  # C float32
    view: View | None  # R×R; None where everything was seen
    geometry: Geometry

    def normalised(self) -> Array:
        """What the network sees, C×R×R float32."""
        offset, scale = self.offset[:, None, None], self.scale[:, None, None]
        return (self.pixels.astype(np.float32) - offset) / scale


def prepare(image: Array, task: Task, view: View | None = None) -> Prepared:
    """An image as read (C×H×W, uint8 or float32) as the task wants it.

    Out of view are what `view` (H×W) or else the task's darkness says, and what is not image.
    """
    geometry = geometry_of(image, task)
    inner = resized_image(image[:, *geometry.box.within], geometry.place.size)
    seen = _seen(inner, task, geometry, view)
    inner, offset, scale = normalisation(inner, task)
    if not geometry.fills:
        around = offset + np.float32(task.fill) * scale  # what normalisation makes `fill`
        if inner.dtype == np.uint8:
            around = np.rint(np.clip(around, 0, 255))
        square = np.empty((len(inner), task.resolution, task.resolution), dtype=inner.dtype)
        square[:] = around[:, None, None]
        square[:, *geometry.place.within] = inner
        inner = square
    return Prepared(inner, offset, scale, seen, geometry)


def geometry_of(image: Array, task: Task) -> Geometry:
    """Where an image lies in the task's square.

    "stretch" fills it, whatever the image's sides; "pad" keeps their ratio, in the middle; "crop"
    does so with the image's content.
    """
    side = task.resolution
    size = image.shape[1], image.shape[2]
    box = _content(image, task.dark) if task.fit == "crop" else Box(0, 0, *size)
    if task.fit == "stretch":
        return Geometry(size, box, Box(0, 0, side, side), side)
    longer = max(box.size)
    high, wide = (max(1, round(length * side / longer)) for length in box.size)
    return Geometry(size, box, Box((side - high) // 2, (side - wide) // 2, high, wide), side)


def normalisation(pixels: Array, task: Task) -> tuple[Array, Array, Array]:
    """C×H×W pixels, clipped where the task says so, and each channel's offset and scale (float32).

    A constant image becomes 0.
    """
    channels = len(pixels)
    if task.normalisation == "channelwise":
        offset, scale = _mean_and_deviation(pixels.reshape(channels, -1))
    elif task.normalisation == "standard":
        offset, scale = _mean_and_deviation(pixels.reshape(1, -1))
    else:
        low, high = _range(pixels, task)
        if task.normalisation != "minmax":
            pixels = np.clip(pixels, *_representable(low, high, pixels.dtype))
        offset, scale = np.array([low]), np.array([high - low])
    scale = np.where(scale > 0, scale, 1.0)
    offset, scale = np.broadcast_arrays(offset, scale, np.empty(channels))[:2]
    return pixels, offset.astype(np.float32), scale.astype(np.float32)


def _mean_and_deviation(rows: Array) -> tuple[Array, Array]:
    return rows.mean(axis=1, dtype=np.float64), rows.std(axis=1, dtype=np.float64)


def _range(pixels: Array, task: Task) -> tuple[float, float]:
    """What becomes 0 and 1."""
    if task.normalisation == "window":
        assert task.window is not None, "a task with this normalisation has one"
        return task.window
    if task.normalisation == "percentile":
        low, high = np.percentile(pixels, task.percentiles)
        return float(low), float(high)
    return float(pixels.min()), float(pixels.max())


def _representable(low: float, high: float, dtype: np.dtype) -> tuple[float, float]:
    """The same bounds, for 8 bits as the nearest grey levels."""
    if dtype != np.uint8:
        return low, high
    return round(min(max(low, 0), 255)), round(min(max(high, 0), 255))


def _seen(inner: Array, task: Task, geometry: Geometry, view: View | None) -> View | None:
    if view is not None:
        seen = resized_mask(view[geometry.box.within].astype(np.uint8), geometry.place.size) > 0
    elif task.dark is not None:
        seen = _brightness(inner) > np.float32(task.dark)
    elif geometry.fills:
        return None
    else:
        seen = np.ones(geometry.place.size, dtype=np.bool_)
    square = np.zeros((geometry.resolution, geometry.resolution), dtype=np.bool_)
    square[geometry.place.within] = seen
    return square


def _brightness(image: Array) -> Array:
    """H×W, the brightest channel of each pixel, from 0 to 1 over the image."""
    brightest = image.max(axis=0).astype(np.float32)
    low = np.float32(image.min())
    return (brightest - low) / ((brightest.max() - low) or np.float32(1))


def _content(image: Array, dark: float | None) -> Box:
    """The image without border: rows and columns all dark or of one value at its sides."""
    bright = np.ones(image.shape[1:], dtype=np.bool_)
    if dark is not None:
        bright = _brightness(image) > dark
    (top, bottom), (left, right) = (
        _ends((bright.mean(axis=axis) > SHARE_OF_A_LINE) & _varies(image, axis)) for axis in (1, 0)
    )
    return Box(top, left, bottom - top, right - left)


def _varies(image: Array, axis: int) -> NDArray[np.bool_]:
    along = image.max(axis=axis + 1) != image.min(axis=axis + 1)
    return np.asarray(along.any(axis=0))


def _ends(kept: NDArray[np.bool_]) -> tuple[int, int]:
    """The first of the kept lines and the one after the last; all where none is kept."""
    places = np.flatnonzero(kept)
    return (int(places[0]), int(places[-1]) + 1) if places.size else (0, len(kept))
