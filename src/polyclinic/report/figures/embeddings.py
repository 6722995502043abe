"""Embeddings of pixels before and after training, in two dimensions, by class and by site."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.statistics import separation
from polyclinic.report.figures.style import (
    WIDTH,
    Drawing,
    Margins,
    canvas,
    marker,
    quiet_title,
    shortened,
    style,
    to_data_uri,
)
from polyclinic.report.projection import Points, principal_components, tsne
from polyclinic.report.reading import Comparison, Run
from polyclinic.runs import Embedded, Moment, read_embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 480  # points: as many as every pair of them is quickly computed for
Tables = list[tuple[str, Embedded]]  # of sites
_WAYS = {"PCA": principal_components, "t-SNE": tsne}
_MARGINS = Margins(left=0.3, bottom=0.75, across=0.15, down=0.3)


@dataclass(frozen=True)
class EmbeddingFigure:
    """The embeddings of one method's first finished run."""

    method: str
    seed: int
    channels: int
    separation: dict[Moment, float]  # of foreground and background
    figure: Drawing
    images: Drawing | None = None  # of whole images, by site


@dataclass(frozen=True)
class _Pixels:
    values: Points
    classes: list[str]
    sites: list[str]


def embedding_figures(comparison: Comparison) -> list[EmbeddingFigure]:
    """One figure for each method whose run folders hold embeddings."""
    found = []
    sites = comparison.shown_sites
    for method in comparison.methods:
        for run in method.finished[:1]:
            tables = pixel_tables(run)
            if tables:
                pixels = {moment: _pixels(chosen, run, sites) for moment, chosen in tables.items()}
                channels = next(iter(pixels.values())).values.shape[1]
                apart = {moment: _mean(each) for moment, each in separations(tables).items()}
                picture = _picture(pixels, run, sites)
                title, seed = method.title, run.about.seed
                images = _images(run, sites)
                found.append(EmbeddingFigure(title, seed, channels, apart, picture, images))
    return found


def _images(run: Run, sites: Sequence[str]) -> Drawing | None:
    """What the encoder makes of whole images before and after training, coloured by site."""
    found = _by_moment(sites, run.folder.features_path)
    if not found:
        return None
    margins = _margins(len(sites))
    with canvas(1, 2 * len(found), (WIDTH, 2.95 + margins.bottom), margins) as (figure, axes):
        panels = iter(axes[0])
        for moment, chosen in found.items():
            values = np.concatenate([table.values for _, table in chosen])
            kept = _thinned(len(values))
            every = [site for site, table in chosen for _ in table.values]
            values, owners = values[kept], [every[place] for place in kept]
            for way, project in _WAYS.items():
                panel = next(panels)
                _scatter(panel, project(values), owners, sites, 22)
                quiet_title(panel, f"images {moment} training, {way}")
        _legend(axes[0][0], len(sites), 1.2)
        return to_data_uri(figure)


def _margins(sites: int) -> Margins:
    """Room for a legend of so many sites, four in a row."""
    return replace(_MARGINS, bottom=0.45 + 0.15 * math.ceil(sites / 4))


def _legend(panel: "Axes", count: int, scale: float = 2.2) -> None:
    panel.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.02),
        ncols=min(4, count),
        frameon=False,
        fontsize=8,
        markerscale=scale,
        handletextpad=0.2,
        columnspacing=1.0,
    )


def pixel_tables(run: Run) -> dict[Moment, Tables]:
    """Each site with its pixels, by moment."""
    return _by_moment([site.name for site in run.about.sites], run.folder.embeddings_path)


def _by_moment(sites: Sequence[str], path_of: Callable[[str], Path]) -> dict[Moment, Tables]:
    found: dict[Moment, Tables] = {}
    for site in sites:
        for table in read_embeddings(path_of(site)):
            found.setdefault(table.moment, []).append((site, table))
    return found


def _pixels(tables: Sequence[tuple[str, Embedded]], run: Run, sites: Sequence[str]) -> _Pixels:
    """The pixels of these sites, thinned evenly to what can be drawn."""
    names = run.about.task.classes
    chosen = [(site, table) for site, table in tables if site in sites]
    values = np.concatenate([table.values for _, table in chosen])
    classes = [names[number] for _, table in chosen for number in table.classes]
    owners = [site for site, table in chosen for _ in table.classes]
    kept = _thinned(len(values))
    return _Pixels(values[kept], [classes[i] for i in kept], [owners[i] for i in kept])


def _thinned(count: int) -> NDArray[np.int64]:
    """The places of at most so many points as can be drawn."""
    return np.linspace(0, count - 1, min(_MOST, count)).round().astype(np.int64)


def separations(tables: Mapping[Moment, Tables]) -> dict[Moment, dict[str, float]]:
    """How far foreground and background are apart at each site, by moment; NaN is unknown."""
    return {
        moment: {site: separation(table.values, table.classes != 0) for site, table in chosen}
        for moment, chosen in tables.items()
    }


def _mean(apart: Mapping[str, float]) -> float:
    """The mean over sites: where decoders are private, a channel means something else at each."""
    known = [value for value in apart.values() if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _picture(pixels: Mapping[Moment, _Pixels], run: Run, sites: Sequence[str]) -> Drawing:
    groups = {"class": run.about.task.classes, "site": sites}
    margins = _margins(len(sites))
    height = 0.3 + margins.bottom + 2.7 * len(pixels)
    with canvas(len(pixels), 4, (WIDTH, height), margins) as (figure, axes):
        for row, (moment, those) in zip(axes, pixels.items(), strict=True):
            places = {way: project(those.values) for way, project in _WAYS.items()}
            panels = iter(row)
            for by, owners in (("class", those.classes), ("site", those.sites)):
                for way, points in places.items():
                    panel = next(panels)
                    _scatter(panel, points, owners, groups[by])
                    quiet_title(panel, f"{moment} training, {way} by {by}")
        for place, by in ((0, "class"), (2, "site")):
            _legend(axes[-1][place], len(groups[by]))
        return to_data_uri(figure)


def _scatter(
    panel: "Axes",
    points: Points,
    owners: Sequence[str],
    groups: Sequence[str],
    size: int = 7,
) -> None:
    """Every group's points in its colour; a picture inside the drawing, since they are many."""
    whose: NDArray[np.str_] = np.array(owners)
    for index, group in enumerate(groups):
        those = points[whose == group]
        panel.scatter(
            those[:, 0],
            those[:, 1],
            s=size,
            marker=marker(index),
            linewidths=0,
            alpha=0.75,
            color=style(index).colour,
            label=shortened(group, 16),
            rasterized=True,
        )
    panel.set_xticks([])
    panel.set_yticks([])
