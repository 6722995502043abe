"""Tables of unseen sites and of every model at every site, from files with known numbers."""

import math

import pytest

from polyclinic.report import write_report
from polyclinic.report.elsewhere import EACH, cross_site, unseen
from polyclinic.report.exports import to_csv
from polyclinic.report.reading import read_runs
from polyclinic.runs import DECODER, ENSEMBLE, GuestScore, RunError, write_guests
from tests.report.invented import write_run
from tests.report.reading_pages import Page

SITES = ("alpha", "beta", "gamma")
CASES = ("c1", "c2")


def scores(model, site, values):
    """Dice of both regions of two cases."""
    found = zip(((c, r) for c in CASES for r in ("disc", "cup")), values, strict=True)
    return [GuestScore(model, site, case, region, "dice", value) for (case, region), value in found]


def without(root, site, *, title="A", seed=0, shift=0.0, outside=None):
    """A run that leaves a site out: models at 0.2 and 0.4 on average, their ensemble at 0.5."""
    own = tuple(each for each in SITES if each != site)
    run = write_run(
        root, title, seed=seed, sites=own, metrics=("dice",), pictures=False, started="2027"
    )
    moved = run.path.rename(run.path.with_name(f"{run.path.name}-without-{site}"))
    run = type(run)(moved)
    run.write_about(run.about().model_copy(update={"left_out": site}))
    rows = [
        *scores(own[0], site, (0.1, 0.1, 0.2, 0.4)),
        *scores(own[1], site, (0.4, 0.4, 0.4, 0.4)),
        *scores(ENSEMBLE, site, (0.5 + shift,) * 4),
        *scores(DECODER, site, (0.3, 0.3, 0.7, 0.7)),
    ]
    write_guests(run, rows, unseen=site)
    return run


def base(root, title="A", seed=0):
    return write_run(
        root, title, seed=seed, sites=SITES, metrics=("dice",), pictures=False, started="2026"
    )


def values(table):
    columns = [column.name for column in table.columns]
    return {
        row.title: dict(zip(columns, (cell.value for cell in row.cells), strict=True))
        for row in table.rows
    }


def test_rows_are_what_is_tried_and_columns_the_sites_that_took_no_part(tmp_path):
    for site in SITES:
        without(tmp_path, site)
    base(tmp_path)
    comparison = read_runs([tmp_path / "demo"])
    assert [len(method.runs) for method in comparison.methods] == [1]
    (table,) = unseen(comparison).tables
    assert [column.name for column in table.columns][:3] == list(SITES)
    found = values(table)
    assert list(found) == [f"A, {way}" for way in (EACH, ENSEMBLE, DECODER)]
    for site in (*SITES, "Avg"):
        assert found[f"A, {EACH}"][site] == pytest.approx(0.3)
        assert found[f"A, {ENSEMBLE}"][site] == pytest.approx(0.5)
        assert found[f"A, {DECODER}"][site] == pytest.approx(0.5)


def test_seeds_are_averaged_over_the_sites_that_all_have(tmp_path):
    for site in ("alpha", "beta"):
        without(tmp_path, site)
    without(tmp_path, "alpha", seed=1, shift=0.2)
    base(tmp_path), base(tmp_path, seed=1)
    (table,) = unseen(read_runs([tmp_path / "demo"])).tables
    row = next(row for row in table.rows if row.title == f"A, {ENSEMBLE}")
    assert row.cells[0].value == pytest.approx(0.6)
    assert row.cells[0].spread == pytest.approx(0.2 / math.sqrt(2))
    assert math.isnan(row.cells[1].value)
    assert row.note == "1 of 2 sites"


def test_a_single_unseen_site_has_a_row_for_each_model_and_a_known_one_is_none(tmp_path):
    run = base(tmp_path)
    rows = [row for n, site in enumerate(SITES) for row in scores(site, "else", (n / 4,) * 4)]
    write_guests(run, rows, unseen="else")
    write_guests(run, scores("beta", "alpha", (0.9,) * 4), unseen="alpha")
    (table,) = unseen(read_runs([run.path])).tables
    found = {title: row["else"] for title, row in values(table).items()}
    assert found == pytest.approx(
        {"A, alpha": 0.0, "A, beta": 0.25, "A, gamma": 0.5, f"A, {EACH}": 0.25}
    )


def test_every_model_at_every_site_has_a_row_and_equal_ones_have_one_together(tmp_path):
    for title, step in (("Local", 0.1), ("FedAvg", 0.0)):
        run = base(tmp_path, title)
        write_guests(
            run,
            [
                row
                for number, model in enumerate(SITES)
                for site in SITES
                for row in scores(model, site, (step * number,) * 4)
            ],
        )
    (table,) = cross_site(read_runs([tmp_path / "demo"])).tables
    found = values(table)
    assert found["FedAvg, every site's model"]["Avg"] == 0
    assert [found[f"Local, model of {site}"]["beta"] for site in SITES] == pytest.approx(
        [0, 0.1, 0.2]
    )
    assert len(found) == 4


def test_the_tables_are_on_the_page_and_in_files(tmp_path):
    without(tmp_path, "alpha"), without(tmp_path, "beta")
    base(tmp_path)
    path = write_report([tmp_path / "demo"], tmp_path)
    text = path.read_text("utf-8")
    page = Page(text)
    assert {"elsewhere", "unseen"} <= set(page.ids)
    assert page.unclosed == []
    (table,) = unseen(read_runs([tmp_path / "demo"])).tables
    assert f"A, {ENSEMBLE}" in text
    csv = (tmp_path / "table-unseen-dice.csv").read_text()
    assert csv == to_csv(unseen(read_runs([tmp_path / "demo"])).sheets[0])
    assert len(csv.splitlines()) == 1 + len(table.rows)
    assert (tmp_path / "table-unseen-dice.tex").exists()


def test_a_file_that_holds_something_else_is_named(tmp_path):
    run = base(tmp_path)
    run.write_atomic("cross_site.csv", "model,site\na,b\n")
    with pytest.raises(RunError, match=r"cross_site\.csv holds no scores of models"):
        cross_site(read_runs([run.path]))
