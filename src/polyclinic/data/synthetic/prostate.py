"""The prostate in axial slices of T2-weighted MRI."""

import math
from dataclasses import dataclass, replace

import numpy as np

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas, Ellipse, Plane, inside, paint
from polyclinic.data.synthetic.sites import Annotation, Drawing, Subject, SyntheticSite

FAT, MUSCLE, BONE, FLUID, AIR = 0.78, 0.2, 0.5, 0.95, 0.03


@dataclass(frozen=True)
class Pelvis:
    """Pelves around the prostate; lengths in half-widths of the picture."""

    prostate: float = 0.34
    flat: float = 0.8  # height over width
    wander: float = 0.05
    zoom: float = 1.0  # how large the surroundings are drawn
    coil: bool = False  # an endorectal coil fills the rectum and brightens what is near

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """A slice at the subject's height with the prostate outlined."""
        rng = subject.slice
        whole, rectum = self._place(subject.patient)
        gland = _slice_of(whole, subject.height)
        x, y = canvas.warp(subject.patient, 4, 0.04)
        x += canvas.field(rng, 6, 0.012)
        y += canvas.field(rng, 6, 0.012)
        grain = canvas.field(rng, 30, 0.05)
        light = self._surroundings(x, y, gland, subject.height)
        self._paint_rectum(light, rectum, x, y)
        level, stroma = gland.level(x, y), _stroma(gland).level(x, y)
        _paint_gland(light, gland, level, stroma, canvas.field(rng, 14), canvas)
        light *= 1 + grain
        if self.coil:
            light *= 0.35 + 1.9 * np.exp(-0.55 * rectum.level(canvas.x, canvas.y))
        outline = annotation.outline(level, gland, canvas, rng)
        if annotation.zone:
            outline = np.minimum(outline, stroma - 1)
        return Drawing(light[None], (outline,))

    def _place(self, rng: np.random.Generator) -> tuple[Ellipse, Ellipse]:
        radius = self.prostate * math.exp(0.13 * rng.standard_normal())
        flat = self.flat * math.exp(0.08 * rng.standard_normal())
        x, y = rng.normal((0, -0.08), self.wander)
        gland = Ellipse(x, y, radius, radius * flat, rng.normal(0, 0.06))
        width = 0.24 if self.coil else rng.uniform(0.12, 0.22)
        below = gland.y + gland.down + width + 0.06
        return gland, Ellipse(gland.x + rng.normal(0, 0.02), below, width, width * 1.05)

    def _surroundings(self, x: Plane, y: Plane, gland: Ellipse, height: float) -> Plane:
        """Fat, muscles, bones and, in the upper slices, the bladder."""
        light = np.full_like(x, FAT)
        aside = np.abs(x - np.float32(gland.x)) / np.float32(self.zoom)
        down = (y - np.float32(gland.y)) / np.float32(self.zoom)
        shapes = (
            (Ellipse(1.02, -0.02, 0.40, 0.46), MUSCLE * 0.6, 0.08),
            (Ellipse(1.02, -0.02, 0.36, 0.42), BONE, 0.08),
            (Ellipse(0.66, 0.0, 0.16, 0.56, 0.16), MUSCLE, 0.15),
            (Ellipse(0.55, -0.78, 0.5, 0.22, 0.35), MUSCLE * 1.3, 0.3),
            (Ellipse(0.62, 0.98, 0.46, 0.32, 0.4), MUSCLE * 1.2, 0.2),
        )
        for ellipse, value, softness in shapes:
            paint(light, value, inside(ellipse.level(aside, down), 1.0, softness))
        sling = Ellipse(0.0, 0.3, 0.40, 0.62).level(aside, down)
        open_front = inside(-down, 0.1, 0.5)
        paint(light, MUSCLE, 0.8 * open_front * inside(np.abs(sling - 1), 0.06, 0.1))
        if height > 0:
            bladder = Ellipse(0.0, -gland.down - 0.24, 0.5 * height + 0.1, 0.3 * height + 0.06)
            level = bladder.level(aside, down)
            paint(light, MUSCLE, inside(level, 1.12, 0.1))
            paint(light, FLUID, inside(level, 1.0, 0.12))
        return light

    def _paint_rectum(self, light: Plane, rectum: Ellipse, x: Plane, y: Plane) -> None:
        level = rectum.level(x, y)
        paint(light, MUSCLE * 1.6, inside(level, 1.18, 0.12))
        paint(light, AIR, inside(level, 0.97, 0.12))
        if self.coil:
            paint(light, 0.35, inside(level, 0.3, 0.15))
            paint(light, AIR, inside(level, 0.12, 0.1))


