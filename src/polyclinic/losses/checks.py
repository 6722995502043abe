"""What the losses refuse, always with every mistake at once."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


class TensorError(ValueError):
    """Tensors that do not belong together, or numbers that a loss cannot work with."""


def refuse(function: str, mistakes: Iterable[str]) -> None:
    """Raise a TensorError that lists the mistakes, if there are any."""
    errors = list(mistakes)
    if errors:
        raise TensorError(f"{function} cannot work with this: {'; '.join(errors)}")


def map_mistakes(**maps: Tensor) -> Iterator[str]:
    """Errors of maps (N×C×H×W, any C) that should agree with the first of them."""
    first = next(iter(maps))
    for name, each in maps.items():
        if each.dim() != 4:
            yield f"{name} should be batch × channels × height × width, not {_shape(each)}"
        elif 0 in each.shape:
            yield f"{name} is empty ({_shape(each)})"
        elif _size(each) != _size(maps[first]):
            yield f"{name} ({_shape(each)}) and {first} ({_shape(maps[first])}) differ in size"


def pixel_mistakes(name: str, pixels: Tensor, maps: Tensor) -> Iterator[str]:
    """Errors of a choice of pixels (boolean N×H×W) that should agree with maps."""
    if pixels.dtype is not torch.bool:
        yield f"{name} should be boolean, not {pixels.dtype}"
    if tuple(pixels.shape) != _size(maps):
        yield f"{name} ({_shape(pixels)}) and the maps ({_shape(maps)}) differ in size"


def image_mistakes(image: Tensor) -> Iterator[str]:
    """Errors of the numbers of an image."""
    if not image.isfinite().all():
        yield "image holds NaN or infinite pixels"


def positive_mistakes(**numbers: float) -> Iterator[str]:
    """Which of these numbers are not above zero."""
    for name, number in numbers.items():
        if not number > 0:
            yield f"{name} should be above 0, not {number}"


def _size(maps: Tensor) -> tuple[int, ...]:
    return (*maps.shape[:1], *maps.shape[2:])


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a single number"
