"""Tables of results in the documentation: `make results RUNS=FOLDER` makes them from run folders.

Of each study it leaves results/<study>.json, and of a paper's twin results/<study>.<table>.json for
each other table that papers.toml asks for. From all that lie there it fills the pages anew: what
stands between `<!-- result STUDY -->`, `<!-- papers -->` or `<!-- twins -->` and `<!-- end -->` is
written by nobody else. Beside it results/<study>.zip keeps settings and test scores of the finished
runs, so that seeds can be added another day.
"""

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from paper_tables import also, named, papers, twins

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.conditions import conditions_of, scored_rows
from polyclinic.report.efficiency import efficiency
from polyclinic.report.elsewhere import unseen
from polyclinic.report.exports import to_markdown
from polyclinic.report.reading import Comparison, MethodRuns, read_runs
from polyclinic.report.score_tables import Table, comparison_table
from polyclinic.report.separations import separation_sheet
from polyclinic.report.sheets import Entry, Sheet, mark_sentence, scored, spread_sentence
from polyclinic.runs import RunError, RunFolder, find_runs, replacing, write_atomic

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
KEPT = ("study.toml", "about.json", "finished.json", "scores.csv")
PAGES = (DOCS / "results.md", DOCS / "papers.md", DOCS / "twins.md")
MARKED_STUDY = re.compile(r"<!-- result ([\w.-]+) -->")
MARKED = re.compile(r"(<!-- (?:result ([\w.-]+)|papers|twins) -->\n).*?(<!-- end -->)", re.S)


def main(paths: list[str]) -> None:
    """Read the studies below these folders that stand on a page, then fill the pages."""
    wanted = {*named(), *MARKED_STUDY.findall(PAGES[0].read_text())}
    for folder in studies(paths):
        try:
            if folder.name not in wanted:
                raise RunError("it stands on no page")
            write_atomic(RESULTS / f"{folder.name}.json", as_json(result(gathered(folder))))
            for sheet in beside(folder):
                write_atomic(RESULTS / f"{folder.name}.{sheet.name}.json", as_json(sheet))
        except RunError as error:
            print(f"{folder.name} is left out: {error}")  # noqa: T201
    for page in PAGES:
        write_atomic(page, filled(page.read_text()))


def studies(paths: list[str]) -> list[Path]:
    """The folders of studies that the paths are or hold."""
    found = [
        file.parents[2]
        for path in map(Path, paths)
        for pattern in ("*/*/study.toml", "*/*/*/study.toml")
        for file in path.glob(pattern)
    ]
    return sorted(set(found))


def gathered(study: Path, results: Path = RESULTS) -> Comparison:
    """The finished runs of a study, with those kept before that have the same settings.

    All of them are kept from here on.
    """
    archive = results / f"{study.name}.zip"
    with TemporaryDirectory() as scratch:
        to = Path(scratch) / study.name
        if archive.exists():
            zipfile.ZipFile(archive).extractall(to)
        for path in find_runs([study]):
            _keep(RunFolder(path), to / path.relative_to(study))
        comparison = read_runs([to])
        methods = tuple(map(_alike, comparison.methods))
        with replacing(archive) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as kept:
            for run in (run for method in methods for run in method.runs):
                for name in KEPT:
                    place = (run.folder.path / name).relative_to(to)
                    entry = zipfile.ZipInfo(place.as_posix())  # no date: same runs, same bytes
                    entry.compress_type = zipfile.ZIP_LZMA
                    kept.writestr(entry, (run.folder.path / name).read_bytes())
        return replace(comparison, methods=methods)


def result(comparison: Comparison) -> Sheet:
    """A study's first metric by site, then its means over sites by region, and other metrics'."""
    done = replace(comparison, methods=tuple(each for each in comparison.methods if each.finished))
    if not done.methods:
        raise RunError("no run has finished")
    first, *others = _as_named(done)
    table = comparison_table(done, first, [OVERALL])
    regions = done.regions_of(first) if len(done.regions_of(first)) > 1 else ()
    means = [(region, comparison_table(done, first, [region])) for region in regions]
    for other in others:
        means.append(
            (done.measure(other).title_with_unit, comparison_table(done, other, [OVERALL]))
        )
    seeds = {run.about.seed for run in comparison.runs}
    told = [row.conditions for row in table.rows]
    columns = [
        ("Method", [Entry(row.title) for row in table.rows]),
        *_by_site(table),
        ("mean", _averages(table)),
        *((head, _averages(each)) for head, each in means),
        ("seeds", [Entry(_finished(row, seeds)) for row in scored_rows(done)]),
        ("weighting", [Entry(each.weighting) for each in told]),
        ("settings", [Entry(each.settings) for each in told]),
    ]
    return Sheet(
        name=comparison.studies[0],
        title=f"{table.measure.title_with_unit} {table.measure.arrow}".strip(),
        caption=f"{spread_sentence(table)}{mark_sentence(table)} {table.conditions}",
        heads=tuple(head for head, _ in columns),
        rows=tuple(zip(*(entries for _, entries in columns), strict=True)),
    )


