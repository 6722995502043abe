import pytest
from pydantic import ValidationError

from polyclinic.config import DataSettings, TrainingSettings
from tests.config.example import SMALLEST, load, mistakes

WRONG = [
    ("training", "optimizer", '"adm"', "did you mean adam? Allowed: adam, adamw, sgd"),
    ("training", "learning_rate", "0", "must be above 0"),
    ("training", "learning_rate", "inf", "must be a finite number"),
    ("training", "weight_decay", "-0.1", "must be at least 0"),
    ("training", "batch", "0", "must be at least 1"),
    ("training", "batch", "1.5", "must be a whole number"),
    ("training", "batch", "true", "must be a whole number"),
    ("training", "batch", '"4"', "must be a whole number"),
    ("training", "clip_norm", '"x"', "must be a number"),
    ("training", "keep_optimizer", "1", "must be true or false"),
    ("training", "augmentation", "3", "must be a table"),
    ("training", "loss", '"ce + dice"', "did you mean ce+dice?"),
    ("federation", "participation", "0.0", "must be above 0"),
    ("federation", "participation", "1.01", "must be at most 1"),
    ("federation", "rounds", "0", "must be at least 1"),
    ("data", "split", "[0.7, 0.3]", "must be three shares: train, val, test"),
    ("data", "split", "[0.7, 0.1, 0.1]", "must sum to 1 (train, val, test), not 0.9"),
    ("data", "split", "[0, 0.5, 0.5]", "leaves nothing to train on"),
    ("data", "split", "0.7", "must be a list"),
    ("data", "folds", "1", "must be 0 (off) or at least 2"),
    ("data", "fold", "1", "has no effect with folds = 0"),
    ("data", "source", '""', "must not be empty"),
    ("data", "size", "nan", "must be"),
    ("evaluation", "metrics", "[]", "must not be empty"),
    ("evaluation", "metrics", '["dice", "dice"]', "has dice more than once"),
    ("evaluation", "every", "-1", "must be at least 0"),
    ("engine", "device", '"gpu"', "must be auto, cpu, mps, cuda or xpu"),
]


@pytest.mark.parametrize(("section", "key", "value", "told"), WRONG)
def test_a_wrong_value_is_told_in_plain_words(tmp_path, section, key, value, told):
    found = mistakes(tmp_path, f"{SMALLEST}[{section}]\n{key} = {value}\n")
    assert list(found) == [f"{section}.{key}"]
    assert f"{section}.{key} = {value.split(' ')[0][:3]}" in found[f"{section}.{key}"]
    assert told in found[f"{section}.{key}"]


@pytest.mark.parametrize(
    ("setting", "needs"),
    [
        ('training.optimizer = "adam"\ntraining.momentum = 0.9', 'it needs optimizer = "sgd"'),
        ('training.schedule = "cosine"\ntraining.power = 0.9', 'it needs schedule = "poly"'),
        ('training.schedule = "constant"\ntraining.power = 0.9', 'it needs schedule = "poly"'),
        ('data.source = "sites"\ndata.size = 1.0', 'it needs source = "synthetic"'),
        ('data.source = "sites"\ndata.federation = "agreeing"', 'it needs source = "synthetic"'),
    ],
)
def test_a_setting_without_effect_is_refused(tmp_path, setting, needs):
    (line,) = mistakes(tmp_path, f"{SMALLEST}{setting}\n").values()
    assert "has no effect with" in line
    assert needs in line


def test_a_setting_with_effect_is_accepted_beside_others_that_default(tmp_path):
    assert load(tmp_path, SMALLEST, "training.power=2").training.power == 2
    study = load(tmp_path, SMALLEST, "training.optimizer=sgd", "training.momentum=0.5")
    assert study.training.momentum == 0.5


def test_iterations_and_epochs_exclude_each_other(tmp_path):
    found = mistakes(tmp_path, f"{SMALLEST}training.epochs = 2\ntraining.iterations = 3\n")
    assert list(found) == ["training.iterations"]
    assert "exactly one of the two" in found["training.iterations"]
    assert TrainingSettings(epochs=2).iterations is None
    assert TrainingSettings(iterations=3).epochs is None


@pytest.mark.parametrize(("fold", "right"), [(0, True), (4, True), (5, False)])
def test_the_test_fold_is_one_of_the_folds(fold, right):
    if right:
        assert DataSettings(folds=5, fold=fold).fold == fold
    else:
        with pytest.raises(ValidationError, match="one of 0 to 4"):
            DataSettings(folds=5, fold=fold)


@pytest.mark.parametrize(
    ("seeds", "told"),
    [("[]", "must not be empty"), ("[1, 2, 1]", "has 1 more than once"), ("3", "must be a list")],
)
def test_seeds_are_different_and_there_is_one(tmp_path, seeds, told):
    found = mistakes(tmp_path, f"{SMALLEST}seeds = {seeds}\n")
    assert list(found) == ["seeds"]
    assert told in found["seeds"]


def test_one_wrong_seed_of_several_is_pointed_at(tmp_path):
    found = mistakes(tmp_path, f"{SMALLEST}seeds = [1, -2]\n")
    assert list(found) == ["seeds#2"]
    assert "seeds#2 = -2: must be at least 0" in found["seeds#2"]


@pytest.mark.parametrize("name", ["", "--", " a", ".hidden", "a/b", "a\\b", "a:b", "..", "a\nb"])
def test_a_name_that_cannot_name_a_folder_is_refused(tmp_path, name):
    text = SMALLEST + f"[[site]]\nname = {name!r}\n".replace("'", '"')
    assert len(mistakes(tmp_path, text)) == 1
    assert list(mistakes(tmp_path, SMALLEST, f'name = "{name}"')) == ["name"]


def test_labels_are_masks_or_a_kind_of_the_table(tmp_path):
    text = SMALLEST + '[[site]]\nname = "a"\nlabels = "scribbel"\n'
    (line,) = mistakes(tmp_path, text).values()
    assert 'site.a.labels = "scribbel": there is no such kind' in line
    assert "did you mean scribble? Allowed: mask, point, scribble, block, box" in line


def test_metrics_are_of_the_table(tmp_path):
    found = mistakes(tmp_path, SMALLEST + 'evaluation.metrics = ["dice", "hd59"]\n')
    assert list(found) == ["evaluation.metrics#2"]
    assert "no such metric; did you mean hd95?" in found["evaluation.metrics#2"]


def test_a_date_is_shown_as_text(tmp_path):
    (line,) = mistakes(tmp_path, SMALLEST + "training.batch = 2001-01-01\n").values()
    assert 'training.batch = "2001-01-01": must be a whole number' in line


def test_a_site_needs_a_name(tmp_path):
    found = mistakes(tmp_path, SMALLEST + '[[site]]\nlabels = "box"\n[[site]]\nname = "a"\n')
    assert found == {"site#1.name": "  site#1.name: is required"}


def test_a_resolution_that_networks_cannot_halve_is_refused_with_the_rest(tmp_path):
    text = 'method = "fedavg"\n[task]\nname = "octa"\nresolution = 40\n[training]\nbach = 2\n'
    found = mistakes(tmp_path, text)
    assert {"task.resolution", "training.bach"} <= set(found)
    assert "16" in found["task.resolution"]
