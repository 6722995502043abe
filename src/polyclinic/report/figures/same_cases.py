"""The same cases under every method: rows are sites, columns methods, scores below."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyclinic.report.figures.style import (
    WIDTH,
    Drawing,
    Margins,
    canvas,
    shortened,
    to_data_uri,
)
from polyclinic.report.pictures import caption_of
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.runs import SIZES, Picture, Rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE, _LARGEST = 1.45, 2.4  # inches of a picture
_PIXELS = 200  # of a picture's longer side
_ACROSS = 9  # methods side by side; more stand below them


@dataclass(frozen=True)
class SameCases:
    """One case of each site, of small, middle or large foreground."""

    size: Rank
    figure: Drawing


def same_cases(comparison: Comparison) -> list[SameCases]:
    """A figure for each size of which the first runs of the methods have pictures."""
    methods = [method for method in comparison.methods if method.finished]
    found = []
    for size in SIZES:
        pictures = {
            (site, method.title): picture
            for method in methods
            for site in comparison.pictured_sites
            for picture in method.finished[0].folder.pictures(site)
            if picture.rank == size
        }
        known = {site for site, _ in pictures}
        sites = [site for site in comparison.pictured_sites if site in known]
        shown = [m for m in methods if any(key[1] == m.title for key in pictures)]
        if pictures:
            found.append(SameCases(size, _drawn(comparison, sites, shown, pictures)))
    return found


def _drawn(
    comparison: Comparison,
    sites: list[str],
    methods: list[MethodRuns],
    pictures: dict[tuple[str, str], Picture],
) -> Drawing:
    bands = math.ceil(len(methods) / _ACROSS)
    across = math.ceil(len(methods) / bands)
    side = max(_SIDE, min(_LARGEST, (WIDTH - 0.4) / across - 0.08))  # as wide as the page
    down = 0.3 if bands == 1 else 0.5
    rows = bands * len(sites)
    size = (0.4 + (side + 0.08) * across, 0.35 + (side + down) * rows)
    margins = Margins(left=0.35, right=0.05, top=0.3, bottom=0.25, across=0.08, down=down)
    with canvas(rows, across, size, margins) as (figure, axes):
        for band in range(bands):
            there = methods[band * across : (band + 1) * across]
            panels = axes[band * len(sites) : (band + 1) * len(sites)]
            _draw_band(panels, comparison, sites, there, pictures)
        return to_data_uri(figure, photographs=True)


def _draw_band(
    panels: "list[list[Axes]]",
    comparison: Comparison,
    sites: list[str],
    methods: list[MethodRuns],
    pictures: dict[tuple[str, str], Picture],
) -> None:
    """As many methods as stand side by side, each at all sites."""
    for row, site in zip(panels, sites, strict=True):
        row[0].set_ylabel(shortened(site, 20), fontsize=9)
        for panel in row[len(methods) :]:
            panel.axis("off")
        for panel, method in zip(row, methods, strict=False):
            picture = pictures.get((site, method.title))
            _show(panel, picture)
            if picture:
                words = caption_of(comparison, method.finished[0], picture)
                panel.set_xlabel(words, fontsize=8, labelpad=3)
    for panel, method in zip(panels[0], methods, strict=False):
        panel.set_title(shortened(method.title, 20), fontsize=9, fontweight="bold")


def _show(panel: "Axes", picture: Picture | None) -> None:
    from PIL import Image

    panel.grid(visible=False)
    panel.set_xticks([])
    panel.set_yticks([])
    if picture is None:
        return
    with Image.open(picture.path) as image:
        small = image.convert("RGB")
    small.thumbnail((_PIXELS, _PIXELS))
    panel.imshow(np.asarray(small))
