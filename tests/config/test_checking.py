from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from polyclinic.config.checking import addresses, check, dotted


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Everything(BaseModel):
    size: tuple[int, int] = (1, 1)
    even: Annotated[int, Field(multiple_of=2)] = 2
    code: Annotated[str, Field(pattern="^a+$")] = "a"
    few: Annotated[list[int], Field(min_length=1, max_length=2)] = [1]
    word: Annotated[str, Field(min_length=2, max_length=3)] = "ab"
    below: Annotated[float, Field(lt=1)] = 0
    place: Point | list[Point] | None = None
    levels: dict[str, Point] | None = None
    moment: None = None


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("size", [1], "size = [1]: has too few values"),
        ("size", [1, 2, 3], "size = [1, 2, 3]: must have a length of at most 2"),
        ("even", 3, "even = 3: must be a multiple of 2"),
        ("code", "b", 'code = "b": must look like ^a+$'),
        ("few", [], "few = []: must have a length of at least 1"),
        ("word", "a", 'word = "a": must have at least 2 characters'),
        ("word", "abcd", 'word = "abcd": must have at most 3 characters'),
        ("below", 1, "below = 1: must be below 1"),
        ("place", {"y": 1}, "place.x: is required"),
        ("place", [{"x": 1, "z": 1}], "place#1.z = 1: there is no such setting"),
        ("levels", {"any": {"x": "a"}}, 'levels.any.x = "a": must be a whole number'),
        ("moment", 3, "moment = 3: must be null"),
    ],
)
def test_what_does_not_fit_is_said_in_plain_words(key, value, told):
    mistakes = []
    assert check(Everything, {key: value}, "method.a", mistakes) is None
    assert any(str(mistake).startswith(f"method.a.{told}") for mistake in mistakes)
    assert all("nput" not in mistake.problem for mistake in mistakes)


def test_what_fits_is_returned():
    mistakes = []
    checked = check(Everything, {"place": {"x": 1}, "levels": {"any": {"x": 2}}}, "", mistakes)
    assert mistakes == []
    assert (checked.place, checked.levels) == (Point(1), {"any": Point(2)})


def test_entries_are_called_by_name_and_by_number_when_that_does_not_do():
    entries = [{"name": "a"}, {"name": "b"}, {"name": "a"}, {}, 3, {"name": "x\ny"}]
    assert addresses(entries) == [".a", ".b", ".a#2", "#4", "#5", "#6"]
    assert dotted({"site": entries}, ("site", 2, "labels")) == "site.a#2.labels"
    assert dotted({"site": entries}, ("site", 3, "labels")) == "site#4.labels"
