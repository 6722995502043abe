"""The pictures of the run folders, example predictions and attention, small enough for a page."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from polyclinic.predict.pages import data_uri
from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.runs import MAP_KINDS, RANKS, AttentionPicture, MapKind, Picture, Rank, RunError

if TYPE_CHECKING:
    from PIL.Image import Image

_PIXELS = (96, 320)  # of the longer side: the most is enough for fine screens and a second look
_BYTES, _A_PIXEL = 4e6, 0.4  # of all pictures of a section, and about what one pixel takes
_PAGE, _GAP, _RANKS = 1184, 28, 54  # pixels: the page, between sites, the names of the ranks


@dataclass(frozen=True)
class Example:
    """A picture with the case that it shows and how well that was predicted."""

    case: str
    caption: str
    source: str


@dataclass(frozen=True)
class SiteExamples:
    """The pictures of one site: a row per rank, in it an example per method or None."""

    site: str
    titles: tuple[str, ...]
    rows: tuple[tuple[Rank, tuple[Example | None, ...]], ...]

    @property
    def unscored(self) -> bool:
        """Whether these cases had no mask to rank them by."""
        return any(rank == "unscored" for rank, _ in self.rows)


@dataclass(frozen=True)
class SiteAttention:
    """Maps of one kind of one method at one site: a row per case, in it a source per name."""

    method: str
    site: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str | None, ...]], ...]


def site_examples(comparison: Comparison) -> list[SiteExamples]:
    """Best, median and worst test case of each site and method, from each method's first run."""
    sites = comparison.pictured_sites
    drawn = [
        method
        for method in comparison.methods
        if any(run.folder.pictures(site) for run in method.finished[:1] for site in sites)
    ]
    titles = tuple(method.title for method in drawn)
    side = _side(len(RANKS) * len(sites) * len(drawn))
    found = [SiteExamples(site, titles, _rows(comparison, drawn, site, side)) for site in sites]
    return [each for each in found if any(any(examples) for _, examples in each.rows)]


def attention_maps(comparison: Comparison) -> dict[MapKind, list[SiteAttention]]:
    """The maps of each kind of each method that has some, from its first run, site by site."""
    drawn = [
        (kind, method.title, site, pictures)
        for kind in MAP_KINDS
        for method in comparison.methods
        for run in method.finished[:1]
        for site in comparison.pictured_sites
        if (pictures := [p for p in run.folder.attention_pictures(site) if p.shows == kind])
    ]
    side = _side(sum(len(pictures) for *_, pictures in drawn))
    found: dict[MapKind, list[SiteAttention]] = {}
    for kind, method, site, pictures in drawn:
        found.setdefault(kind, []).append(_attention(method, site, pictures, side))
    return found


def _side(pictures: int) -> int:
    """Pixels of the longer side of so many pictures: the page must not grow too large."""
    least, most = _PIXELS
    return max(least, min(most, int(math.sqrt(_BYTES / _A_PIXEL / max(1, pictures)))))


def _attention(
    method: str, site: str, pictures: Sequence[AttentionPicture], side: int
) -> SiteAttention:
    sources = {(each.case, each.name): embedded_picture(each.path, side) for each in pictures}
    names = tuple(dict.fromkeys(each.name for each in pictures))
    rows = tuple(
        (case, tuple(sources.get((case, name)) for name in names))
        for case in dict.fromkeys(each.case for each in pictures)
    )
    return SiteAttention(method, site, names, rows)


def picture_width(examples: list[SiteExamples]) -> int:
    """How many pixels wide the page shows a picture, so that its rows of sites are even."""
    if not examples:
        return 0
    columns = len(examples[0].titles)
    side_by_side = max(1, (_PAGE + _GAP) // (_RANKS + columns * (140 + 10) + _GAP))
    rows = math.ceil(len(examples) / side_by_side)
    side_by_side = math.ceil(len(examples) / rows)
    gallery = (_PAGE + _GAP) // side_by_side - _GAP
    return max(96, min(200, (gallery - _RANKS) // columns - 10))


def embedded_picture(path: Path, side: int = _PIXELS[1]) -> str:
    """A picture, made smaller where it is large, ready for the source of an image."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return embedded(image.convert("RGB"), side)
    except (OSError, UnidentifiedImageError) as error:
        raise RunError(f"cannot read the picture {path}: {error}") from error


def embedded(picture: "Image", side: int = _PIXELS[1]) -> str:
    """The same of a picture that is at hand."""
    from PIL import Image

    small = picture.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    target = io.BytesIO()
    # Thin coloured contours need every chroma sample.
    small.save(target, format="JPEG", quality=86, subsampling=0, optimize=True)
    return data_uri("image/jpeg", target.getvalue())


def _rows(
    comparison: Comparison, methods: list[MethodRuns], site: str, side: int
) -> tuple[tuple[Rank, tuple[Example | None, ...]], ...]:
    drawn = [(method.finished[0], method.finished[0].folder.pictures(site)) for method in methods]
    rows = []
    for rank in RANKS:
        ranked = [[each for each in pictures if each.rank == rank] for _, pictures in drawn]
        # One of each rank, but several where there was nothing to rank by.
        for pictures in zip_longest(*ranked):
            examples = (
                _example(comparison, run, picture, side)
                for (run, _), picture in zip(drawn, pictures, strict=True)
            )
            rows.append((rank, tuple(examples)))
    return tuple(rows)


def _example(
    comparison: Comparison, run: Run, picture: Picture | None, side: int
) -> Example | None:
    if picture is None:
        return None
    source = embedded_picture(picture.path, side)
    return Example(picture.case, caption_of(comparison, run, picture), source)


def caption_of(comparison: Comparison, run: Run, picture: Picture) -> str:
    """The first metric of the case in each region, where its scores are known."""
    if not comparison.metrics:
        return ""
    how = comparison.measure(comparison.metrics[0])
    values = [
        run.tested.get((how.name, region, picture.site), {}).get(picture.case)
        for region in comparison.regions_of(how.name)
    ]
    if all(value is None for value in values):
        return ""
    texts = ("–" if value is None else how.text(value) for value in values)
    return f"{how.title} {' / '.join(texts)}"
