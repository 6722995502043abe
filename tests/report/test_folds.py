"""Reports of studies whose cases are cut into folds."""

import numpy as np
import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.report.chance import ranked
from polyclinic.report.folds import folds_sentence
from polyclinic.report.overview import facts, method_lines, same_settings, warnings
from polyclinic.report.page import write_report
from polyclinic.report.patients import patients_of
from polyclinic.report.reading import read_runs
from polyclinic.report.score_tables import comparison_table, missing_seeds
from polyclinic.runs import Finished, Score
from tests.federations import run_locally
from tests.report.invented import write_run
from tests.report.reading_pages import Page


def write_folds(root, title, folds, *, seed=0):
    """A finished run for each fold, whose test scores are these: case → number of patient, value.

    All lie at one site.
    """
    for fold, cases in enumerate(folds):
        run = write_run(root / f"{fold}", title, seed=seed, sites=("alpha",), stop=1, cases=2)
        run.write_about(run.about().model_copy(update={"fold": fold}))
        study = run.path / "study.toml"
        cut = f"[data]\nfolds = {len(folds)}\nfold = {fold}"
        study.write_text(study.read_text().replace("[data]", cut))
        run.append(
            scores=(
                Score(1, "test", "alpha", case, "disc", "dice", value, patient)
                for case, (patient, value) in cases.items()
            )
        )
        run.finish(Finished(chosen_round=1, seconds=1))
    return [root / f"{fold}" / "demo" for fold in range(len(folds))]


def five_folds(mean, *, again=False):
    """Of 25 patients with two cases each, five to a fold, whose numbers begin anew in each fold.

    With `again` the same five are tested in every fold.
    """
    rng = np.random.default_rng(0)
    return [
        {
            f"p{0 if again else fold}-{patient}-{case}": (patient, mean + rng.normal(0, 0.05))
            for patient in range(1, 6)
            for case in range(2)
        }
        for fold in range(5)
    ]


def chance_of_the_second(root, *, again=False, seeds=1):
    for seed in range(seeds):
        write_folds(root, "Good", five_folds(0.8, again=again), seed=seed)
        paths = write_folds(root, "Bad", five_folds(0.7, again=again), seed=seed)
    best, other = ranked(read_runs(paths), "dice")
    assert (best.title, other.title) == ("Good", "Bad")
    return other.chance


@pytest.mark.parametrize("seeds", [1, 2])
def test_patients_of_several_folds_are_different_people(tmp_path, seeds):
    # All 25 differ alike: of 10 000 draws of their signs none is as far.
    assert chance_of_the_second(tmp_path, seeds=seeds) == pytest.approx(1 / 10_001)


def test_patients_that_every_fold_tests_are_the_same_people(tmp_path):
    assert chance_of_the_second(tmp_path, again=True) == pytest.approx(2 / 2**5)


def test_cases_that_any_run_says_to_be_of_one_patient_are(tmp_path):
    # Two cuts of one site: "b" ties "a" and "c" together, "x" and "d" are others.
    cuts = [{"a": (1, 0.9), "b": (1, 0.9), "x": (2, 0.9)}]
    cuts += [{"b": (2, 0.9), "c": (2, 0.9), "d": (1, 0.9)}]
    write_folds(tmp_path, "Good", cuts)
    worse = [{case: (n, 0.5) for case, (n, _) in cut.items()} for cut in cuts]
    _, other = ranked(read_runs(write_folds(tmp_path, "Bad", worse)), "dice")
    assert other.chance == pytest.approx(2 / 2**3)


@pytest.fixture
def folded(tmp_path):
    """The folders of a method with two seeds in each of five folds."""
    write_folds(tmp_path, "A", five_folds(0.8), seed=0)
    return write_folds(tmp_path, "A", five_folds(0.8), seed=1)


def test_folds_are_not_taken_for_seeds_or_for_other_settings(folded):
    comparison = read_runs(folded)
    (method,) = comparison.methods
    assert list(warnings(comparison)) == []
    assert len(same_settings(method)) == 1
    assert method_lines(comparison)[0].seeds == "0 and 1; folds 0, 1, 2, 3 and 4"
    assert dict(facts(comparison))["Folds"] == "0, 1, 2, 3 and 4"
    table = comparison_table(comparison, "dice")
    assert table.rows[0].conditions.seeds == (0, 1)
    assert "Seeds: 0 and 1; folds 0, 1, 2, 3 and 4. " in table.conditions


def test_what_runs_of_several_folds_must_share_is_still_compared(folded):
    study = folded[3] / "a" / "seed-1" / "study.toml"
    study.write_text(study.read_text().replace("batch = 12", "batch = 9"))
    comparison = read_runs(folded)
    assert list(warnings(comparison)) == ["The runs of A differ in training.batch."]
    assert [len(runs) for runs in same_settings(comparison.methods[0])] == [9, 1]


def test_a_run_that_is_missing_is_named_with_its_fold(folded):
    (folded[3] / "a" / "seed-1" / "finished.json").unlink()
    comparison = read_runs(folded)
    assert missing_seeds(comparison.methods[0]) == "9 of 10 runs"
    assert method_lines(comparison)[0].state == "unfinished: seed 1 fold 3 at round 1 of 20"


def test_the_page_tells_what_the_folds_were_for(folded, tmp_path):
    text = Page(write_report(folded, tmp_path / "report").read_text("utf-8")).text
    turns = "Cases were cut into 5 folds by patients, each of which was the test set in turn"
    assert turns in text
    assert "nothing but seeds and data.fold" in text
    assert "With seed 0 and fold 0" in text
    assert "bands the range of the runs" in text


def test_test_cases_that_stay_and_a_single_fold_are_said(tmp_path):
    paths = write_folds(tmp_path, "A", five_folds(0.8, again=True))
    assert "turns to validate, while test cases stayed" in folds_sentence(read_runs(paths))
    one = "Cases were cut into 5 folds by patients, of which fold 2 was run."
    assert folds_sentence(read_runs(paths[2:3])) == one


def test_without_folds_nothing_is_said_of_them(study):
    comparison = read_runs([study])
    assert folds_sentence(comparison) == ""
    assert "Folds" not in dict(facts(comparison))


STUDY = """
name = "folded"
task = { name = "fundus", resolution = 32 }
method = ["fedavg", "local"]
[data]
source = "synthetic"
only = ["amber", "birch"]
size = 0.3
folds = 2
given = "recut"
[network]
name = "unet"
width = 2
[training]
batch = 4
epochs = 1
[federation]
rounds = 1
[evaluation]
metrics = ["dice"]
pictures = false
"""


def test_a_study_with_folds_is_ranked_over_the_patients_of_all_of_them(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    study = load_study(tmp_path / "study.toml", [], BUILT_IN)
    run_locally(study, tmp_path / "runs", watch=lambda run, event: None)
    comparison = read_runs([tmp_path / "runs" / "folded"])
    folds = [run.patients for run in comparison.methods[0].runs]
    assert len(folds) == 2
    for site, cases in patients_of(comparison).items():
        counts = [len(set(fold[site].values())) for fold in folds]
        assert all(1 in fold[site].values() for fold in folds), "numbers begin anew"
        assert len(set(cases.values())) == sum(counts)
    report = write_report([tmp_path / "runs" / "folded"], tmp_path / "report")
    text = Page(report.read_text("utf-8")).text
    assert "each of which was the test set in turn" in text
    assert "The runs of" not in text
    assert "of 1 epoch at every site" in report.with_name("methods.txt").read_text()
    assert report.with_name("table-ranking-dice.csv").exists()
