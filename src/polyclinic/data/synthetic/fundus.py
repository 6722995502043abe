"""The optic disc and its cup in a colour photograph of the eye's fundus."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas, Colour, Ellipse, Plane, inside
from polyclinic.data.synthetic.sites import Annotation, Drawing, Subject, SyntheticSite
from polyclinic.data.synthetic.vessels import grow, ink

NERVE: Colour = (1.15, 0.72, 0.42)
CUP: Colour = (1.00, 0.86, 0.60)
BLOOD: Colour = (0.28, 0.62, 0.58)  # the share of light that vessels swallow


@dataclass(frozen=True)
class Fundus:
    """Eyes seen around the disc; lengths in half-widths of the picture."""

    disc: float = 0.42
    oblong: float = 1.08
    cup: float = 0.5  # of the disc's radius
    wander: float = 0.08
    halo: float = 0.5  # how bright the atrophic zone around the disc is
    retina: Colour = (0.62, 0.30, 0.13)
    aperture: float = 0.0  # how far the round field's edge comes into the picture

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """An eye, left or right, with disc and cup outlined."""
        rng = subject.slice
        eye = 1.0 if rng.random() < 0.5 else -1.0  # the side of the fovea
        disc, cup = self._place(rng)
        x, y = canvas.warp(rng, 4, 0.07 * disc.across)
        disc_level, cup_level = disc.level(x, y), cup.level(x, y)
        crescent = _crescent(disc, eye).level(x, y)
        light = self._light(rng, disc_level, cup_level, crescent, canvas)
        vessels = _vessels(rng, disc, eye, canvas.side)
        light *= 1 - np.array(BLOOD, dtype=np.float32)[:, None, None] * vessels
        if self.aperture:
            light *= _field_edge(rng, self.aperture, canvas)
        outer = annotation.outline(disc_level, disc, canvas, rng)
        if annotation.zone:
            outer = np.minimum(outer, crescent - 1)
        inner = annotation.outline(cup_level, cup, canvas, rng, inner=True)
        return Drawing(light, (outer, np.maximum(inner, outer + np.float32(0.12))))

    def _place(self, rng: np.random.Generator) -> tuple[Ellipse, Ellipse]:
        radius = self.disc * math.exp(rng.normal(0, 0.09))
        stretch = math.sqrt(self.oblong * math.exp(rng.normal(0, 0.04)))
        x, y = rng.normal(0, self.wander, 2)
        ratio = min(0.75, max(0.25, rng.normal(self.cup, 0.09)))
        tilt = rng.normal(0, 0.2)
        aside, up = rng.normal(0, 0.06, 2) * radius
        disc = Ellipse(x, y, radius / stretch, radius * stretch, tilt)
        return disc, Ellipse(x + aside, y + up, ratio * disc.across, ratio * disc.down, -tilt)

    def _light(
        self,
        rng: np.random.Generator,
        disc: Plane,
        cup: Plane,
        crescent: Plane,
        canvas: Canvas,
    ) -> NDArray[np.float32]:
        clouds = canvas.field(rng, 3, 0.09)
        mottle = canvas.field(rng, 22, 0.03)
        ground = 1 + clouds + mottle + np.float32(0.1 * rng.random()) * canvas.net(rng, 9, 0.6)
        pale = np.minimum(crescent, disc / np.float32(1.06))
        zone = inside(pale, 1.06, 0.4) * (np.float32(0.55 * self.halo) + 2 * mottle)
        rim = inside(disc, 1.0, 0.46)
        hollow = inside(cup, 1.0, 0.9) * np.float32(rng.uniform(0.75, 1.0))
        bright = 1 + 0.4 * clouds + 0.7 * mottle
        light = np.empty((3, canvas.side, canvas.side), dtype=np.float32)
        for channel in range(3):
            nerve = np.float32((self.retina[channel] + NERVE[channel]) / 2)
            base = np.float32(self.retina[channel]) * ground
            base += zone * (nerve - base)
            base += rim * (nerve * bright - base)
            base += hollow * (np.float32(CUP[channel]) * bright - base)
            light[channel] = base
        return light


def _crescent(disc: Ellipse, eye: float) -> Ellipse:
    """The pale zone beside the disc, on the fovea's side."""
    return Ellipse(
        disc.x + 0.16 * eye * disc.across, disc.y, 1.1 * disc.across, disc.down, disc.tilt
    )


