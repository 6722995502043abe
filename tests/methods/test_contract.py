"""Every method of the table keeps the contract; a new one is checked by standing there."""

from functools import cache

import pytest

from polyclinic.contract import CHECKS, Trial
from polyclinic.methods import METHODS


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Each method's trial, whose runs all checks look at."""
    return cache(lambda method: Trial(METHODS[method], tmp_path_factory.mktemp("trial")))


@pytest.mark.parametrize(("method", "check"), [(m, c) for m in METHODS for c in CHECKS])
def test_the_method_keeps_the_contract(trials, method, check):
    CHECKS[check](trials(method))
