import csv
import math
import sys

import numpy as np
import pandas
import pytest

import polyclinic as pc
from polyclinic.runs import RunError, RunFolder
from tests.api.small import SMALL, Pulled, small_run
from tests.data.folders import write_site


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return small_run(folder, method=["fedavg", Pulled(mu=0.1)], seeds=[0, 1])


def test_a_run_gives_what_its_folders_hold(results):
    assert results.methods == ["FedAvg", "Pulled"]
    assert results.seeds == [0, 1]
    assert results.metrics == ["dice", "hd95"]
    written = [row for path in results.paths for row in RunFolder(path).scores("test")]
    rows = results.rows()
    assert sorted(row.value for row in rows) == sorted(row.value for row in written)
    assert {row.site for row in rows} == set(results.sites)
    assert (rows[0].method, rows[0].seed, rows[0].metric, rows[0].region) == (
        "FedAvg",
        0,
        "dice",
        "faz",
    )


def test_scores_are_a_frame_where_pandas_is_installed(results, monkeypatch):
    frame = results.scores()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == [
        "method",
        "seed",
        "site",
        "case",
        "region",
        "metric",
        "value",
        "model",
    ]
    assert len(frame) == len(results.rows())
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert results.scores() == results.rows()


def test_a_table_has_the_means_of_each_site(results):
    table = results.table("dice")
    of_site = [
        row.value
        for row in results.rows()
        if (row.method, row.metric, row.site) == ("Pulled", "dice", results.sites[1])
    ]
    assert table.columns == [*results.sites, "Avg", "Std", "Images"]
    assert table.rows["Pulled"][1] == pytest.approx(np.mean(of_site))
    assert table.title == "Dice (%) ↑"
    printed = f"{100 * np.mean(of_site):.2f}"
    (line,) = (line for line in str(table).splitlines() if line.startswith("Pulled"))
    assert line.split()[2] == printed
    assert f">{printed}</td>" in table._repr_html_()
    header = next(csv.reader(table.to_csv().splitlines()))
    assert header[1] == f"faz / {results.sites[0]} mean"
    assert results.sites[0] in table.to_latex()


def test_a_table_is_of_the_first_metric_unless_another_is_named(results):
    assert results.table().title == results.table("dice").title
    assert results.table("hd95").title == "HD95 (px) ↓"
    with pytest.raises(ValueError, match=r'no metric .hd59.*did you mean "hd95"'):
        results.table("hd59")


def test_what_a_notebook_shows_holds_no_markup_of_a_name(tmp_path):
    shown = small_run(tmp_path, method=[{"name": "fedavg", "title": "<b>ours & theirs"}])
    assert "&lt;b&gt;ours &amp; theirs" in shown._repr_html_()
    assert "&lt;b&gt;ours &amp; theirs" in shown.curves()._repr_html_()
    assert "<b>ours & theirs" in str(shown)


def test_curves_are_rows_a_frame_and_a_figure(results):
    curves = results.curves()
    (row,) = (row for row in curves.rows if row[:4] == ("Pulled", 1, results.sites[0], 1))
    (path,) = (path for path in results.paths if path.parts[-2:] == ("pulled", "seed-1"))
    (line,) = (
        line for line in RunFolder(path).rounds() if (line.round, line.site) == (1, row.site)
    )
    assert row.loss == line.loss
    validated = [score.value for score in RunFolder(path).scores("val") if score.site == row.site]
    assert row.validation == pytest.approx(np.mean(validated))
    assert list(curves.frame().columns) == ["method", "seed", "site", "round", "loss", "validation"]
    assert curves._repr_html_().count("<img src=") == 2


def test_a_report_is_written_beside_the_runs_or_where_it_is_wanted(results, tmp_path):
    page = results.report()
    assert page == results.paths[0].parents[1] / "report.html"
    assert "Pulled" in page.read_text()
    assert results.report(tmp_path / "page.html") == tmp_path / "page.html"


def test_runs_are_loaded_from_their_folders(results):
    study = results.paths[0].parents[1]
    loaded = pc.load_run(study)
    assert loaded.rows() == results.rows()
    assert str(loaded) == str(results)
    one = pc.load_run(results.paths[0])
    assert (one.methods, one.seeds) == (["FedAvg"], [0])
    with pytest.raises(RunError, match="is not a folder"):
        pc.load_run(study / "nothing")


def test_a_run_that_is_not_finished_has_curves_but_no_scores(results, tmp_path):
    import shutil

    shutil.copytree(results.paths[0], tmp_path / "seed-0")
    (tmp_path / "seed-0" / "finished.json").unlink()
    unfinished = pc.load_run(tmp_path / "seed-0")
    assert unfinished.curves().rows
    assert repr(unfinished) == str(unfinished) == "<Results: FedAvg; runs: 1, finished: 0>"
    assert not unfinished.rows()
    with pytest.raises(RunError, match="no run is finished"):
        unfinished.table("dice")


def test_a_study_that_was_run_is_continued_or_removed_only_when_asked(tmp_path):
    study = pc.Study(**SMALL, method="fedavg")
    first = pc.run(study, runs=tmp_path)
    with pytest.raises(RunError, match=r"already holds a run[\s\S]*resume=True"):
        pc.run(study, runs=tmp_path)
    assert pc.run(study, runs=tmp_path, resume=True).rows() == first.rows()
    assert pc.run(study, runs=tmp_path, fresh=True).rows() == first.rows()
    with pytest.raises(ValueError, match="give one of them"):
        pc.run(study, runs=tmp_path, resume=True, fresh=True)


def test_a_study_is_run_from_its_file(tmp_path):
    file = tmp_path / "first.toml"
    file.write_text(pc.Study(**SMALL, name="first", method="fedavg").to_toml())
    results = pc.run(file, runs=tmp_path / "runs")
    assert results.paths[0].parts[-3:] == ("first", "fedavg", "seed-0")
    assert all(math.isfinite(row.value) for row in results.rows())


def test_distances_of_sites_with_a_spacing_are_told_in_millimetres(tmp_path):
    for name in ("north", "south"):
        site = write_site(tmp_path / "clinics" / name)
        (site / "site.toml").write_text("spacing = 0.5\n")
    settings = {"task": {"name": "fundus", "resolution": 32}, "data": {"source": site.parent}}
    results = small_run(tmp_path, **settings)
    assert results.table("hd95").title == "HD95 (mm) ↓"
    (site / "site.toml").unlink()
    results = small_run(tmp_path / "mixed", **settings)
    assert results.table("hd95").title == "HD95 (mm or px) ↓"
