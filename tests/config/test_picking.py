import pytest

from polyclinic.config import ConfigError, only_methods
from tests.config.example import load

STUDY = """
task = "octa"
[[method]]
name = "fedavg"
[[method]]
name = "fedprox"
mu = 1
[[method]]
name = "fedprox"
mu = 2
[[method]]
name = "fedavg"
title = "Mine"
"""


def titles(study):
    return [row.title for each in study.swept or (study,) for row in each.method]


def test_without_a_title_all_methods_stay(tmp_path):
    study = load(tmp_path, STUDY)
    assert only_methods(study, [], "study.toml") is study


def test_methods_are_picked_in_the_order_of_the_study_and_stay_as_they_are(tmp_path):
    study = load(tmp_path, STUDY)
    first, _, _, last = study.method
    assert only_methods(study, ["Mine", "FedAvg"], "study.toml").method == (first, last)


def test_a_title_without_its_bracket_picks_all_that_differ_there(tmp_path):
    study = load(tmp_path, STUDY)
    assert titles(only_methods(study, ["FedProx"], "")) == ["FedProx (mu=1.0)", "FedProx (mu=2.0)"]
    assert titles(only_methods(study, ["FedProx (mu=2.0)"], "")) == ["FedProx (mu=2.0)"]


def test_swept_methods_are_picked_with_and_without_their_value(tmp_path):
    swept = STUDY + '[sweep]\n"training.iterations" = [1, 2]\n'
    study = load(tmp_path, swept)
    both = ["Mine (iterations=1)", "Mine (iterations=2)"]
    assert titles(only_methods(study, ["Mine"], "")) == both
    assert titles(only_methods(study, both[1:], "")) == both[1:]


def test_every_wrong_title_is_told_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="Mine") as refused:
        only_methods(load(tmp_path, STUDY), ["Mines", "FedSGD"], "study.toml")
    text = str(refused.value)
    assert "2 mistakes in study.toml" in text
    assert '--only = "Mines": is the title of no method of this study; did you mean Mine?' in text
    assert '--only = "FedSGD"' in text
