"""Synthetic federations: for each task a handful of sites, drawn from a seed.

The sites differ in what they see (shapes), how it looks (devices) and, above all, in where they
draw an outline when the edge is soft, so that no single model suits them all. Each federation has
a second form in which the sites agree on outlines but have few patients.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyclinic.config.data_settings import Federation
from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import refuse
from polyclinic.data.site_files import SPLITS
from polyclinic.data.synthetic import fundus, octa, polyp, prostate
from polyclinic.data.synthetic.agreeing import agreeing
from polyclinic.data.synthetic.appearance import photograph
from polyclinic.data.synthetic.canvas import Canvas, canvas_of
from polyclinic.data.synthetic.sites import Drawing, Subject, SyntheticSite
from polyclinic.seeds import numpy_generator

FEDERATIONS: Mapping[str, tuple[SyntheticSite, ...]] = {
    "fundus": fundus.SITES,
    "octa": octa.SITES,
    "polyp": polyp.SITES,
    "prostate": prostate.SITES,
}
SMALLEST = 16  # pixels across; below, the inner of two outlines has no pixel of its own


@dataclass(frozen=True)
class DrawnSite:
    """All cases of a site: N×C×H×W images, N×H×W masks, and of whom and what for each is."""

    name: str
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    patients: tuple[str, ...]
    names: tuple[str, ...]
    splits: tuple[str, ...]


def federation(task: str, form: Federation = "disagreeing") -> tuple[SyntheticSite, ...]:
    """The sites of the task's synthetic federation, in one of its forms."""
    if task not in FEDERATIONS:
        there = _choice(task, FEDERATIONS)
        refuse(
            [
                f'no synthetic federation for "{task}"; there is {there}. '
                "For any other task data.source must be a folder of sites"
            ]
        )
    sites = FEDERATIONS[task]
    return agreeing(sites) if form == "agreeing" else sites


def draw_site(
    task: str,
    site: str,
    *,
    resolution: int,
    seed: int,
    size: float = 1.0,
    form: Federation = "disagreeing",
) -> DrawnSite:
    """A site of the task's federation by name, with `size` times its usual number of patients."""
    sites = {each.name: each for each in federation(task, form)}
    mistakes = []
    if site not in sites:
        mistakes.append(f'no site "{site}" in {task}; there is {_choice(site, sites)}')
    if resolution < SMALLEST:
        mistakes.append(f"resolution {resolution} is too small; allowed is {SMALLEST} or more")
    if seed < 0:
        mistakes.append(f"seed {seed} is negative; allowed is 0 or more")
    if not 0 < size < float("inf"):
        mistakes.append(f"size {size} is not a factor; allowed is any number above 0")
    refuse(mistakes)
    return draw_cases(task, sites[site], resolution=resolution, seed=seed, size=size)


def draw_cases(
    task: str, site: SyntheticSite, *, resolution: int, seed: int, size: float = 1.0
) -> DrawnSite:
    """The same for any description of a site; `size` never changes the cases, only their number."""
    canvas = canvas_of(resolution)
    cases = list(_cases(site, size))
    images = np.empty((len(cases), len(site.look.tint), resolution, resolution), dtype=np.uint8)
    masks = np.empty((len(cases), resolution, resolution), dtype=np.uint8)
    for index, case in enumerate(cases):
        subject = case.subject(seed, f"{task}/{site.name}", site.slices)
        drawing = site.anatomy.draw(subject, site.annotation, canvas)
        images[index] = photograph(drawing.light, site.look, canvas, subject.slice)
        masks[index] = _mask(drawing, canvas)
    return DrawnSite(
        name=site.name,
        images=images,
        masks=masks,
        patients=tuple(case.patient_name for case in cases),
        names=tuple(case.name for case in cases),
        splits=tuple(case.split for case in cases),
    )


@dataclass(frozen=True)
class _Case:
    split: str
    patient: int
    slice: int | None  # None where a patient has one picture only

    @property
    def patient_name(self) -> str:
        return f"{self.split}-{self.patient:03d}"

    @property
    def name(self) -> str:
        return self.patient_name if self.slice is None else f"{self.patient_name}-z{self.slice}"

    def subject(self, seed: int, site: str, slices: int) -> Subject:
        """Dice of its own for each patient and slice, so that no case depends on another."""
        key = (seed, site, self.split, self.patient)
        height = 0.0 if self.slice is None else (2 * self.slice + 1) / slices - 1
        return Subject(
            patient=numpy_generator(*key),
            slice=numpy_generator(*key, self.slice or 0),
            height=height,
        )


def _cases(site: SyntheticSite, size: float) -> Iterator[_Case]:
    slices = range(site.slices) if site.slices > 1 else (None,)
    for split, usual in zip(SPLITS, site.patients, strict=True):
        for patient in range(max(1, round(size * usual))):
            for each in slices:
                yield _Case(split, patient, each)


def _mask(drawing: Drawing, canvas: Canvas) -> NDArray[np.uint8]:
    """Class numbers; an outline that is too small for any pixel keeps the one nearest to it."""
    mask = np.zeros((canvas.resolution, canvas.resolution), dtype=np.uint8)
    for outline in drawing.outlines:
        level = canvas.pool(outline)
        mask += level <= max(0.0, float(level.min()))
    return mask


def _choice(name: str, allowed: Mapping[str, object]) -> str:
    return ", ".join(allowed) + did_you_mean(name, tuple(allowed))
