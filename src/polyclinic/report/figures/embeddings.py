"""Embeddings of pixels before and after training, in two dimensions, by class and by site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.statistics import separation
from polyclinic.report.figures.style import (
    WIDTH,
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
_WAYS = {"PCA": principal_components, "t-SNE": tsne}
_MARGINS = Margins(left=0.3, bottom=0.75, across=0.15, down=0.3)


@dataclass(frozen=True)
class EmbeddingFigure:
    """The embeddings of one method's first finished seed."""

    method: str
    seed: int
    channels: int
    separation: dict[Moment, float]  # of foreground and background
    figure: str


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
            tables = _tables(run)
            if tables:
                pixels = {moment: _pixels(chosen, run) for moment, chosen in tables.items()}
                channels = next(iter(pixels.values())).values.shape[1]
                apart = {moment: _separation(chosen) for moment, chosen in tables.items()}
                picture = _picture(pixels, run)
                title, seed = method.title, run.about.seed
                found.append(EmbeddingFigure(title, seed, channels, apart, picture))
    return found


def _tables(run: Run) -> dict[Moment, list[tuple[str, Embedded]]]:
    """Each site with its pixels, by moment."""
    found: dict[Moment, list[tuple[str, Embedded]]] = {}
    for site in run.about.sites:
        for table in read_embeddings(run.folder.embeddings_path(site.name)):
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


def _separation(chosen: Sequence[tuple[str, Embedded]]) -> float:
    """The mean over sites: where decoders are private, a channel means something else at each."""
    apart = [separation(table.values, table.classes != 0) for _, table in chosen]
    known = [value for value in apart if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _picture(pixels: Mapping[Moment, _Pixels], run: Run) -> str:
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
            axes[-1][place].legend(
                loc="upper left",
                bbox_to_anchor=(0, -0.02),
                ncols=min(4, len(groups[by])),
                frameon=False,
                fontsize=8,
                markerscale=2.2,
                handletextpad=0.2,
                columnspacing=1.0,
            )
        return to_data_uri(figure)


def _scatter(panel: "Axes", points: Points, owners: Sequence[str], groups: Sequence[str]) -> None:
    """Every group's points in its colour; a picture inside the drawing, since they are many."""
    whose: NDArray[np.str_] = np.array(owners)
    for index, group in enumerate(groups):
        those = points[whose == group]
        panel.scatter(
            those[:, 0],
            those[:, 1],
            s=7,
            linewidths=0,
            alpha=0.75,
            color=style(index).colour,
            label=shortened(group, 16),
            rasterized=True,
        )
    panel.set_xticks([])
    panel.set_yticks([])
