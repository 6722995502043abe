"""Hospitals that agree: the same patients everywhere, one way to draw outlines, few images each."""

from dataclasses import dataclass, replace

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas
from polyclinic.data.synthetic.sites import Anatomy, Annotation, Drawing, Subject, SyntheticSite

FEW = (4, 4, 16)  # pictures for train, val and test
SPREAD = 0.3  # of the exposure: no two pictures of a site are alike
NEARER = 0.75  # exponent and factor by which devices come closer to a plain one


def agreeing(sites: tuple[SyntheticSite, ...]) -> tuple[SyntheticSite, ...]:
    """The same sites with few patients of every sort, all outlined along the middle of the edge.

    Alone a site has seen too little, for its pictures vary much; together they see enough, for all
    mean the same. What sets the sites apart are their devices, somewhat less than otherwise.
    """
    everyone = Everyone(tuple(site.anatomy for site in sites))
    return tuple(
        replace(
            site,
            patients=_patients(site.slices),
            anatomy=everyone,
            annotation=Annotation(),
            look=_nearer(site.look),
        )
        for site in sites
    )


@dataclass(frozen=True)
class Everyone:
    """Patients of several sorts, each as likely as another."""

    anatomies: tuple[Anatomy, ...]

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """One picture of the subject, who is of the same sort in all slices."""
        sort = int(subject.patient.integers(len(self.anatomies)))
        return self.anatomies[sort].draw(subject, annotation, canvas)


def _patients(slices: int) -> tuple[int, int, int]:
    train, val, test = (max(1, pictures // slices) for pictures in FEW)
    return train, val, test


def _nearer(look: Look) -> Look:
    return replace(
        look,
        tint=tuple(channel**NEARER for channel in look.tint),
        gain=look.gain**NEARER,
        gamma=look.gamma**NEARER,
        blur=look.blur * NEARER,
        vignette=look.vignette * NEARER,
        spread=SPREAD,
    )
