"""A study whose network starts from a file of weights."""

import hashlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from polyclinic.api.progress import watching
from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.data.errors import DataError
from polyclinic.engine.local import assign, load_data
from polyclinic.engine.pretraining import learned
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.study import refuse_unsuitable
from polyclinic.networks.pretrained import PretrainedError
from polyclinic.networks.unet import UNet
from tests.federations import run_locally

DEVICE = torch.device("cpu")
STUDY = """
name = "started"
task = { name = "octa", resolution = 32 }
method = "fedavg"
[data]
size = 0.1
[network]
name = "unet"
width = 2
pretrained = "start.safetensors"
[training]
batch = 4
iterations = 1
[federation]
rounds = 1
[engine]
threads = 1
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "started.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def tensors(tmp_path):
    torch.manual_seed(5)
    made = {name: each.contiguous() for name, each in net().state_dict().items()}
    save_file(made, tmp_path / "start.safetensors")
    return made


def net():
    return UNet(channels=1, classes=2, width=2)


@pytest.mark.parametrize("method", ["fedavg", "fedrep"])
def test_shared_and_private_weights_start_from_the_file(study, tensors, tmp_path, method):
    settings = load_study(study, [f"method={method}"], BUILT_IN)
    (run,) = runs_of(settings, tmp_path)
    runner = SiteRunner(assign(run, load_data(settings, None, splits_folder=None)), DEVICE)
    assert set(runner.initial) == set(tensors)
    assert all(torch.equal(runner.initial[name], tensors[name]) for name in tensors)


def test_without_a_file_the_seed_alone_decides(study, tensors, tmp_path):
    text = study.read_text().replace('pretrained = "start.safetensors"', "")
    study.write_text(text)
    settings = load_study(study, [], BUILT_IN)
    (run,) = runs_of(settings, tmp_path)
    runner = SiteRunner(assign(run, load_data(settings, None, splits_folder=None)), DEVICE)
    assert runner.pretrained == ""
    assert not all(torch.equal(runner.initial[name], tensors[name]) for name in tensors)


def test_the_run_and_the_terminal_tell_once_what_was_taken_up(study, tensors, tmp_path, capsys):
    settings = load_study(study, ["seeds=[0, 1]"], BUILT_IN)
    with watching(settings, tmp_path / "runs") as watch:
        done = run_locally(settings, tmp_path / "runs", watch=watch)
    expected = f"start.safetensors: {len(tensors)} of {len(tensors)} tensors of the network"
    assert [run.folder.about().pretrained for run in done] == [expected] * 2
    digest = hashlib.sha256((tmp_path / "start.safetensors").read_bytes()).hexdigest()
    assert [run.folder.about().start for run in done] == [f"sha256-{digest}"] * 2
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"starts from {expected}") == 2


def test_a_file_that_does_not_fit_stops_the_study_before_it_begins(study, tmp_path):
    save_file({"nothing": torch.ones(1)}, tmp_path / "start.safetensors")
    settings = load_study(study, [], BUILT_IN)
    with pytest.raises(PretrainedError, match="fits network 'unet'"):
        run_locally(settings, tmp_path / "runs", watch=lambda run, event: None)
    assert not runs_of(settings, tmp_path / "runs")[0].folder.exists


def assigned(study, tmp_path, *overrides):
    text = study.read_text().replace('pretrained = "start.safetensors"', "")
    study.write_text(text)
    overrides = ("training.pretrain=synthetic", "training.pretrain_steps=2", *overrides)
    settings = load_study(study, overrides, BUILT_IN)
    (run,) = runs_of(settings, tmp_path)
    return assign(run, load_data(settings, None, splits_folder=None))


def drawn(study, tmp_path, *overrides):
    return SiteRunner(assigned(study, tmp_path, *overrides), DEVICE)


def test_a_network_first_learns_from_drawn_images(study, tmp_path):
    fedavg, fedper = (drawn(study, tmp_path, f"method={name}") for name in ("fedavg", "fedper"))
    later = drawn(study, tmp_path, "training.pretrain_steps=3")
    assert fedavg.pretrained == "2 steps on synthetic octa images"
    assert equal(fedavg.initial, fedper.initial), "every method starts alike"
    assert not equal(fedavg.initial, later.initial), "and from what was learned"


@pytest.mark.parametrize("changed", [{"name": "prostate"}, {"normalisation": "standard"}])
def test_what_was_learned_of_one_task_is_no_start_for_another(study, tmp_path, changed):
    octa = drawn(study, tmp_path)
    task = octa.assignment.task.changed(**changed)
    other = SiteRunner(replace(octa.assignment, task=task), DEVICE)
    assert not equal(octa.initial, other.initial)


def test_whether_methods_suit_is_found_out_before_anything_is_learned(study, tmp_path):
    fitting = assigned(study, tmp_path, "seeds=[4]")
    before = learned.cache_info().misses
    refuse_unsuitable({"FedAvg": fitting})
    assert learned.cache_info().misses == before
    SiteRunner(fitting, DEVICE)
    assert learned.cache_info().misses == before + 1


def test_a_task_without_drawn_images_cannot_start_from_them(study, tmp_path):
    runner = drawn(study, tmp_path)
    kidney = runner.assignment.task.changed(name="kidney")
    other = replace(runner.assignment, task=kidney, seed=1)
    with pytest.raises(DataError, match='no synthetic federation for "kidney"'):
        SiteRunner(other, DEVICE)


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)
