"""Reports of studies whose cases are cut into folds."""

import numpy as np
import pytest

from polyclinic.report.chance import ranked
from polyclinic.report.reading import read_runs
from polyclinic.runs import Finished, Score
from tests.report.invented import write_run


def write_folds(root, title, folds, *, seed=0):
    """A finished run for each fold, whose test scores are these: case → number of patient, value.

    All lie at one site.
    """
    for fold, cases in enumerate(folds):
        run = write_run(root / f"{fold}", title, seed=seed, sites=("alpha",), stop=1, cases=2)
        run.write_about(run.about().model_copy(update={"fold": fold}))
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
