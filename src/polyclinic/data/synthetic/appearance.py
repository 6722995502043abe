"""How a site's device turns light into numbers."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np
from numpy.typing import NDArray

from polyclinic.data.synthetic.canvas import Canvas, surface

TONES = 1024

Picture = NDArray[np.float32]
"""A channels × rows × columns array."""


@dataclass(frozen=True)
class Look:
    """A device: colour, exposure, tone curve, grain, sharpness and fall-off to the corners."""

    tint: tuple[float, ...] = (1.0,)
    gain: float = 1.0
    gamma: float = 1.0
    noise: float = 0.02
    blur: float = 0.0  # standard deviation in half-widths of the picture
    lines: int = 0  # how many lines across the picture the device can resolve; 0: all
    vignette: float = 0.0
    spread: float = 0.08  # how much exposure and colour differ from case to case


def photograph(
    light: Picture, look: Look, canvas: Canvas, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The C × resolution × resolution picture that the device takes of a C × side × side scene."""
    exposure = look.gain * np.exp(look.spread * rng.standard_normal())
    channels = np.exp(0.5 * look.spread * rng.standard_normal(len(look.tint)))
    gains = (exposure * channels * look.tint).astype(np.float32)[:, None, None]
    fall_off = 1 - np.float32(look.vignette / 2) * (canvas.x**2 + canvas.y**2)
    picture = canvas.pool(light * (gains * fall_off))
    if look.blur:
        picture = _blur(picture, _bell(look.blur * canvas.resolution / 2))
    if 0 < look.lines < canvas.resolution:
        picture = _resolve(picture, look.lines)
    # Even grain of the same spread: normal numbers would take longer than all the rest.
    grain = rng.random(picture.shape[1:], dtype=np.float32) - np.float32(0.5)
    picture += np.float32(look.noise * math.sqrt(12)) * grain
    picture *= np.float32(TONES - 1)
    return _tone_curve(look.gamma)[np.clip(picture, 0, TONES - 1).astype(np.intp)]


def _resolve(picture: Picture, lines: int) -> Picture:
    """What is left of a picture after it was sampled on so many lines only."""
    side = picture.shape[-1]
    sharp = _blur(picture, _bell(0.4 * side / lines))
    places = np.rint(np.arange(-1, lines + 2) * side / lines - 0.5).clip(0, side - 1).astype(int)
    samples = sharp[:, places[:, None], places]
    return np.stack([surface(channel, side) for channel in samples])


@lru_cache(maxsize=64)
def _bell(deviation: float) -> NDArray[np.float32]:
    """Weights of a Gaussian blur, `deviation` in pixels."""
    reach = max(1, math.ceil(2.5 * deviation))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    return (weights / weights.sum()).astype(np.float32)


@numba.njit(cache=True)
def _blur(picture: Picture, weights: NDArray[np.float32]) -> Picture:
    channels, rows, columns = picture.shape
    reach = len(weights) // 2
    blurred = np.zeros_like(picture)
    row = np.empty(columns + 2 * reach, dtype=np.float32)
    for channel in range(channels):
        for i in range(rows):
            row[:] = 0
            for k in range(len(weights)):
                source = picture[channel, min(rows - 1, max(0, i + k - reach))]
                for j in range(columns):
                    row[reach + j] += weights[k] * source[j]
            row[:reach] = row[reach]
            row[reach + columns :] = row[reach + columns - 1]
            for k in range(len(weights)):
                for j in range(columns):
                    blurred[channel, i, j] += weights[k] * row[j + k]
    return blurred


@lru_cache(maxsize=64)
def _tone_curve(gamma: float) -> NDArray[np.uint8]:
    tone: NDArray[np.float64] = np.linspace(0, 1, TONES) ** gamma
    return np.round(255 * tone).astype(np.uint8)
