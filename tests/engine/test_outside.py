import json
from dataclasses import dataclass, replace

import pytest
import torch
from demo.drawn_sites import write_drawn_site

from polyclinic.catalog import installed
from polyclinic.config import load_study, to_toml
from polyclinic.data.synthetic import federation as drawn_sites
from polyclinic.engine.run import runs_of
from polyclinic.engine.tensors import load_tensors
from polyclinic.engine.unseen import finished_run
from polyclinic.federation.weights import Weights
from polyclinic.methods.fedavg import FedAvg
from polyclinic.runs import RunFolder
from tests.federations import equal, run_locally
from tests.outside import CODE, IN_FILE, NAMES, study_text
from tests.small_unet import TABLES, SmallUNet

TWO = "engine.workers=2"
TWO_SITES = '[[site]]\nname = "fjord"\n[[site]]\nname = "grove"\n'


@dataclass(frozen=True)
class Slow(FedAvg):
    """Known to this test only."""

    pace: float = 0.5

    def combine(self, server, replies):
        before = server.weights
        super().combine(server, replies)
        way = server.weights.flat - before.flat
        server.weights = Weights(before.layout, before.flat + self.pace * way)


def silent(run, event):
    pass


def finished(study, root) -> RunFolder:
    (run,) = run_locally(study, root, watch=silent)
    return run.folder


def weights(folder: RunFolder, owner: str = "server") -> dict[str, torch.Tensor]:
    return load_tensors(folder.weights_path(owner))[0]


@pytest.fixture
def sites(tmp_path):
    """Two folders of drawn sites whose site.toml names the task from outside."""
    names = [site.name for site in drawn_sites("octa")[:2]]
    for name in names:
        folder = write_drawn_site(tmp_path / "data" / name, "octa", name, resolution=32, size=0.2)
        (folder / "site.toml").write_text(f'name = "{name}"\ntask = "fovea"\n')
    return names


@pytest.fixture
def of_this_test(federation, tmp_path):
    """A function that runs a method that only this test has."""
    small = federation(rounds=2, **{"data.size": 0.1, "evaluation.metrics": '["dice"]'})
    tables = replace(TABLES, method={"slow": Slow})
    file = tmp_path / "small.toml"
    file.write_text(
        f'task = "octa"\nmethod = "slow"\n[network]\nname = "{SmallUNet.name}"\n{TWO_SITES}'
    )

    def run(*overrides):
        study = load_study(file, [*small.base, *overrides], tables)
        return weights(finished(study, tmp_path / "-".join(("runs", *overrides))))

    return run


def test_a_method_that_only_a_test_has_runs_with_its_settings(of_this_test):
    assert not equal(of_this_test(), of_this_test("method.pace=0.25"))


@pytest.mark.usefixtures("package", "sites")
def test_a_study_made_of_a_package_runs_is_scored_and_loads_again(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(study_text(NAMES))
    study = load_study(file, [], installed())
    folder = finished(study, tmp_path / "runs")
    assert {score.metric for score in folder.scores("test")} == {"dice", "area"}
    assert {line.stage for line in folder.rounds()} == {"fit", "finalize", "rest"}
    about = json.loads((folder.path / "about.json").read_text())
    assert (about["task"]["name"], about["network"]) == ("fovea", "tiny")
    assert about["versions"]["fed-mine"] == "1.2"
    assert finished_run(folder, installed()).study == runs_of(study, tmp_path)[0].study
    plain = finished(load_study(file, ["training.loss=ce"], installed()), tmp_path / "other")
    assert not equal(weights(folder), weights(plain)), "the loss is the package's own"


@pytest.mark.slow
def test_a_study_made_of_a_file_runs_in_other_processes_too(tmp_path, sites, forgotten):
    (tmp_path / "mine.py").write_text(CODE)
    file = tmp_path / "study.toml"
    file.write_text(study_text(IN_FILE))
    study = load_study(file, [], installed())
    alone = finished(study, tmp_path / "runs")
    workers = load_study(file, [TWO], installed())
    together = finished(workers, tmp_path / "two")
    assert equal(weights(alone), weights(together))
    assert alone.scores() == together.scores()
    assert all(score.metric in ("dice", f"{tmp_path}/mine.py:AREA") for score in alone.scores())
    assert (
        to_toml(finished_run(alone, installed()).study) == (alone.path / "study.toml").read_text()
    )
