"""Local, centralized and averaged training learn from every kind of label, weak or full."""

import numpy as np
import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.local import load_data
from polyclinic.engine.run import runs_of
from polyclinic.engine.sites import Scored
from polyclinic.runs import RoundLine
from polyclinic.weak import KINDS
from tests.federations import perform

METHODS = ("local", "centralized", "fedavg")
SOME = ("mask", "point", "box")  # of the quick suite


def study(folder, labels, resolution, rounds, data="", methods=METHODS):
    file = folder / "study.toml"
    entries = "".join(f'[[method]]\nname = "{name}"\nlabels = "{labels}"\n' for name in methods)
    file.write_text(f'task = "octa"\n{data}\n{entries}[network]\nname = "unet"\nwidth = 4\n')
    changes = [
        f"task.resolution={resolution}",
        f"federation.rounds={rounds}",
        "training.iterations=4",
        "training.batch=4",
        "evaluation.every=0",
        "evaluation.pictures=false",
        "evaluation.metrics=['dice']",
        "engine.threads=1",
    ]
    return load_study(file, changes, BUILT_IN)


def results(made, labels, folder):
    """Each method's losses of the first and the last round, and its test Dice."""
    data = load_data(made, labels, splits_folder=None)
    for run in runs_of(made, folder / "runs"):
        events = list(perform(run, data))
        lines = [event for event in events if isinstance(event, RoundLine) and event.stage == "fit"]
        last = max(line.round for line in lines)
        losses = [np.mean([e.loss for e in lines if e.round == number]) for number in (1, last)]
        rows = [
            row.value
            for e in events
            if isinstance(e, Scored) and e.split == "test"
            for row in e.rows
        ]
        yield run.choice.name, losses, np.mean(rows)


@pytest.mark.parametrize(
    ("labels", "methods"),
    [
        ("scribble", METHODS),
        pytest.param("mask", METHODS, marks=pytest.mark.slow),
        *(
            pytest.param(kind, ("fedavg",), marks=[] if kind in SOME else [pytest.mark.slow])
            for kind in KINDS
            if kind != "scribble"
        ),
    ],
)
def test_synthetic_sites_learn_from_every_kind(tmp_path, labels, methods):
    data = '[data]\nsize = 0.3\nonly = ["heath", "jetty"]\n'
    made = study(tmp_path, labels, 32, 3, data, methods)
    for method, (first, last), dice in results(made, labels, tmp_path):
        assert last < first, f"{method} does not learn from {labels}"
        assert 0 <= dice <= 1


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["mask", *KINDS])
def test_real_sites_learn_from_every_kind(tmp_path, real, labels):
    data = f'[data]\nsource = "{real / "faz"}"\nonly = ["rose", "fazid"]\n'
    made = study(tmp_path, labels, 96, 2, data)
    for method, (first, last), dice in results(made, labels, tmp_path):
        assert last < first, f"{method} does not learn from {labels}"
        assert 0 <= dice <= 1
