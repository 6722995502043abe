import pickle

import pytest

from polyclinic.data.errors import DataError
from polyclinic.data.tasks import TASKS, task_called


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
