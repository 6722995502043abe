"""Models as their sites trained them, before the last average, scored beside those in use."""

import csv
from dataclasses import replace

import pytest

from polyclinic.report.conditions import conditions_of
from polyclinic.report.page import write_report
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table
from polyclinic.runs import RunFolder
from tests.federations import equal

BOTH = ("evaluation.scores=both", "evaluation.choose=last")
LAST = "evaluation.choose=last"


def values(run, model="shared"):
    return [(row.site, row.case, row.metric, row.value) for row in run.folder.scores("test", model)]


def test_after_one_round_the_models_as_trained_are_those_of_training_alone(federation):
    small = federation(rounds=1)
    both, alone = small.run("fedavg", *BOTH), small.run("local", LAST)
    assert values(both, "trained") == values(alone)
    assert values(both, "trained") != values(both)


def test_scoring_them_changes_nothing_else(federation):
    small = federation(rounds=2)
    both, shared = small.run("fedavg", *BOTH), small.run("fedavg", LAST)
    assert equal(both.tensors("server"), shared.tensors("server"))
    assert both.folder.scores() == shared.folder.scores()
    assert values(shared, "trained") == []


def test_they_are_those_of_the_chosen_round(federation):
    small = federation(rounds=2)
    chosen = small.run("fedavg", "evaluation.scores=both")
    number = chosen.folder.end().chosen_round
    assert {row.round for row in chosen.folder.scores("test", "trained")} == {number}
    assert number == 1 or values(chosen, "trained") == values(small.run("fedavg", *BOTH), "trained")


def test_pooled_images_have_no_model_of_a_site(federation):
    done = federation(rounds=1).run("centralized", *BOTH)
    assert values(done)
    assert not values(done, "trained")


def test_a_site_that_took_no_part_has_no_model_as_trained(federation):
    small = federation(sites=2, rounds=1)
    done = small.run("fedavg", *BOTH, "federation.participation=0.5")
    assert len({row.site for row in done.folder.scores("test")}) == 2
    assert len({row.site for row in done.folder.scores("test", "trained")}) == 1


@pytest.fixture
def compared(federation):
    small = federation(rounds=1)
    return lambda how: read_runs(
        small.run(name, f"evaluation.scores={how}", LAST).folder.path
        for name in ("fedavg", "local", "centralized")
    )


def test_tables_show_both_once_where_they_are_the_same(compared):
    table = comparison_table(compared("both"), "dice")
    same = "as trained: the same scores"
    assert [(row.title, row.note) for row in table.rows] == [
        ("FedAvg", ""),
        ("FedAvg, as trained", ""),
        ("Local", same),
        ("Centralized", same),
    ]
    assert [row.conditions.model for row in table.rows] == ["shared", "trained", "shared", "shared"]
    assert [row.conditions.weighting for row in table.rows] == [*["samples"] * 2, *["none"] * 2]
    assert "before the last average" in table.conditions


def test_tables_show_the_models_that_the_study_asks_for(compared):
    titles = [row.title for row in comparison_table(compared("trained"), "dice").rows]
    assert titles == ["FedAvg, as trained", "Local", "Centralized"]
    table = comparison_table(compared("shared"), "dice")
    assert [row.title for row in table.rows] == ["FedAvg", "Local", "Centralized"]
    assert table.conditions.startswith(
        "Scored: the model after the last average. Weighting: samples"
    )
    assert "Seeds: 0. Settings: " in table.conditions


def test_the_hash_of_settings_tells_settings_apart_and_not_names_or_machines(federation):
    small = federation(rounds=1)
    runs = [
        small.run("fedavg", LAST),
        small.run("fedavg", LAST, name="another-name"),
        small.run("fedavg", LAST, "training.weight_decay=0.5"),
    ]
    rows = [comparison_table(read_runs([each.folder.path]), "dice").rows for each in runs]
    first, renamed, other = (row.conditions.settings for (row,) in rows)
    assert first == renamed != other
    (method,) = read_runs([runs[0].folder.path]).methods
    assert conditions_of(replace(method, runs=method.runs * 2)).settings == first


def test_every_table_of_the_report_states_its_conditions(compared, tmp_path):
    comparison = compared("both")
    page = write_report([run.folder.path for run in comparison.runs], tmp_path)
    sentence = comparison_table(comparison, "dice").conditions
    assert page.read_text().count(sentence) == len(comparison.metrics)
    tables = [tmp_path / f"table-{metric}.csv" for metric in comparison.metrics]
    for file in tables:
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert [row["model"] for row in rows] == ["shared", "trained", "shared", "shared"]
        assert all(row["seeds"] == "0" and len(row["settings"]) == 8 for row in rows)
        assert sentence in file.with_suffix(".tex").read_text()


def test_scores_of_earlier_versions_are_read_as_those_of_models_in_use(tmp_path):
    old = "round,split,site,case,region,metric,value\n1,test,alpha,a,faz,dice,0.5\n"
    (tmp_path / "scores.csv").write_text(old)
    (row,) = RunFolder(tmp_path).scores()
    assert (row.value, row.model) == (0.5, "shared")


def test_the_papers_weights_are_those_of_the_method_s_authors(federation):
    """What averages nothing, or one reply, needs none."""
    small = federation(rounds=1)
    for method, weighting in (("feddyn", "uniform"), ("fedsm", "steps"), ("fedavg", "samples")):
        paper = small.run(method, "federation.weighting=paper", LAST)
        said = small.run(method, f"federation.weighting={weighting}", LAST)
        assert paper.folder.about().weighting == said.folder.about().weighting == weighting
        assert equal(paper.tensors("server"), said.tensors("server"))
    for method in ("centralized", "local"):
        assert small.run(method, "federation.weighting=paper", LAST).folder.about().weighting == ""
