"""The foveal avascular zone (FAZ) in the vessel net of OCT angiography, seen from the front."""

import math
from dataclasses import dataclass

import numpy as np

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas, Ellipse, Plane, inside
from polyclinic.data.synthetic.sites import Annotation, Drawing, Subject, SyntheticSite
from polyclinic.data.synthetic.vessels import grow, ink


@dataclass(frozen=True)
class Octa:
    """Maculae around the fovea; lengths in half-widths of the picture."""

    zone: float = 0.30
    ragged: float = 0.16  # of the zone's radius
    wander: float = 0.07
    meshes: int = 34  # capillary meshes across the picture
    vessel: float = 0.016  # radius of the largest vessels
    capillaries: float = 0.45  # how bright the net is
    floor: float = 0.14  # how bright the empty zone is
    bands: float = 0.0  # stripes from eye movements

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """A macula with its avascular zone outlined."""
        rng = subject.slice
        zone = self._place(rng)
        x, y = canvas.warp(rng, 9, 0.5 * self.ragged * zone.across)
        level = zone.level(x, y)
        perfused = 1 - inside(level, 1.06, 0.55)
        fine = canvas.net(rng, self.meshes, 0.8)
        coarse = canvas.net(rng, self.meshes // 2, 0.25)
        clouds = 1 + canvas.field(rng, 3, 0.15)
        net = np.float32(self.capillaries) * (fine + 0.5 * coarse) * perfused * clouds
        vessels = _vessels(rng, zone, self.vessel, canvas.side)
        light = np.float32(self.floor) * (0.4 + 0.6 * perfused) + net
        light += vessels * inside(-level, -1.0, 0.3) * (np.float32(0.85) - light)
        if self.bands:
            light *= 1 + np.float32(self.bands) * _stripes(rng, canvas)
        return Drawing(light[None], (annotation.outline(level, zone, canvas, rng),))

    def _place(self, rng: np.random.Generator) -> Ellipse:
        radius = self.zone * math.exp(0.16 * rng.standard_normal())
        oblong = math.exp(0.1 * rng.standard_normal())
        x, y = rng.normal(0, self.wander, 2)
        return Ellipse(x, y, radius * oblong, radius / oblong, rng.uniform(-0.5, 0.5))


def _vessels(rng: np.random.Generator, zone: Ellipse, thick: float, side: int) -> Plane:
    """Vessels that come in from all around, branch, and end in a ring around the zone."""
    count = 18
    angle = 2 * math.pi * (np.arange(count) + rng.uniform(-0.45, 0.45, count)) / count
    aim, long, big = rng.random((3, count))
    trunks = grow(
        rng,
        x=zone.x + 1.5 * np.cos(angle),
        y=zone.y + 1.5 * np.sin(angle),
        heading=angle + math.pi + 1.2 * (aim - 0.5),
        bend=-1.6 * (aim - 0.5),
        length=0.9 + 0.5 * long,
        radius=thick * (0.35 + 0.65 * big**2),
        wobble=0.12,
    )
    branches = trunks.branch(rng, 24, length=0.7, angle=0.9, wobble=0.16)
    twigs = branches.branch(rng, 30, length=0.35, angle=0.9, wobble=0.25)
    return ink(side, trunks, branches, twigs)


def _stripes(rng: np.random.Generator, canvas: Canvas) -> Plane:
    rows = rng.standard_normal(64, dtype=np.float32)
    return np.repeat(rows, math.ceil(canvas.side / 64))[: canvas.side, None]


SITES = (
    SyntheticSite(
        "fjord",
        (28, 4, 10),
        Octa(zone=0.22, meshes=60, vessel=0.02, capillaries=0.36),
        Annotation(reach=0.8, smooth=0.5),
        Look(noise=0.07, gamma=0.85),
    ),
    SyntheticSite(
        "grove",
        (20, 4, 8),
        Octa(zone=0.33, meshes=36, vessel=0.024, capillaries=0.28, floor=0.07),
        Annotation(reach=1.25),
        Look(gain=0.9, noise=0.05, lines=64),
    ),
    SyntheticSite(
        "heath",
        (24, 4, 14),
        Octa(zone=0.3, meshes=52, vessel=0.015, capillaries=0.42, floor=0.15),
        Annotation(reach=1.25),
        Look(gamma=1.8, noise=0.06),
    ),
    SyntheticSite(
        "inlet",
        (56, 8, 26),
        Octa(zone=0.3, meshes=52, vessel=0.015, capillaries=0.4, bands=0.06),
        Annotation(reach=0.8, smooth=0.3),
        Look(gamma=0.7, noise=0.065),
    ),
    SyntheticSite(
        "jetty",
        (10, 2, 5),
        Octa(zone=0.34, meshes=42, vessel=0.015, capillaries=0.5),
        Annotation(reach=1.0, smooth=0.8),
        Look(gain=1.05, gamma=1.15, noise=0.05),
    ),
)
