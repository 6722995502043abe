"""Where networks looked: the pictures of attention in the run folders, small enough for a page."""

from dataclasses import dataclass

from polyclinic.report.pictures import data_uri
from polyclinic.report.reading import Comparison


@dataclass(frozen=True)
class SiteAttention:
    """The pictures of one method at one site: a row per case, in it a source per name."""

    method: str
    site: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str | None, ...]], ...]


def attention_maps(comparison: Comparison) -> list[SiteAttention]:
    """The pictures of each method that has some, from its first finished seed, site by site."""
    found = []
    for method in comparison.methods:
        for run in method.finished[:1]:
            for site in comparison.sites:
                pictures = run.folder.attention_pictures(site)
                sources = {(each.case, each.name): data_uri(each.path) for each in pictures}
                names = tuple(dict.fromkeys(each.name for each in pictures))
                rows = tuple(
                    (case, tuple(sources.get((case, name)) for name in names))
                    for case in dict.fromkeys(each.case for each in pictures)
                )
                if rows:
                    found.append(SiteAttention(method.title, site, names, rows))
    return found
