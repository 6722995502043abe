"""Where the real tasks lie, for tests that look at them."""

import os
from pathlib import Path

import pytest

FOLDERS = {"octa": "faz", "fundus": "odoc", "polyp": "polyp", "prostate": "prostate"}


@pytest.fixture
def real():
    if not os.environ.get("POLYCLINIC_REAL_DATA"):
        pytest.skip("POLYCLINIC_REAL_DATA names no folder of real data")
    return Path(os.environ["POLYCLINIC_REAL_DATA"])
