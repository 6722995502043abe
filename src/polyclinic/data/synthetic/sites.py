"""What describes a synthetic site, and what an anatomy must be able to do."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.synthetic.appearance import Look
from polyclinic.data.synthetic.canvas import Canvas, Ellipse, Plane


@dataclass(frozen=True)
class Subject:
    """Who is in the picture: what a patient's slices have in common, what is each slice's own."""

    patient: np.random.Generator
    slice: np.random.Generator
    height: float = 0.0  # of the slice in the organ, from -1 (bottom) to 1 (top)


@dataclass(frozen=True)
class Annotation:
    """A site's way of drawing outlines where the edge is soft; 1 is the middle of the edge."""

    reach: float = 1.0
    inner: float = 1.0  # the same for the inner of two outlines
    zone: bool = False  # the ambiguous zone at one side belongs to the organ
    smooth: float = 0.0  # 0 follows every bend, 1 draws a plain ellipse
    hand: float = 0.03  # unsteadiness from case to case

    def outline(
        self,
        level: Plane,
        shape: Ellipse,
        canvas: Canvas,
        rng: np.random.Generator,
        *,
        inner: bool = False,
    ) -> Plane:
        """Negative inside of what is drawn around an ellipse whose bent level is seen."""
        reach = self.inner if inner else self.reach
        if self.smooth:
            level = level + np.float32(self.smooth) * (shape.level(canvas.x, canvas.y) - level)
        return level - np.float32(reach * (1 + self.hand * rng.standard_normal()))


@dataclass(frozen=True)
class Drawing:
    """A scene as C × side × side light from 0 to 1, and nested outlines, outermost first.

    An outline is a side × side array, negative inside; a pixel's class is the number of outlines
    that it is inside of.
    """

    light: NDArray[np.float32]
    outlines: tuple[NDArray[np.float32], ...]


class Anatomy(Protocol):
    """The shape statistics of a site's patients."""

    def draw(self, subject: Subject, annotation: Annotation, canvas: Canvas) -> Drawing:
        """One picture of the subject, outlined in this way."""
        ...


@dataclass(frozen=True)
class SyntheticSite:
    """A site: its patients (train, val, test), how they look, and how it draws outlines."""

    name: str
    patients: tuple[int, int, int]
    anatomy: Anatomy
    annotation: Annotation
    look: Look
    slices: int = 1  # pictures of each patient
