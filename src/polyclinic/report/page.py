"""The report: one page that needs nothing beside itself, and the tables for other programs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report import words
from polyclinic.report.conditions import AS_TRAINED
from polyclinic.report.costs import method_costs
from polyclinic.report.diagnostics import diagnosed
from polyclinic.report.exports import states_to_terminal, to_csv, to_latex, to_terminal
from polyclinic.report.figures.curves import (
    loss_figure,
    site_figure,
    traffic_figure,
    validation_figure,
)
from polyclinic.report.figures.distributions import distribution_figure
from polyclinic.report.figures.embeddings import embedding_figures
from polyclinic.report.figures.relations import relations
from polyclinic.report.figures.style import Style, style
from polyclinic.report.overview import (
    choice_sentence,
    facts,
    means_sentence,
    method_lines,
    partial_sentence,
    same_settings,
    warnings,
    winners,
)
from polyclinic.report.pictures import attention_maps, picture_width, site_examples
from polyclinic.report.reading import Comparison, read_runs
from polyclinic.report.score_tables import Table, comparison_table, ranked
from polyclinic.report.words import data_uri
from polyclinic.runs import CONTOUR_COLOURS, slug, write_atomic

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


def write_report(run_paths: Iterable[str | Path], destination: str | Path) -> Path:
    """Compare run or study folders on one HTML page and give its path.

    The destination is a folder or the page itself; each metric's table comes beside it as CSV and
    LaTeX.
    """
    comparison = read_runs(run_paths)
    target = Path(destination)
    page = target if target.suffix == ".html" else target / "report.html"
    tables = [comparison_table(comparison, metric) for metric in comparison.metrics]
    write_tables(tables, page.parent)
    write_atomic(page, rendered("page.html", _context(comparison, tables)))
    return page


def summary_table(run_paths: Iterable[str | Path]) -> "TerminalTable":
    """The first metric of all methods for a terminal: sites by their mean over regions.

    Before a first run has finished the table says how far each method came.
    """
    comparison = read_runs(run_paths)
    if not comparison.metrics:
        return states_to_terminal([(line.title, line.state) for line in method_lines(comparison)])
    return to_terminal(comparison_table(comparison, comparison.metrics[0], [OVERALL]))


def rendered(template: str, context: dict[str, Any]) -> str:
    """A page out of one of the report's templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("polyclinic.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(size=words.size, duration=words.duration, region=words.region_title)
    return environment.get_template(template).render(context)


def write_tables(tables: Iterable[Table], folder: Path) -> None:
    """Write the tables for other programs."""
    for table in tables:
        for name, text in _files(table).items():
            write_atomic(folder / name, text)


def scores_of(comparison: Comparison, tables: list[Table]) -> dict[str, Any]:
    """What the section with scores, and all others with methods, need to be filled in."""
    return {
        "comparison": comparison,
        "styles": _styles(comparison),
        "ranking": ranked(comparison, tables[0].measure.name) if tables else [],
        "tables": [(table, _downloads(table)) for table in tables],
        "contours": CONTOUR_COLOURS,
    }


def _context(comparison: Comparison, tables: list[Table]) -> dict[str, Any]:
    examples = site_examples(comparison)
    return {
        **scores_of(comparison, tables),
        "title": words.enumeration(list(comparison.studies)),
        "what": "method",
        "facts": facts(comparison),
        "warnings": list(warnings(comparison)),
        "winners": winners(tables),
        "method_lines": method_lines(comparison),
        "choice": choice_sentence(comparison),
        "partial": partial_sentence(comparison),
        "means": means_sentence(comparison),
        "validation": validation_figure(comparison),
        "losses": loss_figure(comparison),
        "site_curves": site_figure(comparison),
        "relations": relations(comparison),
        "diagnosed": list(diagnosed(comparison)),
        "embeddings": embedding_figures(comparison),
        "attention": attention_maps(comparison),
        "distributions": distributions(comparison),
        "examples": examples,
        "picture_width": picture_width(examples),
        "costs": method_costs(comparison),
        "traffic": traffic_figure(comparison),
        "settings": [
            (method.title, runs) for method in comparison.methods for runs in same_settings(method)
        ],
    }


def _styles(comparison: Comparison) -> dict[str, Style]:
    """What each method is drawn in; its models as trained have the same."""
    own = {method.title: style(i) for i, method in enumerate(comparison.methods)}
    return own | {f"{title}{AS_TRAINED}": each for title, each in own.items()}


def _files(table: Table) -> dict[str, str]:
    name = f"table-{slug(table.measure.name)}"
    return {f"{name}.csv": to_csv(table), f"{name}.tex": to_latex(table)}


def _downloads(table: Table) -> list[tuple[str, str]]:
    """The table's files by name, each as a link that holds the whole file."""
    return [(name, data_uri("text/plain", text.encode())) for name, text in _files(table).items()]


def distributions(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Of each metric and region, a figure with every test case."""
    return [
        (
            comparison.measure(metric).title_with_unit,
            [
                (region, distribution_figure(comparison, metric, region))
                for region in comparison.regions
            ],
        )
        for metric in comparison.metrics
    ]
