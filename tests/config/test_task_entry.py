import pytest

from polyclinic.config import ConfigError, Task, read_task, to_toml
from tests.config.example import FUNDUS, OCTA, load, mistakes

METHOD = 'method = "fedavg"\n'
WHOLE = """
[task]
name = "vessels"
channels = 5
classes = ["background", "artery", "vein"]
regions = { vessels = ["artery", "vein"], veins = "vein" }
resolution = 64
normalisation = "percentile"
percentiles = [1, 99]
"""


def task_in(folder, text, *overrides):
    return load(folder, METHOD + text, *overrides).task.built


def test_a_task_may_be_written_out_in_the_study(tmp_path):
    task = task_in(tmp_path, WHOLE)

    assert task.regions == {"vessels": (1, 2), "veins": (2,)}
    assert (task.channels, task.percentiles) == (5, (1.0, 99.0))


def test_a_task_may_be_a_file_with_changes_beside_it(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "vessels.task.toml").write_text('classes = ["background", "vessel"]\n')
    task = task_in(tmp_path, '[task]\nfile = "tasks/vessels.task.toml"\nresolution = 128\n')

    assert (task.name, task.resolution, task.classes[1]) == ("vessels", 128, "vessel")
    assert task_in(tmp_path, 'task = "tasks/vessels.task.toml"\n') == task.with_resolution(384)


def test_a_named_task_may_be_changed(tmp_path):
    task = task_in(tmp_path, 'task = { name = "octa", fit = "pad", dark = 0.1 }\n')

    assert task == OCTA.changed(fit="pad", dark=0.1)


def test_what_has_no_effect_any_more_does_not_come_along(tmp_path):
    (tmp_path / "a.task.toml").write_text(
        'classes = ["background", "a"]\nnormalisation = "window"\nwindow = [0, 9]\n'
    )
    task = task_in(tmp_path, '[task]\nfile = "a.task.toml"\nnormalisation = "minmax"\n')

    assert "window" not in task.settings


@pytest.mark.parametrize("text", [WHOLE, 'task = "fundus"\n'])
def test_the_printed_study_holds_the_whole_task(tmp_path, text):
    study = load(tmp_path, METHOD + text)
    again = load(tmp_path, to_toml(study))

    assert again == study
    assert "classes = [" in to_toml(study)


def test_a_task_with_classes_is_whole_whatever_else_has_its_name(tmp_path):
    task = task_in(tmp_path, '[task]\nname = "fundus"\nclasses = ["background", "disc"]\n')

    assert task.channels == 1
    assert task != FUNDUS


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("task.resolution = 64\n", "task.name", "is required, or classes, or file"),
        ('task = "fundsu"\n', "task.name", "one of your own needs its classes"),
        ('task.classes = ["background"]\n', "task.classes", "2 to 255 names"),
        ("[task]\nfile = 3\n", "task.file", "must be a path"),
        ('[task]\nfile = "none.task.toml"\n', "task.file", "cannot be read: no such file"),
        (WHOLE.replace('"vein" }', '"vain" }'), "task.regions", 'did you mean "vein"?'),
        (WHOLE.replace("[1, 99]", "[99, 1]"), "task.percentiles", "the lower one first"),
        (WHOLE + "window = [0, 1]\n", "task.window", "has no effect with normalisation"),
        (WHOLE + "tile = 128\n", "task.tile", "must be at most the resolution, 64"),
        (WHOLE + "tile = 20\n", "task.tile", "must be a multiple of 16"),
        (WHOLE + "chanels = 3\n", "task.chanels", "did you mean channels?"),
        (WHOLE.replace("5", "17", 1), "task.channels", "must be at most 16"),
        ('task = ["fundus"]\n', "task", "must be the name of a task or a table"),
    ],
)
def test_every_mistake_is_told_at_its_key(tmp_path, text, key, words):
    assert words in mistakes(tmp_path, METHOD + text)[key]


def test_mistakes_of_a_file_stand_beside_those_of_the_study(tmp_path):
    (tmp_path / "a.task.toml").write_text('classes = ["background", "a"]\nfit = "padd"\n')
    told = mistakes(
        tmp_path, 'method = "fedavgg"\n[task]\nfile = "a.task.toml"\n[federation]\nrounds = 0\n'
    )

    assert set(told) == {"a.task.toml: fit", "method.fedavgg.name", "federation.rounds"}
    assert "did you mean pad?" in told["a.task.toml: fit"]


def test_a_file_read_alone_tells_all_its_mistakes(tmp_path):
    file = tmp_path / "a.task.toml"
    file.write_text('name = "a"\nclases = ["background", "a"]\ntile = -1\n')
    with pytest.raises(ConfigError) as caught:
        read_task(file)

    assert {mistake.key for mistake in caught.value.mistakes} == {"clases", "classes", "tile"}


def test_an_override_of_a_task_is_checked_like_the_file(tmp_path):
    assert task_in(tmp_path, WHOLE, "task.resolution=128").resolution == 128
    with pytest.raises(ConfigError, match=r"task\.fit.*given by --set"):
        task_in(tmp_path, WHOLE, "task.fit=no")


def test_changes_are_checked_too():
    with pytest.raises(ValueError, match="fit"):
        OCTA.changed(fit="no")
    assert isinstance(OCTA.changed(fit="crop"), Task)
