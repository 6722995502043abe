"""Fixtures of all tests.

With several workers pytest reads this in one process more, which only hands the tests out: what
takes seconds to import is imported by the fixtures.
"""

import gc
import math
import os
import sys
from pathlib import Path

from polyclinic.environment import ENVIRONMENT

os.environ.update(ENVIRONMENT)  # before torch is imported

import hypothesis
import pytest

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_other_processes_because_the_machine_is_slow():
    """Those that a study is told to start it starts."""
    from polyclinic.engine import grid

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "START", math.inf)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """Half of what a tiny run takes; only a power failure could tell the difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def pytest_collection_finish():
    """What is imported by now stays, so the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def federation(tmp_path):
    """A function that makes small synthetic federations to run methods on."""
    from tests.federations import Federation

    return lambda **settings: Federation(tmp_path, **settings)


@pytest.fixture
def narrow_pyramids(monkeypatch):
    """Feature pyramids of 16 channels instead of 256: the same network in a fifth of the time."""
    from polyclinic.networks import fpn

    for name, channels in (("PYRAMID", 16), ("BRANCH", 8), ("GROUPS", 2)):
        monkeypatch.setattr(fpn, name, channels)


@pytest.fixture
def forgotten(monkeypatch):
    """Code from outside that a test imports, or puts on the path, is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("fed_mine", "second", "mine", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def package(tmp_path, monkeypatch, forgotten):
    """An installed package that offers something for every table."""
    from tests.outside import write_package

    monkeypatch.syspath_prepend(write_package(tmp_path / "packages"))


@pytest.fixture
def real(tmp_path):
    """Links to the real data as published, without splits that somebody keeps in its folders."""
    if not os.environ.get("POLYCLINIC_REAL_DATA"):
        pytest.skip("POLYCLINIC_REAL_DATA names no folder of real data")
    root = Path(os.environ["POLYCLINIC_REAL_DATA"]).resolve()
    for entry in root.glob("*/*/*"):
        if not entry.name.startswith(("splits", "folds-")):
            linked = tmp_path / "real" / entry.relative_to(root)
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.symlink_to(entry)
    return tmp_path / "real"
