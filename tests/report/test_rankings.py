"""The ranking as tables: for every metric, over all regions and by region."""

import csv
import io

import pytest

from polyclinic.evaluation.intervals import NONE_FOR_FEW
from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report import write_report
from polyclinic.report.chance import ranked
from polyclinic.report.exports import to_csv, to_latex, to_markdown
from polyclinic.report.rankings import rankings
from polyclinic.report.reading import read_runs
from tests.report.invented import METRICS, SITES, write_run
from tests.report.reading_pages import Page


def table(sheet):
    """The rows of a ranking's CSV by their heads; empty places are None."""
    rows = csv.DictReader(io.StringIO(to_csv(sheet)))
    return [{key: value or None for key, value in row.items()} for row in rows]


def test_every_metric_has_a_ranking_over_all_regions_and_one_by_region(study):
    names = [sheet.name for sheet in rankings(read_runs([study]))]
    assert names == [f"ranking-{m}{end}" for m in METRICS for end in ("", "-by-region")]


@pytest.mark.parametrize("metric", ["dice", "hd95"])
def test_the_files_hold_what_was_computed_in_full(study, metric):
    comparison = read_runs([study])
    sheets = {sheet.name: sheet for sheet in rankings(comparison)}
    whole, by_region = sheets[f"ranking-{metric}"], sheets[f"ranking-{metric}-by-region"]
    found = table(whole)
    parts = {
        region: [r for r in table(by_region) if r["Region"] == region] for region in ("disc", "cup")
    }
    for region, rows in ((OVERALL, found), *parts.items()):
        expected = ranked(comparison, metric, region)
        assert [row["method"] for row in rows] == [each.title for each in expected]
        for row, each in zip(rows, expected, strict=True):
            numbers = [float(row[head]) for head in ("Mean over sites", "95 % from", "95 % to")]
            assert numbers == [each.score, each.low, each.high]
            assert float(row["Behind the best"]) == abs(each.behind)
        assert rows[0]["p (patients)"] is None
        assert float(rows[1]["p (patients)"]) == expected[1].chance
    assert found[0]["Mean over sites"] != parts["cup"][0]["Mean over sites"]


def test_one_region_has_no_table_by_region(tmp_path):
    for title in ("A", "B"):
        write_run(tmp_path, title, regions=("faz",), metrics=("dice",))
    assert [s.name for s in rankings(read_runs([tmp_path / "demo"]))] == ["ranking-dice"]


def test_what_cannot_be_ranked_has_no_table(tmp_path):
    write_run(tmp_path, "A")
    assert rankings(read_runs([tmp_path / "demo"])) == []


def test_the_page_shows_the_first_ranking_and_folds_the_others_away(report, page):
    text = report.read_text("utf-8")
    scores = text.split('id="scores"')[1].split("</section>")[0]
    first, *others = scores.split("Ranking by ")[1:]
    assert first.startswith("Dice (%) ↑ ")
    assert len(others) == 2 * len(METRICS) - 1
    assert "<summary>" not in first.split("</table>")[0]
    assert scores.count("<summary>Ranking by ") == len(others)
    names = {name for name, _ in page.links if name and "ranking" in name}
    assert len(names) == 3 * 2 * len(METRICS)
    assert all((report.parent / name).read_text("utf-8") for name in names)


def test_a_ranking_marks_the_best_and_what_is_within_noise_in_all_forms(study):
    sheet = rankings(read_runs([study]))[0]
    best, other = ranked(read_runs([study]), "dice")
    assert not other.within_noise
    shown = f"{100 * best.score:.2f}"
    assert f"**{shown}**" in to_markdown(sheet)
    assert rf"\textbf{{{shown}}}" in to_latex(sheet)
    assert r"95 \% from" in to_latex(sheet)


def test_too_few_patients_leave_a_dash_and_a_note(tmp_path):
    for title in ("A", "B"):
        write_run(tmp_path, title, sites=("alpha",), cases=8, metrics=("dice",))
    (sheet, _) = rankings(read_runs([tmp_path / "demo"]))
    assert [entry.text for entry in sheet.rows[0][2:4]] == ["–", "–"]
    assert NONE_FOR_FEW in sheet.caption
    assert table(sheet)[0]["95 % from"] is None
    text = Page(write_report([tmp_path / "demo"], tmp_path / "report").read_text("utf-8")).text
    assert NONE_FOR_FEW in text


def test_six_sites_have_a_column_for_the_test_over_sites(tmp_path):
    for title in ("A", "B"):
        write_run(tmp_path, title, sites=SITES, metrics=("dice",))
    comparison = read_runs([tmp_path / "demo"])
    sheet = rankings(comparison)[0]
    assert float(table(sheet)[1]["p (sites)"]) == ranked(comparison, "dice")[1].over_sites
    assert "with 6 sites it cannot be below 0.0312" in sheet.caption