def _vessels(rng: np.random.Generator, disc: Ellipse, eye: float, side: int) -> Plane:
    """Arcades that leave the disc up and down and bend towards the fovea, with their branches."""
    upward = np.array([-1, -1, -1, -1, 1, 1, 1, 1], dtype=float)
    towards = eye * np.array([1, 1, -1, -1, 1, 1, -1, -1], dtype=float)
    thick = np.array([1.0, 0.7, 0.75, 0.5, 1.0, 0.7, 0.75, 0.5])
    wide, curve, long, big = rng.random((4, len(upward)))
    aside, off = rng.normal(0, 0.07, (2, len(upward)))
    trunks = grow(
        rng,
        x=disc.x + (aside - 0.12 * eye) * disc.across,
        y=disc.y + (off - 0.05 * upward) * disc.down,
        heading=upward * (math.pi / 2 - towards * (0.75 * wide - 0.15)),
        bend=-upward * towards * 0.75 * curve,
        length=1.2 + 0.5 * long,
        radius=thick * (0.02 + 0.01 * big),
        wobble=0.14,
    )
    branches = trunks.branch(rng, 12, length=0.9, wobble=0.14)
    twigs = branches.branch(rng, 14, length=0.5, wobble=0.2)
    return ink(side, trunks, branches, twigs)


def _field_edge(rng: np.random.Generator, aperture: float, canvas: Canvas) -> Plane:
    side = 1.0 if rng.random() < 0.5 else -1.0
    depth = 2.2 - max(0.0, float(rng.normal(aperture, 0.08)))
    return inside(Ellipse(side * 1.2, 0.0, depth, depth).level(canvas.x, canvas.y), 1.0, 0.02)


SITES = (
    SyntheticSite(
        "amber",
        (16, 4, 12),
        Fundus(disc=0.44, cup=0.6),
        Annotation(reach=1.0, inner=1.15, zone=True),
        Look(tint=(1.0, 0.95, 0.8), noise=0.015, vignette=0.3, spread=0.12),
    ),
    SyntheticSite(
        "birch",
        (20, 4, 12),
        Fundus(disc=0.50, cup=0.48, retina=(0.60, 0.22, 0.14)),
        Annotation(reach=0.9, inner=1.2),
        Look(tint=(0.85, 0.75, 0.8), gain=1.1, gamma=1.1, noise=0.02, blur=0.02, vignette=0.5),
    ),
    SyntheticSite(
        "cedar",
        (44, 6, 12),
        Fundus(disc=0.41, cup=0.55, aperture=0.18),
        Annotation(reach=1.2, inner=1.2),
        Look(tint=(1.0, 0.95, 0.85), noise=0.02, blur=0.008, vignette=0.3),
    ),
    SyntheticSite(
        "dune",
        (44, 6, 12),
        Fundus(disc=0.42, cup=0.55, aperture=0.18),
        Annotation(reach=0.86, inner=0.82),
        Look(tint=(1.0, 0.95, 0.85), noise=0.02, blur=0.01, vignette=0.3),
    ),
    SyntheticSite(
        "ember",
        (20, 4, 16),
        Fundus(disc=0.36, cup=0.5, retina=(0.66, 0.40, 0.30), aperture=0.18),
        Annotation(reach=1.1, inner=0.85, smooth=0.5),
        Look(tint=(1.0, 1.02, 1.1), gamma=0.9, noise=0.015, blur=0.012, vignette=0.4),
    ),
)
