from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest
from pydantic import Field

from polyclinic.config import describe
from polyclinic.config.callables import parameters, settings_model
from tests.config.example import TABLES, ClassicUNet, FedAvg, FedProx, unet

NOTHING = frozenset()


def scaled(image, /, factor: "Annotated[float, Field(gt=0)]" = 1.0, *more, clip=None, **rest):
    """Scales.

    And more.
    """


class Scaler:
    def __call__(self, factor: int = 3) -> None:
        """Scales by calling."""


class Plain:
    pass


@dataclass(frozen=True)
class Silent:
    amount: int = 1


def test_settings_are_the_parameters_that_have_a_name():
    assert list(parameters(scaled)) == ["factor", "clip"]
    assert list(parameters(unet, frozenset({"channels", "classes"}))) == ["width"]
    assert list(parameters(ClassicUNet)) == ["channels", "classes", "copy"]
    assert list(parameters(FedProx)) == ["mu", "projector", "layers", "strength"]
    assert list(parameters(Scaler())) == ["factor"]
    assert list(parameters(Plain)) == []


@pytest.mark.parametrize(
    ("thing", "given", "wrong"),
    [
        (scaled, {"factor": 2.0}, {"factor": 0}),
        (partial(scaled, clip=2), {"factor": 2.0}, {"factor": -1}),
        (ClassicUNet, {"channels": 1, "classes": 2, "copy": False}, {"copy": 3}),
        (Scaler(), {"factor": 2}, {"factor": "a"}),
        (FedProx, {"mu": 0.5}, {"mu": -0.5}),
        (Plain, {}, {"a": 1}),
    ],
)
def test_settings_of_functions_classes_and_objects_are_checked(thing, given, wrong):
    model = settings_model(thing, NOTHING, {})
    checked = model.model_validate(given).model_dump(by_alias=True)
    assert given.items() <= checked.items()
    with pytest.raises(ValueError, match="validation error"):
        model.model_validate(wrong)


def test_a_setting_must_not_take_the_name_of_a_key_around_it():
    with pytest.raises(TypeError, match="must not call a parameter name or factor"):
        settings_model(scaled, NOTHING, {"name": str, "factor": int})


def test_a_description_is_the_first_line_and_the_settings():
    assert describe(FedAvg) == "Averages everything."
    assert describe(unet) == "The papers' U-Net. (width = 16)"
    assert describe(scaled) == "Scales. (factor = 1.0)"
    assert describe(FedProx) == (
        "Holds every site near the average. "
        '(mu = 0.01, projector = {depth = 2}, layers = [16, 32], strength = "learned")'
    )


def test_a_task_is_described_by_its_summary():
    assert describe(TABLES.task["fundus"]) == "Disc and cup (resolution = 384)"


def test_what_has_no_docstring_is_described_by_its_settings_alone():
    assert describe(Silent) == "(amount = 1)"
    assert describe(Plain) == ""
