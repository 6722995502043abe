import sys
import tomllib
from dataclasses import dataclass

import pytest

import polyclinic as pc
from polyclinic.catalog import installed
from polyclinic.config import ConfigError, load_study, to_toml
from polyclinic.evaluation import METRICS
from polyclinic.methods.fedprox import FedProx
from polyclinic.methods.finetune import FineTune
from tests.api.small import SMALL, Pulled
from tests.outside import CODE

FILE = """
name = "study"
task = { name = "octa", resolution = 32 }
network = { name = "unet", width = 2 }
method = ["fedavg", { name = "fedprox", pull = 0.1, then = ["finetune"] }]
seeds = [0, 1]
[training]
batch = 4
"""


def test_a_study_written_in_python_equals_the_one_in_a_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(FILE)
    study = pc.Study(
        task={"name": "octa", "resolution": 32},
        network={"name": "unet", "width": 2},
        method=["fedavg", {"name": "fedprox", "pull": 0.1, "then": ["finetune"]}],
        seeds=(0, 1),
        training={"batch": 4},
    )
    assert study.to_toml() == to_toml(load_study(file, [], installed()))
    assert pc.Study.from_file(file).settings == study.settings
    changed = pc.Study.from_file(file, ["training.batch=7"])
    assert changed.settings.training.batch == 7


def test_mistakes_are_those_of_a_file_and_told_at_once(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('name = "study"\ntsk = "octa"\nmethod = "fedawg"\n[training]\nbach = 4\n')
    with pytest.raises(ConfigError) as in_file:
        load_study(file, [], installed())
    with pytest.raises(pc.ConfigError) as in_python:
        pc.Study(tsk="octa", method="fedawg", training={"bach": 4})
    assert in_python.value.mistakes == in_file.value.mistakes
    assert len(in_python.value.mistakes) == 4
    assert str(in_python.value).startswith("4 mistakes in pc.Study(…):")


def test_paths_are_relative_to_where_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = pc.Study(task="octa", method="fedavg", data={"source": "clinics"})
    assert study.settings.data.folder == tmp_path / "clinics"
    same = pc.Study(task="octa", method="fedavg", data={"source": tmp_path / "clinics"})
    assert same.settings == study.settings


def test_an_instance_stands_for_a_method_with_its_settings():
    study = pc.Study(**SMALL, method=[Pulled(mu=0.1), "fedavg", FedProx(pull=0.3)])
    own, _, prox = study.settings.method
    assert own.built == Pulled(mu=0.1)
    assert (own.title, own.name) == ("Pulled", "Pulled")
    assert (prox.name, prox.built) == ("fedprox", FedProx(pull=0.3))
    written = tomllib.loads(study.to_toml())["method"]
    assert written[0] == {
        "name": "Pulled",
        "title": "Pulled",
        "mu": 0.1,
        "layers": [1, 2],
        "then": [],
    }


def test_a_class_stands_for_its_name_also_in_a_table():
    step = FineTune(iterations=7)
    entry = {"name": Pulled, "mu": 0.2, "title": "ours", "then": [step]}
    study = pc.Study(**SMALL, method=[entry, Pulled])
    assert [choice.built for choice in study.settings.method] == [Pulled(mu=0.2), Pulled()]
    (choice, _) = study.settings.method
    assert (choice.title, choice.then[0].built) == ("ours", step)


def test_settings_of_an_instance_are_checked_like_those_of_a_file():
    with pytest.raises(ConfigError, match=r'method\.Pulled\.mu = "far": must be a number'):
        pc.Study(**SMALL, method=[Pulled(mu="far")])


def test_a_setting_that_a_file_could_not_hold_is_refused_and_not_lost():
    @dataclass(frozen=True)
    class Bounded(pc.Method):
        bound: float | None = 1.0

    with pytest.raises(ConfigError, match=r"method\.Bounded: has a setting"):
        pc.Study(**SMALL, method=[Bounded(bound=None)])
    assert pc.Study(**SMALL, method=[Bounded(bound=2.0)]).settings.method[0].built.bound == 2.0


def test_what_is_no_method_is_refused_with_what_it_must_be():
    with pytest.raises(ConfigError) as told:
        pc.Study(**SMALL, method=[int, 3])
    assert "it is a class and must be a dataclass derived from" in str(told.value)
    assert "method#2 = 3: must be the name of a method" in str(told.value)


def test_networks_losses_and_metrics_of_a_script_take_part():
    from polyclinic.losses import LOSSES
    from polyclinic.networks.unet import UNet

    class Wide(UNet):
        def __init__(self, *, channels: int, classes: int, width: int = 3) -> None:
            super().__init__(channels=channels, classes=classes, width=width)

    def doubled(logits, labels):
        return 2 * LOSSES["ce"](logits, labels)

    twice = METRICS["dice"].__class__(
        lambda pair: 2.0, "Twice", "always two", "higher", "", METRICS["dice"].empty
    )
    study = pc.Study(
        task={"name": "octa", "resolution": 32},
        method=pc.Method,
        network={"name": Wide, "width": 5},
        training={"loss": doubled},
        evaluation={"metrics": ["dice", twice]},
    ).settings
    assert study.network.built(channels=1, classes=2).encoder is not None
    assert study.network.settings == {"width": 5}
    assert study.loss.built is doubled
    assert [metric.built for metric in study.metric] == [METRICS["dice"], twice]


def test_two_things_of_one_name_are_refused():
    def another():
        @dataclass(frozen=True)
        class Pulled(pc.Method):
            mu: float = 0.0

        return Pulled

    with pytest.raises(ValueError, match="two things in the study are called Pulled"):
        pc.Study(**SMALL, method=[Pulled, another()])


def test_a_class_from_a_file_gets_a_name_that_other_processes_understand(
    tmp_path, monkeypatch, forgotten
):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    from mine import FedMine

    study = pc.Study(**SMALL, method=[FedMine(pace=0.25)])
    assert study.settings.method[0].name == f"{tmp_path / 'mine.py'}:FedMine"
    file = tmp_path / "again.toml"
    file.write_text(study.to_toml())
    del sys.modules["mine"]
    again = load_study(file, [], installed())
    assert again.method[0].settings == {"pace": 0.25}


def test_what_only_this_process_knows_needs_one_worker():
    @dataclass(frozen=True)
    class Local(pc.Method):
        pass

    with pytest.raises(ConfigError, match=r"engine\.workers: Local is defined here"):
        pc.Study(task="octa", method=[Local], engine={"workers": 2})
    assert pc.Study(task="octa", method=[Pulled], engine={"workers": 2}).settings.method


def test_a_study_says_what_it_is():
    shown = repr(pc.Study(**SMALL, method=["fedavg", Pulled]))
    assert shown == "<Study study: FedAvg, Pulled; octa at 32², rounds: 1, seeds: 1>"
