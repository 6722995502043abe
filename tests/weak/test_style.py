from types import SimpleNamespace

import numpy as np
import pytest

from polyclinic.data.tasks import TASKS
from polyclinic.weak.style import PLAIN, STYLES, foreground, present, style_of


def test_every_task_has_a_style_and_the_tasks_regions_agree_with_it():
    assert STYLES.keys() == TASKS.keys()
    for task in TASKS.values():
        for number in range(1, len(task.classes)):
            assert style_of(task).outline(number) == style_of(task.name).outline(number)


def test_outlines_are_the_smallest_regions_that_hold_a_class():
    regions = {"all": (1, 2, 3), "inner": (2, 3), "core": (3,)}
    style = style_of(SimpleNamespace(name="nested", regions=regions))

    assert [style.outline(number) for number in (1, 2, 3, 4)] == [(1, 2, 3), (2, 3), (3,), (4,)]


def test_no_task_has_the_plain_style():
    assert style_of(None) == PLAIN


@pytest.mark.parametrize("numbers", [(0,), (1, 255), (0, 2, 7)])
def test_present_are_all_classes_and_foreground_those_of_objects(numbers):
    mask = np.array([numbers], np.uint8)

    assert present(mask) == [number for number in numbers if number != 255]
    assert foreground(mask) == [number for number in numbers if number not in (0, 255)]
