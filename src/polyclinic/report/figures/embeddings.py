"""Embeddings of pixels before and after training, in two dimensions, by class and by site."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """The embeddings of one method's first finished seed."""

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
    for method in comparison.methods:
        for run in method.finished[:1]:
            tables = pixel_tables(run)
            if tables:
                pixels = {moment: _pixels(chosen, run) for moment, chosen in tables.items()}
                channels = next(iter(pixels.values())).values.shape[1]
                apart = {moment: _mean(each) for moment, each in separations(tables).items()}
                picture = _picture(pixels, run)
                title, seed = method.title, run.about.seed
                images = _images(run)
                found.append(EmbeddingFigure(title, seed, channels, apart, picture, images))
    return found


def _images(run: Run) -> Drawing | None:
    """What the encoder makes of whole images before and after training, coloured by site."""
    found = _by_moment(run, run.folder.features_path)
    if not found:
        return None
    names = [site.name for site in run.about.sites]
    with canvas(1, 2 * len(found), (WIDTH, 3.7), _MARGINS) as (figure, axes):
        panels = iter(axes[0])
        for moment, chosen in found.items():
            values = np.concatenate([table.values for _, table in chosen])
            owners = [site for site, table in chosen for _ in table.values]
            for way, project in _WAYS.items():
                panel = next(panels)
                _scatter(panel, project(values), owners, names, 22)
                quiet_title(panel, f"images {moment} training, {way}")
        _legend(axes[0][0], len(names))
        return to_data_uri(figure)


def _legend(panel: "Axes", count: int) -> None:
    panel.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.02),
        ncols=min(4, count),
        frameon=False,
        fontsize=8,
        markerscale=2.2,
        handletextpad=0.2,
        columnspacing=1.0,
    )


def pixel_tables(run: Run) -> dict[Moment, Tables]:
    """Each site with its pixels, by moment."""
    return _by_moment(run, run.folder.embeddings_path)


def _by_moment(run: Run, path_of: Callable[[str], Path]) -> dict[Moment, Tables]:
    found: dict[Moment, Tables] = {}
    for site in run.about.sites:
        for table in read_embeddings(path_of(site.name)):
            found.setdefault(table.moment, []).append((site.name, table))
    return found


def _pixels(chosen: Sequence[tuple[str, Embedded]], run: Run) -> _Pixels:
    """The pixels of all sites, thinned evenly to what can be drawn."""
    names = run.about.task.classes
    values = np.concatenate([table.values for _, table in chosen])
    classes = [names[number] for _, table in chosen for number in table.classes]
    owners = [site for site, table in chosen for _ in table.classes]
    kept = np.linspace(0, len(values) - 1, min(_MOST, len(values))).round().astype(int)
    return _Pixels(values[kept], [classes[i] for i in kept], [owners[i] for i in kept])


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


def _picture(pixels: Mapping[Moment, _Pixels], run: Run) -> Drawing:
    groups = {"class": run.about.task.classes, "site": [site.name for site in run.about.sites]}
    height = 0.3 + 0.75 + 2.7 * len(pixels)
    with canvas(len(pixels), 4, (WIDTH, height), _MARGINS) as (figure, axes):
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
            linewidths=0,
            alpha=0.75,
            color=style(index).colour,
            label=shortened(group, 16),
            rasterized=True,
        )
    panel.set_xticks([])
    panel.set_yticks([])
