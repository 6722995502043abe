"""Polyps on the folded wall of the colon, seen through an endoscope."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas, Colour, Ellipse, Plane, inside
from polyclinic.data.synthetic.sites import Annotation, Drawing, Subject, SyntheticSite


@dataclass(frozen=True)
class Colon:
    """Views into the colon; lengths in half-widths of the picture."""

    polyp: float = 0.3
    oblong: float = 1.2
    pairs: float = 0.15  # how often there are two
    wander: float = 0.28
    raised: float = 0.65  # how much a polyp stands out by its light, from 0 to 1
    mucosa: Colour = (0.86, 0.50, 0.38)
    gloss: float = 0.6
    corner: float = 1.5  # |x| + |y| at the cut corners of the frame
    frame: float = 1.0  # |x| and |y| at its sides

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """A view with one or two polyps outlined."""
        rng = subject.slice
        wall = _wall(rng, canvas)
        angle = rng.uniform(0, 2 * math.pi)
        hue = np.array(self.mucosa) * rng.uniform((1.0, 0.68, 0.72), (1.12, 0.9, 0.95))
        polyps = self._place(rng)
        x, y = canvas.warp(rng, 5, 0.1 * self.polyp)
        levels = [polyp.level(x, y) for polyp in polyps]
        bump, cover = wall, np.zeros_like(wall)
        for polyp, level in zip(polyps, levels, strict=True):
            bump = self._raise(bump, polyp, level, angle, canvas)
            cover = np.maximum(cover, inside(level, 1.08, 0.5))
        light = self._colour(rng, bump, cover, hue, canvas)
        frame = self._frame(canvas)
        light *= frame <= 0
        outlines = [
            annotation.outline(level, polyp, canvas, rng)
            for polyp, level in zip(polyps, levels, strict=True)
        ]
        return Drawing(light, (np.maximum(np.minimum.reduce(outlines), frame),))

    def _place(self, rng: np.random.Generator) -> list[Ellipse]:
        count = 2 if rng.random() < self.pairs else 1
        start = rng.uniform(0, 2 * math.pi)
        polyps = []
        for index in range(count):
            radius = self.polyp * math.exp(0.28 * rng.standard_normal()) / math.sqrt(count)
            stretch = math.sqrt(self.oblong) * math.exp(0.1 * rng.standard_normal())
            across, down = min(0.6, radius * stretch), min(0.6, radius / stretch)
            away = rng.uniform(0.35, 0.5) if count > 1 else self.wander * math.sqrt(rng.random())
            angle = start + math.pi * index
            x, y = away * math.cos(angle), away * math.sin(angle)
            polyps.append(Ellipse(x, y, across, down, rng.uniform(0, math.pi)))
        return polyps

    def _raise(
        self, wall: Plane, polyp: Ellipse, level: Plane, angle: float, canvas: Canvas
    ) -> Plane:
        """The wall with a dome on it: lit from one side, with a shadow at its foot."""
        slope = np.float32(math.cos(angle) / polyp.across) * (canvas.x - np.float32(polyp.x))
        slope = slope + np.float32(math.sin(angle) / polyp.down) * (canvas.y - np.float32(polyp.y))
        shadow = inside(level, 1.15, 0.5)
        dark = wall * (1 - np.float32(0.5 * self.raised) * shadow * np.clip(0.8 - slope, 0.2, 1))
        dome = np.sqrt(np.maximum(1 - level * level / np.float32(1.35), 0))
        lit = np.float32(0.5) + np.float32(0.42) * dome + np.float32(0.16) * np.clip(slope, -1, 1)
        return dark + inside(level, 1.0, 0.3) * (lit - dark)

    def _colour(
        self,
        rng: np.random.Generator,
        bump: Plane,
        cover: Plane,
        hue: NDArray[np.float64],
        canvas: Canvas,
    ) -> NDArray[np.float32]:
        bump = bump * (1 + canvas.field(rng, 36, 0.02) + canvas.field(rng, 4, 0.05))
        veins = canvas.net(rng, 7, 0.16) * (1 - 0.7 * cover) * np.float32(0.22 * rng.random())
        spots = np.clip(canvas.field(rng, 24, 2.0) - np.float32(4.6 - 1.2 * self.gloss), 0, 1)
        spots *= inside(-bump, -0.78, 0.25)
        light = np.empty((3, canvas.side, canvas.side), dtype=np.float32)
        for channel in range(3):
            wall, polyp = np.float32(self.mucosa[channel]), np.float32(hue[channel])
            tone = bump * (wall + cover * (polyp - wall))
            if channel:
                # Green and blue die faster in the dark and in blood than red does.
                tone *= (0.5 + 0.5 * bump) * (1 - veins)
            light[channel] = tone + spots * (1 - tone)
        return light

    def _frame(self, canvas: Canvas) -> Plane:
        across, down = np.abs(canvas.x), np.abs(canvas.y)
        sides = np.maximum(across, down) - np.float32(self.frame)
        return np.maximum(sides, across + down - np.float32(self.corner))


def _wall(rng: np.random.Generator, canvas: Canvas) -> Plane:
    """How bright the colon's wall is: rings of folds around a dark depth."""
    angle, away = rng.uniform(0, 2 * math.pi), rng.uniform(0.4, 1.1)
    depth = Ellipse(
        away * math.cos(angle), away * math.sin(angle), 1.0, rng.uniform(0.7, 1.0), angle
    )
    x, y = canvas.warp(rng, 3, 0.16)
    distance = depth.level(x, y)
    phase = np.float32(rng.uniform(5, 8)) * np.log(distance + np.float32(0.15))
    fold = np.sin(phase + np.float32(0.6) * np.sin(phase))
    near = 1 - inside(distance, 0.3, 0.75)
    return (0.16 + 0.66 * near) * (1 + np.float32(rng.uniform(0.14, 0.3)) * fold)


SITES = (
    SyntheticSite(
        "kelp",
        (64, 8, 20),
        Colon(polyp=0.36, mucosa=(0.86, 0.49, 0.36), corner=1.7),
        Annotation(reach=1.25),
        Look(tint=(1.0, 1.0, 1.0), noise=0.015, vignette=0.3),
    ),
    SyntheticSite(
        "larch",
        (16, 3, 8),
        Colon(polyp=0.34, mucosa=(0.86, 0.60, 0.56), raised=0.85, gloss=0.8),
        Annotation(reach=0.8),
        Look(tint=(1.0, 1.0, 1.0), gamma=0.9, noise=0.02, vignette=0.2, spread=0.05),
    ),
    SyntheticSite(
        "maple",
        (28, 4, 10),
        Colon(polyp=0.36, mucosa=(0.86, 0.50, 0.35), raised=0.85, corner=1.7),
        Annotation(reach=0.78),
        # Narrow-band light: green and blue only.
        Look(tint=(0.5, 1.1, 1.15), noise=0.015, blur=0.01, vignette=0.4),
    ),
    SyntheticSite(
        "north",
        (44, 6, 16),
        Colon(polyp=0.34, mucosa=(0.86, 0.52, 0.38), pairs=0.3, frame=0.88, corner=1.5),
        Annotation(reach=1.25, smooth=0.8),
        Look(tint=(0.95, 0.95, 0.9), noise=0.02, vignette=0.3),
    ),
)