def beside(study: Path) -> Iterator[Sheet]:
    """The other tables that papers.toml asks for; they need more of a run than is kept."""
    wanted = also(study.name)
    if wanted:
        comparison = read_runs([study])
        elsewhere = unseen(comparison)
        made = (efficiency(comparison), separation_sheet(comparison))
        for sheet in (*made, *(elsewhere.sheets if elsewhere else ())):
            if sheet and sheet.name in wanted:
                yield sheet


def as_json(sheet: Sheet) -> str:
    """The table as text, a row a line: what is shown of each entry, without what is empty."""
    told = {key: getattr(sheet, key) for key in ("name", "title", "caption", "heads", "groups")}
    shown = ("text", "spread", "mark", "near")
    rows = [
        json.dumps(
            [{k: v for k, v in asdict(entry).items() if k in shown and v} for entry in row],
            ensure_ascii=False,
        )
        for row in sheet.rows
    ]
    head = json.dumps(told, indent=1, ensure_ascii=False).removesuffix("\n}")
    return head + ',\n "rows": [\n' + ",\n".join(rows) + "\n]}\n"


def from_json(text: str) -> Sheet:
    """The table that `as_json` wrote."""
    read = json.loads(text)
    rows = tuple(tuple(Entry(**{"text": ""} | entry) for entry in row) for row in read["rows"])
    groups = tuple((name, count) for name, count in read.get("groups", ()))
    return Sheet(**read | {"heads": tuple(read["heads"]), "groups": groups, "rows": rows})


def filled(page: str, results: Path = RESULTS) -> str:
    """The page with all that is marked in it made anew from the results that are there."""
    found = {file.stem: from_json(file.read_text()) for file in sorted(results.glob("*.json"))}

    def made(marked: re.Match[str]) -> str:
        before, study, after = marked.groups()
        if study is None:
            of_all = twins if "twins" in before else papers
            return f"{before}\n{of_all(found)}\n{after}"
        text = to_markdown(found[study]) if study in found else "*Not run yet.*\n"
        return f"{before}\n{text}\n{after}"

    return MARKED.sub(made, page)


def _keep(run: RunFolder, to: Path) -> None:
    """Copy what tables need of a finished run."""
    if run.finished:
        to.mkdir(parents=True, exist_ok=True)
        for name in KEPT[:-1]:
            shutil.copyfile(run.path / name, to / name)
        RunFolder(to).rewrite_scores(run.scores("test", None))


def _alike(method: MethodRuns) -> MethodRuns:
    """The runs that have the settings of the one that was begun last."""
    settings = [conditions_of(replace(method, runs=(run,))).settings for run in method.runs]
    _, newest = max(zip([run.about.started for run in method.runs], settings, strict=True))
    pairs = zip(method.runs, settings, strict=True)
    return replace(method, runs=tuple(run for run, own in pairs if own == newest))


def _as_named(comparison: Comparison) -> list[str]:
    """The metrics in the order in which the study names them."""
    named = comparison.runs[0].settings.get("evaluation", {}).get("metrics", comparison.metrics)
    return [metric for metric in named if metric in comparison.metrics]


def _by_site(table: Table) -> Iterator[tuple[str, list[Entry]]]:
    for place, column in enumerate(table.columns):
        if column.kind == "site":
            yield column.name, [scored(row.cells[place], table) for row in table.rows]


def _averages(table: Table) -> list[Entry]:
    place = [column.kind for column in table.columns].index("average")
    return [scored(row.cells[place], table) for row in table.rows]


def _finished(method: MethodRuns, seeds: set[int]) -> str:
    """The seeds whose runs have finished, and how many there are to be."""
    done = sorted({run.about.seed for run in method.finished})
    of = "" if len(done) == len(seeds) else f" ({len(done)} of {len(seeds)})"
    folds = f" × {len(method.folds)} folds" if len(method.folds) > 1 else ""
    return f"{', '.join(map(str, done))}{of}{folds}"


if __name__ == "__main__":
    main(sys.argv[1:])
