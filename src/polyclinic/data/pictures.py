"""Pictures for people: a case with the outlines of its regions."""

import colorsys

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.readers import Array
from polyclinic.data.tasks import Task
from polyclinic.masks import Mask

Picture = NDArray[np.uint8]  # H×W×3
Region = NDArray[np.bool_]
Colour = tuple[int, int, int]
# Colours that colour-blind eyes tell apart and that are rare in tissue.
TRUE: Colour = (0, 235, 70)
PREDICTED: Colour = (255, 0, 210)
COLOURS: tuple[Colour, ...] = (TRUE, PREDICTED, (0, 190, 255), (255, 220, 0))
BACKGROUND: Colour = (40, 60, 255)  # of strokes that say so
# Classes without an order, which colour-blind eyes tell apart, too (Okabe and Ito 2008).
CLASSES: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (0, 0, 0),
)
SHADES = ((0.0, 0.0), (0.4, 255.0), (0.45, 128.0))  # how much of which grey further classes get
TURN = 0.382  # of the circle of hues from one further colour to the next: never the same twice


def colour_of(number: int) -> Colour:
    """The colour of a class or region by number, from 0; the first four are `COLOURS`."""
    if number < len(COLOURS):
        return COLOURS[number]
    light = (1.0, 0.7, 0.85)[number % 3]
    red, green, blue = colorsys.hsv_to_rgb(number * TURN % 1, 0.75, light)
    return round(255 * red), round(255 * green), round(255 * blue)


def as_picture(image: Array, side: int | None = None) -> Picture:
    """A C×H×W image, 8 bit or any floats, as H×W×3, resized to `side` × `side` where given.

    Of two channels or more than three the first shows, in grey.
    """
    pixels = image[: 3 if len(image) == 3 else 1].transpose(1, 2, 0)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8)
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    if side is None:
        return np.ascontiguousarray(pixels)
    return np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))


def draw_contours(
    picture: Picture, region: Region, colour: Colour, *, width: int = 1, outside: bool = False
) -> Picture:
    """The picture with the region's outline, `width` pixels just inside or just outside of it.

    A region of another size than the picture is resized to it first.
    """
    region = _resized(region, picture)
    reached = region
    for _ in range(width):
        reached = _grown(reached) if outside else ~_grown(~reached, beyond=True)
    drawn = picture.copy()
    drawn[region ^ reached] = colour
    return drawn


def draw_label(picture: Picture, label: Mask, classes: int) -> Picture:
    """The picture with the labelled pixels tinted by class, background blue."""
    drawn = picture.astype(np.float32)
    for number in range(classes):
        colour = colour_of(number - 1) if number else BACKGROUND
        drawn[_resized(label == number, picture)] *= 0.4
        drawn[_resized(label == number, picture)] += 0.6 * np.array(colour)
    return drawn.round().astype(np.uint8)


def draw_heat(image: Array, heat: NDArray[np.float64], side: int) -> Picture:
    """A C×H×W image in grey, tinted from blue to yellow where a map of any size is low to high."""
    grey = as_picture(image, side).mean(axis=2, keepdims=True)
    low, high = float(heat.min()), float(heat.max())
    shares = Image.fromarray(((heat - low) / max(high - low, 1e-12)).astype(np.float32))
    share = np.asarray(shares.resize((side, side), Image.Resampling.BILINEAR))[:, :, None]
    cold, warm = np.array((20.0, 40.0, 160.0)), np.array((255.0, 225.0, 40.0))
    return (0.5 * grey + 0.5 * (cold + (warm - cold) * share)).round().astype(np.uint8)


def draw_classes(image: Array, numbers: NDArray[np.integer], side: int) -> Picture:
    """A C×H×W image in grey, tinted by class on a map of any size; classes have no order.

    The same number has the same colour in every picture; after 24 of them colours repeat.
    """
    grey = as_picture(image, side).mean(axis=2, keepdims=True)
    pixels = Image.fromarray(numbers.astype(np.uint16)).resize(
        (side, side), Image.Resampling.NEAREST
    )
    colours = np.array([_class_colour(number) for number in range(int(numbers.max()) + 1)])
    return (0.3 * grey + 0.7 * colours[np.asarray(pixels)]).round().astype(np.uint8)


def compared(image: Array, true: Mask, predicted: Mask, task: Task, side: int = 384) -> Picture:
    """A case with the outlines of its regions: true ones in `TRUE`, predicted in `PREDICTED`.

    Where both agree they stand side by side, true outside and predicted inside.
    """
    picture = as_picture(image, side)
    width = max(1, side // 192)
    for classes in task.regions.values():
        known = np.isin(true, classes)
        picture = draw_contours(picture, known, TRUE, width=width, outside=True)
    for classes in task.regions.values():
        picture = draw_contours(picture, np.isin(predicted, classes), PREDICTED, width=width)
    return picture


def _class_colour(number: int) -> NDArray[np.float64]:
    share, shade = SHADES[number // len(CLASSES) % len(SHADES)]
    return (1 - share) * np.array(CLASSES[number % len(CLASSES)], np.float64) + share * shade


def _resized(region: Region, picture: Picture) -> Region:
    high, wide = picture.shape[:2]
    if region.shape == (high, wide):
        return region
    pixels = Image.fromarray(region.astype(np.uint8)).resize((wide, high), Image.Resampling.NEAREST)
    return np.asarray(pixels).astype(np.bool_)


def _grown(region: Region, *, beyond: bool = False) -> Region:
    """The region and its neighbours; `beyond` the picture is outside or region."""
    padded = np.pad(region, 1, constant_values=beyond)
    return region | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
