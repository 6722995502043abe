"""All figures of a report, each with its name, a title and how it was made."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from polyclinic.report.figures.curves import (
    loss_figure,
    other_curves,
    site_figure,
    traffic_figure,
    validation_figure,
    watched_by_site,
)
from polyclinic.report.figures.distributions import distribution_figure
from polyclinic.report.figures.embeddings import EmbeddingFigure, embedding_figures
from polyclinic.report.figures.mixtures import mixtures
from polyclinic.report.figures.relations import relations
from polyclinic.report.figures.same_cases import same_cases
from polyclinic.report.figures.style import Drawing
from polyclinic.report.figures.sweeps import cost_figure, effort_figure, sweeps
from polyclinic.report.reading import Comparison
from polyclinic.report.settings import short
from polyclinic.runs import slug

SECTIONS = ("learning", "sweeps", "relations", "inside", "cases", "examples", "costs")


@dataclass(frozen=True)
class Shown:
    """A figure: its section and file, what it shows, how it was made."""

    section: str
    name: str
    title: str
    caption: str
    drawing: Drawing


def shown_figures(comparison: Comparison) -> list[Shown]:
    """All figures that these runs give, in the order of the page."""
    found = [
        *_learning(comparison),
        *_sweeps(comparison),
        *_between(comparison),
        *_inside(comparison),
        *_examples(comparison),
        *case_figures(comparison),
        *_costs(comparison),
    ]
    return [figure for figure in found if figure]


_RUNS = "Lines are means over regions and runs (seeds, folds), bands the range of the runs"


def _learning(comparison: Comparison) -> Iterator[Shown | None]:
    yield _one(
        "learning",
        "validation",
        "Validation score per round, mean over sites, for each method",
        f"{_RUNS}, rings the chosen rounds.",
        validation_figure(comparison),
    )
    yield _one(
        "learning",
        "losses",
        "Training loss per round, mean over sites, for each method",
        f"{_RUNS}. Losses of methods with additional terms are not comparable.",
        loss_figure(comparison),
    )
    for title, drawing in other_curves(comparison):
        test = " Test cases: looked at only, they chose nothing." if "TEST" in title else ""
        name, words = f"curve-{slug(title)}", f"{title} per round, mean over sites"
        yield Shown("learning", name, words, f"{_RUNS}.{test}", drawing)
    for title, drawing in watched_by_site(comparison):
        name, words = f"curve-{slug(title)}-by-site", f"{title} per round at each site"
        told = f"{_RUNS}. Test cases: looked at only, they chose nothing."
        yield Shown("learning", name, words, told, drawing)
    yield _one(
        "learning",
        "validation-by-site",
        "Validation score per round at each site, for each method",
        f"{_RUNS}.",
        site_figure(comparison),
    )


def _sweeps(comparison: Comparison) -> Iterator[Shown | None]:
    for sweep in sweeps(comparison):
        yield Shown(
            "sweeps",
            f"sweep-{slug(sweep.setting)}",
            f"Scores against {short(sweep.setting)}",
            f"Runs that differ in {sweep.setting} alone, by the settings in their folders: mean "
            "over sites and runs, bars the standard deviation over runs (n − 1), dots the sites.",
            sweep.figure,
        )


def _between(comparison: Comparison) -> Iterator[Shown | None]:
    for each in relations(comparison):
        rest = ", and by round" if each.by_round else ""
        yield Shown(
            "relations",
            f"between-sites-{slug(each.method)}-{slug(each.name)}",
            f"{each.method}: {each.name} {each.when}{rest}",
            f"As the server made it, seed {each.seed}; colours reach from the least to the "
            "greatest value between two sites.",
            each.figure,
        )
    for mixture in mixtures(comparison):
        yield Shown(
            "relations",
            f"mixture-{slug(mixture.method)}",
            f"{mixture.method}: how much of the received weights each site takes",
            f"Shares of the weights by W, in tenths, of the first run's models of round "
            f"{mixture.round}: 0 keeps the site's own weight, 1 takes the received one.",
            mixture.figure,
        )


def _inside(comparison: Comparison) -> Iterator[Shown | None]:
    for each in embedding_figures(comparison):
        yield Shown(
            "inside",
            f"pixels-{slug(each.method)}",
            f"{each.method}: embeddings of pixels before and after training",
            f"What the head sees at the same pixels of test cases, as many of each class as there "
            f"are; seed {each.seed}, {each.channels} channels. {_apart(each)} t-SNE has a "
            "perplexity of 30; distances between far groups mean nothing in it.",
            each.figure,
        )
        yield _one(
            "inside",
            f"images-{slug(each.method)}",
            f"{each.method}: features of whole images before and after training, by site",
            f"The encoder's coarsest map, mean over places, a point for each of at most 60 test "
            f"images a site; seed {each.seed}.",
            each.images,
        )


def _apart(each: EmbeddingFigure) -> str:
    """How far foreground and background are apart (pFLFE's paper calls a smaller value better)."""
    values = ", ".join(f"{value:.2f} {moment}" for moment, value in each.separation.items())
    return (
        f"Foreground and background are apart by {values} training (symmetric KL divergence of "
        "normal distributions, mean over channels, then sites)."
    )


def _examples(comparison: Comparison) -> Iterator[Shown]:
    for each in same_cases(comparison):
        yield Shown(
            "examples",
            f"same-cases-{each.size}",
            f"The same cases under every method: {each.size} foreground",
            f"Of each site the test case at the "
            f"{ {'small': 'first', 'middle': 'second', 'large': 'third'}[each.size] } quartile of "
            "the true foreground's size, chosen before anything was predicted; first runs. True "
            "contours green, predicted ones magenta, scores of the case below.",
            each.figure,
        )


def case_figures(comparison: Comparison) -> Iterator[Shown]:
    """Every test case of each metric and region."""
    for metric in comparison.metrics:
        title = comparison.measure(metric).title_with_unit
        for region in comparison.regions_of(metric):
            yield Shown(
                "cases",
                f"cases-{slug(metric)}-{slug(region)}",
                f"{title} of every test case by site and method, {region}",
                "Every test case is a point, once for each run that tested it; boxes reach from "
                "quartile to quartile, thick lines are medians. The models are those in use, after "
                "the last average.",
                distribution_figure(comparison, metric, region),
            )


def _costs(comparison: Comparison) -> Iterator[Shown | None]:
    yield _one(
        "costs",
        "traffic",
        "Traffic so far and seconds of each round, for each method",
        "Bytes as sent and seconds of work of all sites together; each method's first run.",
        traffic_figure(comparison),
    )
    yield _one(
        "costs",
        "score-against-cost",
        "Score against traffic and against work, a point for each method",
        "Means over sites and runs against the bytes of a whole run, and against the seconds of "
        "a round; colours as everywhere on this page, squares where lines are dashed.",
        cost_figure(comparison),
    )
    yield _one(
        "costs",
        "score-against-effort",
        "Score of each site by the kind of its labels, with an annotator's work for one object",
        "A point for each method and site, mean over runs; colours as everywhere on this page, "
        "squares where lines are dashed. Kinds stand in the order of polyclinic list kinds, with "
        "what is drawn for one object below: nobody's effort was measured, and steps along the "
        "axis are not equal amounts of work.",
        effort_figure(comparison),
    )


def _one(section: str, name: str, title: str, caption: str, drawn: Drawing | None) -> Shown | None:
    return Shown(section, name, title, caption, drawn) if drawn else None


def captions(figures: Iterable[Shown]) -> str:
    """Titles and captions of all figures, as a page in Markdown."""
    return "".join(f"**{each.name}.** {each.title}. {each.caption}\n\n" for each in figures)
