import pickle

import pytest

from polyclinic.data.errors import DataError
from polyclinic.data.tasks import TASKS, Task, task_called


def test_the_four_tasks_have_the_papers_resolutions_and_channels():
    found = {name: (task.resolution, task.channels) for name, task in TASKS.items()}

    assert found == {
        "fundus": (384, 3),
        "octa": (256, 1),
        "polyp": (384, 3),
        "prostate": (384, 1),
    }


def test_disc_is_rim_and_cup_together():
    task = TASKS["fundus"]

    assert [task.classes[number] for number in task.regions["disc"]] == ["rim", "cup"]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_regions_are_unions_of_known_classes(task):
    for classes in task.regions.values():
        assert set(classes) <= set(range(1, len(task.classes)))


def test_another_resolution_changes_nothing_else():
    task = TASKS["octa"].with_resolution(64)

    assert task.resolution == 64
    assert task.with_resolution(256) == TASKS["octa"]


@pytest.mark.parametrize("resolution", [0, -16])
def test_a_resolution_without_pixels_is_refused(resolution):
    with pytest.raises(ValueError, match="resolution"):
        TASKS["fundus"].with_resolution(resolution)


def test_a_task_goes_to_other_processes_and_into_tables():
    task = TASKS["polyp"]

    assert pickle.loads(pickle.dumps(task)) == task
    assert {task: 1}[task] == 1


def test_an_unknown_task_is_refused_with_the_nearest():
    assert task_called("octa") is TASKS["octa"]
    with pytest.raises(DataError, match=r'no task "fundsu" \(allowed: fundus, .*"fundus"\?'):
        task_called("fundsu")


def test_a_file_is_a_task_called_as_the_file(tmp_path):
    (tmp_path / "vessels.task.toml").write_text('classes = ["background", "vessel"]\n')
    task = task_called("vessels.task.toml", beside=tmp_path)

    assert (task.name, task.regions) == ("vessels", {"vessel": (1,)})


def test_all_mistakes_of_a_file_are_told(tmp_path):
    (tmp_path / "vessels.task.toml").write_text('class = ["background", "vessel"]\nchannels = 17\n')
    with pytest.raises(DataError) as caught:
        task_called("vessels.task.toml", beside=tmp_path)

    assert len(caught.value.mistakes) == 3
    assert any("did you mean classes?" in text for text in caught.value.mistakes)
    with pytest.raises(DataError, match=r"did you mean .*vessels\.task\.toml"):
        task_called("vesels.task.toml", beside=tmp_path)


def test_tasks_differ_by_what_they_mean_not_by_how_images_are_prepared():
    task = TASKS["octa"]

    assert task.unlike(task.changed(resolution=32, normalisation="standard", fit="pad")) == []
    assert task.unlike(task.changed(classes=("background", "vessel"), regions={"faz": (1,)})) == [
        "its classes are background, faz, not background, vessel"
    ]


def test_255_classes_are_the_most():
    names = tuple(f"c{number}" for number in range(255))

    assert len(Task(name="many", classes=names).regions) == 254
    with pytest.raises(ValueError, match="2 to 255 names"):
        Task(name="more", classes=(*names, "one"))
