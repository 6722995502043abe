"""Studies that grow: what was run before is neither run again nor refused."""

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.run import runs_of
from polyclinic.runs import RunError
from tests.federations import run_locally

STUDY = """
name = "grown"
task = {{ name = "octa", resolution = 32 }}
{head}
[data]
size = 0.1
only = ["fjord", "grove"]
[network]
name = "unet"
width = 2
[training]
batch = 2
iterations = 1
[federation]
rounds = 1
[evaluation]
pictures = false
"""


@pytest.fixture
def run(tmp_path):
    def do(head, *overrides, resume=True):
        file = tmp_path / "study.toml"
        file.write_text(STUDY.format(head=head))
        study = load_study(file, overrides, BUILT_IN)
        worked = set()
        root = tmp_path / "runs"
        run_locally(study, root, resume=resume, watch=lambda run, _: worked.add(run.name))
        assert all(run.folder.finished for run in runs_of(study, root))
        return worked, runs_of(study, root)

    return do


def test_a_study_that_gains_values_seeds_and_methods_runs_only_what_is_new(run):
    run("method = 'fedprox'", "sweep.training.batch=[1]")
    worked, _ = run("method = 'fedprox'", "sweep.training.batch=[1, 2]")
    assert worked == {"FedProx (batch=2) seed 0"}
    worked, runs = run("method = ['fedprox', 'local']\nseeds = [0]", "sweep.training.batch=[1, 2]")
    assert worked == {"Local (batch=1) seed 0", "Local (batch=2) seed 0"}
    assert runs[0].folder.about().swept == {"training.batch": 1}
    with pytest.raises(RunError, match=r"training.batch was 1, is 2"):
        run(
            "method = {name = 'fedprox', title = 'FedProx (batch=1)'}",
            "training.batch=2",
        )


def test_a_run_whose_title_changed_with_its_neighbours_is_found_again(run, tmp_path):
    run("method = 'fedprox'")
    weights = (tmp_path / "runs/grown/fedprox/seed-0/weights/server.safetensors").read_bytes()
    worked, (first, second) = run("method = ['fedprox', {name = 'fedprox', pull = 0.5}]")
    assert worked == {"FedProx (pull=0.5) seed 0"}
    assert first.folder.about().method == first.choice.title != "FedProx"
    assert first.folder.weights_path("server").read_bytes() == weights
    assert second.folder.about().method == second.choice.title
    assert not (tmp_path / "runs/grown/fedprox/seed-0").exists()


def test_folds_are_runs_that_say_their_fold_and_test_on_other_cases(run):
    _, runs = run("method = 'local'", "data.folds=2", "data.given=recut", resume=False)
    assert [each.folder.about().fold for each in runs] == [0, 1]
    tested = [{(s.site, s.case) for s in each.folder.scores("test")} for each in runs]
    assert tested[0]
    assert not tested[0] & tested[1]