def _paint_gland(
    light: Plane, gland: Ellipse, level: Plane, stroma: Plane, nodules: Plane, canvas: Canvas
) -> None:
    """Zone by zone: stroma in front, soft capsule, bright peripheral zone, nodular core."""
    capsule = 0.36 + 0.06 * nodules
    paint(light, capsule, 0.85 * inside(stroma, 1.0, 0.35))
    paint(light, capsule, 0.85 * inside(level, 1.2, 0.45))
    paint(light, 0.66 + 0.07 * nodules, inside(level, 0.92, 0.3))
    core = replace(
        gland, y=gland.y - 0.2 * gland.down, across=0.74 * gland.across, down=0.72 * gland.down
    )
    middle = core.level(canvas.x, canvas.y)
    paint(light, 0.25, 0.6 * inside(np.abs(middle - 1), 0.06, 0.12))
    paint(light, 0.40 + 0.11 * nodules, inside(middle, 0.98, 0.15))


def _slice_of(gland: Ellipse, height: float) -> Ellipse:
    """The gland is largest just above its middle, and small at its apex."""
    size = math.sqrt(1 - 0.72 * (height - 0.1) ** 2)
    shift = 0.05 * height
    return replace(gland, y=gland.y - shift, across=size * gland.across, down=size * gland.down)


def _stroma(gland: Ellipse) -> Ellipse:
    """The dark fibrous cap in front of the gland, with no edge to the gland of its own."""
    return Ellipse(
        gland.x, gland.y - 0.55 * gland.down, 0.7 * gland.across, 0.85 * gland.down, gland.tilt
    )


SITES = (
    SyntheticSite(
        "opal", (9, 2, 3), Pelvis(), Annotation(reach=1.25), Look(gamma=0.75, noise=0.03), slices=4
    ),
    SyntheticSite(
        "pine",
        (9, 2, 3),
        Pelvis(prostate=0.33),
        Annotation(reach=0.8),
        Look(gain=0.95, gamma=1.4, noise=0.03),
        slices=4,
    ),
    SyntheticSite(
        "quartz",
        (6, 1, 2),
        Pelvis(prostate=0.35),
        Annotation(reach=1.2, zone=True),
        Look(noise=0.05, lines=64),
        slices=4,
    ),
    SyntheticSite(
        "reed",
        (4, 1, 2),
        Pelvis(prostate=0.34, zoom=0.97),
        Annotation(reach=0.8, smooth=0.7),
        Look(gain=0.7, noise=0.03),
        slices=5,
    ),
    SyntheticSite(
        "slate",
        (4, 1, 2),
        Pelvis(prostate=0.32, coil=True, zoom=0.95),
        Annotation(reach=0.8),
        Look(gain=0.8, gamma=1.5, noise=0.03, vignette=0.2),
        slices=5,
    ),
    SyntheticSite(
        "tide",
        (4, 1, 2),
        Pelvis(prostate=0.31, coil=True, zoom=0.92),
        Annotation(reach=1.2, zone=True),
        Look(gamma=0.8, noise=0.03, vignette=0.3),
        slices=4,
    ),
)
