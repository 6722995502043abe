"""From nothing to a report on an organ that nobody prepared, with files that a user would write."""

import csv

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from polyclinic.catalog import installed
from polyclinic.cli import app
from polyclinic.config import load_study
from polyclinic.runs import find_runs
from tests.vessels import SIZES, write_sources

TASK = """
summary = "blood vessels of the retina"
channels = 3
classes = ["background", "vessel"]
resolution = 64
tile = 32
fit = "pad"
"""
STUDY = """
method = ["local", "fedavg"]

[task]
file = "vessels.task.toml"

[data]
source = "eyes"
split = [0.5, 0.25, 0.25]

[[site]]
name = "drive"

[[site]]
name = "stare"
labels = "scribble"

[[site]]
name = "chase"
normalisation = "channelwise"

[network]
name = "unet"
width = 2

[training]
iterations = 2
batch = 4
[training.augmentation]
gamma = 0.3
noise = 0.05

[federation]
rounds = 2

[evaluation]
metrics = ["dice"]
every = 0

[engine]
threads = 1
"""


def polyclinic(*words):
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_sources(tmp_path / "eyes")
    (tmp_path / "vessels.task.toml").write_text(TASK)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_from_three_sources_to_a_report(folder):
    told = polyclinic("data", "check", "eyes", "--task", "vessels.task.toml")
    assert all(site in told for site in SIZES)
    assert "contact-sheet.png" in told
    polyclinic("run", "study.toml")

    page = next((folder / "runs" / "study").rglob("*.html")).read_text()
    assert "vessels: vessel" in page
    runs = find_runs([folder / "runs" / "study"])
    assert len(runs) == 2
    for run in runs:
        with (run / "scores.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {row["site"] for row in rows} == set(SIZES)
        assert {row["region"] for row in rows} == {"vessel"}
    # A run knows its task without any other file.
    task = load_study(folder / "study.toml", [], installed()).task.built
    (folder / "vessels.task.toml").unlink()
    assert load_study(runs[0] / "study.toml", [], installed()).task.built == task
    assert task.tile == 32


def test_labels_of_an_own_task_are_made_by_its_file(folder):
    polyclinic("weaken", "eyes/stare", "--kind", "block", "--task", "vessels.task.toml")

    assert len(list((folder / "eyes" / "stare" / "labels" / "block").iterdir())) == 6


def test_mistakes_in_the_file_and_in_the_study_are_told_together(folder):
    (folder / "vessels.task.toml").write_text(TASK.replace("fit", "fitt").replace("3", "30", 1))
    (folder / "study.toml").write_text(STUDY.replace("rounds = 2", "rounds = 0"))
    with pytest.raises(ValueError, match="3 mistakes") as caught:
        load_study(folder / "study.toml", [], installed())

    told = str(caught.value)
    assert "vessels.task.toml: channels = 30: must be at most 16" in told
    assert "vessels.task.toml: fitt" in told
    assert "did you mean fit?" in told
    assert "federation.rounds = 0" in told


def test_255_classes_and_16_channels_are_segmented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for part in ("images", "masks"):
        (tmp_path / "maps" / "one" / part).mkdir(parents=True)
    for case in range(4):
        image = rng.random((16, 32, 32), dtype=np.float32)
        mask = (np.arange(32 * 32).reshape(32, 32) % 255).astype(np.uint8)
        np.save(tmp_path / "maps" / "one" / "images" / f"{case}.npy", image)
        Image.fromarray(mask).save(tmp_path / "maps" / "one" / "masks" / f"{case}.png")
    names = ", ".join(f'"c{number}"' for number in range(255))
    (tmp_path / "maps.task.toml").write_text(
        f"classes = [{names}]\nchannels = 16\nresolution = 32\nregions = {{ last = ['c254'] }}\n"
    )
    (tmp_path / "many.toml").write_text(
        'task.file = "maps.task.toml"\ndata.source = "maps"\nmethod = "fedavg"\n'
        "network = {name = 'unet', width = 2}\n[federation]\nrounds = 1\n"
        "[training]\niterations = 1\nbatch = 2\n[evaluation]\nmetrics = ['dice']\n"
    )
    polyclinic("data", "check", "maps", "--task", "maps.task.toml")
    polyclinic("run", "many.toml")

    (run,) = find_runs([tmp_path / "runs" / "many"])
    assert "last" in (run / "scores.csv").read_text()
