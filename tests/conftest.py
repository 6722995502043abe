import os

from polyclinic.cli import ENVIRONMENT

os.environ.update(ENVIRONMENT)  # before torch is imported

import hypothesis
import pytest
import torch

from tests.federations import Federation

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def federation(tmp_path):
    """A function that makes small synthetic federations to run methods on."""
    return lambda **settings: Federation(tmp_path, **settings)
