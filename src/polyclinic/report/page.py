"""The report: one page that needs nothing beside itself, and the tables for other programs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.predict.pages import data_uri, templates
from polyclinic.report import words
from polyclinic.report.ablations import ablations
from polyclinic.report.chance import cautions
from polyclinic.report.conditions import AS_TRAINED
from polyclinic.report.costs import method_costs
from polyclinic.report.diagnostics import diagnosed
from polyclinic.report.efficiency import efficiency
from polyclinic.report.elsewhere import Elsewhere, elsewhere
from polyclinic.report.exports import states_to_terminal, to_csv, to_latex, to_markdown, to_terminal
from polyclinic.report.figures.shown import SECTIONS, Shown, captions, shown_figures
from polyclinic.report.figures.style import FORMS, Style, style
from polyclinic.report.folds import folds_sentence
from polyclinic.report.methods_text import methods_paragraph, used
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
from polyclinic.report.rankings import rankings
from polyclinic.report.reading import Comparison, read_runs
from polyclinic.report.references import bibtex
from polyclinic.report.score_tables import Table, comparison_table
from polyclinic.report.separations import separation_sheet
from polyclinic.report.sheets import Sheet, sheet_of
from polyclinic.runs import CONTOUR_COLOURS, slug, write_atomic

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


def write_report(
    run_paths: Iterable[str | Path], destination: str | Path, *, files: bool = False
) -> Path:
    """Compare run or study folders on one HTML page and give its path.

    The destination is a folder or the page itself; every table comes beside it as CSV, Markdown
    and LaTeX, with a paragraph on the methods, their BibTeX and, if `files` are wanted, a folder of
    figures as SVG, PDF and PNG.
    """
    comparison = read_runs(run_paths)
    target = Path(destination)
    page = target if target.suffix == ".html" else target / "report.html"
    tables = [comparison_table(comparison, metric) for metric in comparison.metrics]
    orders = rankings(comparison)
    single = (efficiency(comparison), separation_sheet(comparison))
    sheets = [*ablations(comparison), *filter(None, single)]
    others = elsewhere(comparison)
    write_tables(tables, page.parent)
    write_sheets(
        [*orders, *sheets, *(sheet for each in others for sheet in each.sheets)], page.parent
    )
    figures = shown_figures(comparison)
    bib = bibtex(*used(comparison))
    write_atomic(page.with_name("references.bib"), bib)
    text = methods_paragraph(comparison)
    write_atomic(page.with_name("methods.txt"), text + "\n")
    scores = scores_of(comparison, tables, orders, sheets)
    context = (
        {"methods_text": text, "bib": bib}
        | scores
        | _context(comparison, tables, figures)
        | _elsewhere(comparison, others)
    )
    write_atomic(page, rendered("page.html", context))
    if files:
        titles = [method.title for method in comparison.methods]
        _write_figures(page.with_name("figures"), figures, titles)
    return page


def _write_figures(folder: Path, figures: list[Shown], titles: list[str]) -> None:
    """Every figure for print: SVG and PDF, whose text stays text, and PNG."""
    for figure in figures:
        if figure.section in ("learning", "costs"):
            figure.drawing.add_legend(titles)
        for form in FORMS:
            write_atomic(folder / f"{figure.name}.{form}", figure.drawing.file(form))
    if figures:
        write_atomic(folder / "captions.md", captions(figures))


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
    environment = templates("polyclinic.report", autoescape=True)
    environment.filters.update(size=words.size, duration=words.duration, region=words.region_title)
    return environment.get_template(template).render(context)


def write_tables(tables: Iterable[Table], folder: Path) -> None:
    """Write the tables of scores for other programs."""
    write_sheets(map(sheet_of, tables), folder)


def write_sheets(sheets: Iterable[Sheet], folder: Path) -> None:
    """Write tables for other programs."""
    for sheet in sheets:
        for name, text in _files(sheet).items():
            write_atomic(folder / name, text)


def scores_of(
    comparison: Comparison,
    tables: list[Table],
    orders: Sequence[Sheet],
    sheets: Sequence[Sheet] = (),
) -> dict[str, Any]:
    """What the section with scores, and all others with methods, need to be filled in."""
    return {
        "comparison": comparison,
        "styles": _styles(comparison),
        "rankings": [(sheet, _downloads(sheet)) for sheet in orders],
        "cautions": list(cautions(comparison)),
        "tables": [
            (table.of_sites(comparison.shown_sites), _downloads(sheet_of(table)))
            for table in tables
        ],
        "sheets": [(sheet, _downloads(sheet)) for sheet in sheets],
        "contours": CONTOUR_COLOURS,
    }


def by_section(figures: Iterable[Shown]) -> dict[str, list[Shown]]:
    """The figures of each section of a page."""
    found: dict[str, list[Shown]] = {section: [] for section in SECTIONS}
    for figure in figures:
        found[figure.section].append(figure)
    return found


def _context(comparison: Comparison, tables: list[Table], figures: list[Shown]) -> dict[str, Any]:
    examples = site_examples(comparison)
    return {
        "title": words.enumeration(list(comparison.studies)),
        "what": "method",
        "facts": facts(comparison),
        "warnings": list(warnings(comparison)),
        "winners": winners(tables),
        "method_lines": method_lines(comparison),
        "choice": choice_sentence(comparison),
        "folds": folds_sentence(comparison),
        "partial": partial_sentence(comparison),
        "means": means_sentence(comparison),
        "figures": by_section(figures),
        "diagnosed": list(diagnosed(comparison)),
        "attention": attention_maps(comparison),
        "examples": examples,
        "picture_width": picture_width(examples),
        "costs": method_costs(comparison),
        "settings": [
            (method.title, runs) for method in comparison.methods for runs in same_settings(method)
        ],
    }


def _elsewhere(comparison: Comparison, found: Sequence[Elsewhere]) -> dict[str, Any]:
    """What the section on models at other sites needs: the look of a row is its method's."""
    own = _styles(comparison)
    return {
        "elsewhere": [
            (each, [(t, _downloads(s)) for t, s in zip(each.tables, each.sheets, strict=True)])
            for each in found
        ],
        "styles_elsewhere": {
            row: own[title] for each in found for row, title in each.methods.items()
        },
    }


def _styles(comparison: Comparison) -> dict[str, Style]:
    """What each method is drawn in; its models as trained have the same."""
    own = {method.title: style(i) for i, method in enumerate(comparison.methods)}
    return own | {f"{title}{AS_TRAINED}": each for title, each in own.items()}


def _files(sheet: Sheet) -> dict[str, str]:
    forms = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
    return {f"table-{slug(sheet.name)}.{form}": write(sheet) for form, write in forms.items()}


def _downloads(sheet: Sheet) -> list[tuple[str, str]]:
    """The table's files by name, each as a link that holds the whole file."""
    return [(name, data_uri("text/plain", text.encode())) for name, text in _files(sheet).items()]
