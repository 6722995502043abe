import pytest
from demo.drawn_sites import write_drawn_site
from typer.testing import CliRunner

from polyclinic.cli import app
from polyclinic.data.synthetic import federation as synthetic
from polyclinic.runs import DECODER, ENSEMBLE, TUNED


@pytest.fixture
def strange_folder(tmp_path):
    name = synthetic("octa")[4].name
    write_drawn_site(tmp_path / "data" / name, "octa", name, resolution=32, size=0.2)
    return tmp_path / "data" / name


def test_models_of_runs_are_tried_on_a_site_folder(federation, strange_folder, monkeypatch):
    done = federation(sites=2, rounds=1).run(
        "fedrep", "network.name=unet", "evaluation.choose=last"
    )
    monkeypatch.chdir(strange_folder)
    told = CliRunner().invoke(app, ["unseen", ".", str(done.folder.path), "--iterations", "1"])
    assert told.exit_code == 0, told.output
    words = told.output.split()
    for word in (f"FedRep, {way}" for way in (ENSEMBLE, TUNED, DECODER)):
        assert word in " ".join(words)
    assert {strange_folder.name, "Dice", "HD95"} <= set(words)
    assert (done.folder.path / f"unseen-{strange_folder.name}.csv").exists()
