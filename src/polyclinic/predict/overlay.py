"""A picture of an image with what was predicted on it."""

from collections.abc import Mapping

import numpy as np
from PIL import Image

from polyclinic.data.pictures import Colour, Picture, as_picture, draw_contours
from polyclinic.data.readers import Array
from polyclinic.data.tasks import Task
from polyclinic.masks import Mask

LARGEST = 1024  # pixels of the longer side
TINT = 0.25  # how much of a class's colour lies on its pixels


def overlay(image: Array, mask: Mask, colours: Mapping[str, str], task: Task) -> Picture:
    """The image (C×H×W) with each class tinted and outlined in its colour, at most 1,024 wide."""
    picture = _shrunk(as_picture(image[:3] if len(image) > 2 else image[:1]))
    size = picture.shape[1], picture.shape[0]
    small = np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))
    drawn = picture.astype(np.float32)
    for number, name in enumerate(task.classes):
        if name in colours:
            here = small == number
            drawn[here] = (1 - TINT) * drawn[here] + TINT * np.array(_colour(colours[name]))
    tinted = drawn.round().astype(np.uint8)
    width = max(1, max(size) // 256)
    for number, name in enumerate(task.classes):
        if name in colours:
            tinted = draw_contours(tinted, small == number, _colour(colours[name]), width=width)
    return tinted


def _shrunk(picture: Picture) -> Picture:
    high, wide = picture.shape[:2]
    share = min(1.0, LARGEST / max(high, wide))
    if share == 1:
        return picture
    size = max(1, round(wide * share)), max(1, round(high * share))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))


def _colour(text: str) -> Colour:
    red, green, blue = bytes.fromhex(text.removeprefix("#"))
    return red, green, blue
