import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import ConfigError, load_study, to_toml
from polyclinic.data.errors import DataError
from polyclinic.engine.run import runs_of

HEAD = """
task = "octa"
method = ["fedavg", "ditto"]
seeds = [3, 4]
[sweep]
"""


@pytest.fixture
def read(tmp_path):
    def load(text, *overrides):
        file = tmp_path / "swept.toml"
        file.write_text(HEAD + text)
        return load_study(file, overrides, BUILT_IN)

    return load


def names(study, root):
    return [run.name for run in runs_of(study, root)]


def test_every_combination_is_a_run_and_a_method_without_the_setting_runs_once(read, tmp_path):
    study = read('"federation.rounds" = [5, 9]\n"method.pull" = [0, 0.5]\n', "seeds=[3]")
    assert names(study, tmp_path) == [
        "FedAvg (rounds=5) seed 3",
        "Ditto (rounds=5, pull=0) seed 3",
        "Ditto (rounds=5, pull=0.5) seed 3",
        "FedAvg (rounds=9) seed 3",
        "Ditto (rounds=9, pull=0) seed 3",
        "Ditto (rounds=9, pull=0.5) seed 3",
    ]
    run = runs_of(study, tmp_path)[2]
    assert run.folder.path == tmp_path / "swept" / "ditto-rounds-5-pull-0.5" / "seed-3"
    assert run.choice.built.pull == 0.5
    assert run.study.federation.rounds == 5
    assert run.choice.swept == {"federation.rounds": 5, "method.pull": 0.5}


def test_a_runs_settings_do_not_tell_of_other_values_of_the_sweep(read, tmp_path):
    before = runs_of(read('"training.iterations" = [5]\n'), tmp_path)
    after = runs_of(read('"training.iterations" = [2, 5, 7]\n', "seeds=[3, 4, 5]"), tmp_path)
    texts = {run.folder.path: to_toml(run.study) for run in after}
    assert {run.folder.path: to_toml(run.study) for run in before}.items() <= texts.items()
    assert len(texts) == 18


def test_a_sweep_is_printed_and_read_again(read, tmp_path):
    study = read('"training.learning_rate" = [1e-3, 0.1]\ntraining.batch = [2]\n')
    file = tmp_path / "printed.toml"
    file.write_text(to_toml(study))
    assert study.sweep == {"training.learning_rate": (0.001, 0.1), "training.batch": (2,)}
    assert load_study(file, [], BUILT_IN) == study


def test_a_sweep_can_be_given_on_the_command_line(read, tmp_path):
    study = read("", "seeds=[0]", "sweep.method.ditto.pull=[0.1, 1]")
    assert names(study, tmp_path) == [
        "FedAvg seed 0",
        "Ditto (pull=0.1) seed 0",
        "Ditto (pull=1) seed 0",
    ]


def test_folds_are_a_dimension_of_the_grid_and_one_can_be_picked(read, tmp_path):
    study = read("", "data.folds=2", "method=fedavg", "seeds=[0, 1]")
    assert names(study, tmp_path) == [f"FedAvg seed {s} fold {f}" for s in (0, 1) for f in (0, 1)]
    runs = runs_of(study, tmp_path)
    assert [run.folder.path.name for run in runs][:2] == ["seed-0-fold-0", "seed-0-fold-1"]
    assert [run.study.data.fold for run in runs] == [0, 1, 0, 1]
    alone = read("", "data.folds=2", "data.fold=1", "method=fedavg", "seeds=[0]")
    assert names(alone, tmp_path) == ["FedAvg seed 0 fold 1"]


def test_each_site_is_left_out_in_turn_beside_the_runs_with_all(read, tmp_path):
    study = read("", "data.leave_out=each", "data.only=['grove', 'inlet']", "method=fedavg")
    runs = runs_of(study, tmp_path)
    assert [run.name for run in runs] == [
        f"FedAvg seed {seed}{without}"
        for seed in (3, 4)
        for without in ("", " without grove", " without inlet")
    ]
    assert [run.folder.path.name for run in runs][:2] == ["seed-3", "seed-3-without-grove"]
    assert [run.left_out for run in runs][:3] == [None, "grove", "inlet"]
    whole = runs_of(read("", "data.only=['grove', 'inlet']", "method=fedavg"), tmp_path)[0]
    assert to_toml(whole.study) == to_toml(runs[0].study)  # so a finished study can gain them
    (alone,) = runs_of(read("", "data.leave_out=grove", "method=fedavg", "seeds=[0]"), tmp_path)
    assert alone.name == "FedAvg seed 0 without grove"
    with pytest.raises(DataError, match='no site "groove" takes part; did you mean "grove"'):
        runs_of(read("", "data.leave_out=groove", "method=fedavg"), tmp_path)


def test_all_mistakes_of_a_sweep_are_told_with_the_nearest_right_name(read):
    with pytest.raises(ConfigError) as error:
        read(
            '"federation.roundz" = [1]\n"training.iterations" = [5, 0]\n"method.pul" = [1]\n'
            '"training.batch" = 4\n"method.pull" = [0.5, 0.5]\nseeds = [1]\n'
            '"data.fold" = [0]\n[training]\nloss = "dize"\n'
        )
    told = {mistake.key: mistake for mistake in error.value.mistakes}
    assert told.keys() == {
        *(f"sweep.{key}" for key in ("federation.roundz", "training.iterations", "method.pul")),
        *(f"sweep.{key}" for key in ("training.batch", "method.pull", "seeds", "data.fold")),
        "training.loss",
    }
    assert told["sweep.federation.roundz"].meant == "rounds"
    assert told["sweep.method.pul"].meant == "pull"
    assert told["sweep.training.iterations"].value == "0"


def test_values_that_would_share_a_folder_are_refused(read):
    with pytest.raises(ConfigError, match="would have the same folder as FedAvg"):
        read("", "sweep.data.only=[['a-b'], ['a b']]")


def test_what_is_no_table_is_refused(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('task = "octa"\nmethod = "fedavg"\nsweep = 3\n')
    with pytest.raises(ConfigError, match="sweep = 3: must be a table"):
        load_study(file, [], BUILT_IN)
