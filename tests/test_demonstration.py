"""What `make demo` shows must be so."""

from pathlib import Path

import numpy as np
import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.data.load import load_federation
from tests.federations import run_locally

DEMO = Path(__file__).parent.parent / "studies" / "demo.toml"
CEILING = "Full masks, pooled"
MARGIN = 1.0  # points of Dice
MOST = 3  # sites of five


def test_each_hospital_of_the_demonstration_has_few_images_and_its_own_kind_of_weak_label():
    study = load_study(DEMO, ["task.resolution=32"], BUILT_IN)
    sites = load_federation(study.task.built, study.data, study.site)
    assert len({site.kind for site in sites} - {"mask"}) == len(sites) == 5
    assert {len(site.train) for site in sites} == {4}


def test_the_methods_of_the_demonstration_learn_under_equal_conditions():
    study = load_study(DEMO, [], BUILT_IN)
    titles = [choice.title for choice in study.method]
    assert titles == ["Local", "FedAvg", "FedICRA", "FedLPPA", CEILING]
    terms = [choice.weak or study.training.weak for choice in study.method]
    assert {each.crf for each in terms} == {0.1}
    assert study.evaluation.scores == "both", "FedAvg as trained is the control of both methods"


@pytest.mark.slow
@pytest.mark.parametrize("draw", [0, 1, 2])
def test_personalized_methods_beat_training_alone_and_one_model_for_all(tmp_path, draw):
    """What docs/lab/2026-11-18-demonstration.md says of three draws of patients."""
    changes = [f"data.seed={draw}", "evaluation.pictures=false", 'evaluation.metrics=["dice"]']
    study = load_study(DEMO, changes, BUILT_IN)
    runs = run_locally(study, tmp_path, watch=lambda _run, _event: None)
    dice = {run.choice.title: by_site(run) for run in runs}
    mean = {title: np.mean(values) for title, values in dice.items()}
    for method in ("FedICRA", "FedLPPA"):
        assert max(mean["Local"], mean["FedAvg"]) + MARGIN < mean[method] < mean[CEILING]
        for other in ("Local", "FedAvg"):
            assert (dice[method] > dice[other]).sum() >= MOST, (method, other)
    (fedavg,) = (run for run in runs if run.choice.title == "FedAvg")
    assert np.mean(by_site(fedavg, "trained")) > mean["FedAvg"] + MARGIN, "the control of both"


def by_site(run, model="shared"):
    """Mean test Dice of each site in per cent."""
    scores = run.folder.scores("test", model)
    sites = sorted({score.site for score in scores})
    return np.array(
        [100 * np.mean([each.value for each in scores if each.site == site]) for site in sites]
    )
