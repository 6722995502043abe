import pickle
from pathlib import Path

import pytest

from polyclinic.config import ConfigError, Mistake
from polyclinic.config.mistakes import did_you_mean, nearest
from tests.config.example import load


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    text = """
        tsk = "fundus"
        seeds = [1, 1]
        [training]
        bach = 3
        batch = 0
        epochs = 1
        iterations = 2
        optimizer = "adam"
        momentum = 0.5
        [data]
        split = [0.5, 0.5, 0.5]
        fold = 1
        [network]
        width = 0
        [[site]]
        name = "a"
        labels = "boxes"
        [[site]]
        name = "a"
        [[method]]
        name = "fedprox"
        mu = -1
        projector = {depth = 0, dept = 1}
        [[method]]
        name = "fedawg"
        then = ["fintune"]
        """
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, "engine.workers=-1", "nonsense")
    assert {mistake.key for mistake in caught.value.mistakes} == {
        "tsk",
        "task",
        "seeds",
        "training.bach",
        "training.batch",
        "training.iterations",
        "training.momentum",
        "data.split",
        "data.fold",
        "network.width",
        "site.a.labels",
        "site.a.name",
        "method.fedprox.mu",
        "method.fedprox.projector.depth",
        "method.fedprox.projector.dept",
        "method.fedawg.name",
        "method.fedawg.then.fintune.name",
        "engine.workers",
        "--set nonsense",
    }
    assert str(caught.value).startswith(f"19 mistakes in {tmp_path / 'demo.toml'}:\n")


def test_a_mistake_reads_as_a_line():
    assert str(Mistake("a.b", "is required")) == "a.b: is required"
    assert str(Mistake("a", "is odd", "3", ("2", "4"))) == "a = 3: is odd; allowed: 2, 4"
    assert (
        str(Mistake("a", "is odd", "3", ("2", "4"), "4"))
        == "a = 3: is odd; did you mean 4? Allowed: 2, 4"
    )


def test_a_long_value_is_shortened():
    assert len(str(Mistake("a", "is long", "x" * 1000))) < 80


def test_the_nearest_name_ignores_case_and_may_be_none():
    assert nearest("FEDPROX", ["fedavg", "FedProx"]) == "FedProx"
    assert nearest("zzz", ["fedavg"]) == ""
    assert nearest(3, []) == ""


def test_an_error_can_end_with_the_nearest_name():
    assert did_you_mean("trian", ["train", "test"]) == '; did you mean "train"?'
    assert did_you_mean("zzz", ["train"]) == ""


def test_an_error_survives_the_way_between_processes():
    error = ConfigError(Path("demo.toml"), [Mistake("a", "is odd", "3")], {"a"})
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "1 mistake in demo.toml:\n  a = 3: is odd (given by --set)"
    assert again.mistakes == error.mistakes
