import io
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyclinic.methods import METHODS
from tests.cli.commands import polyclinic as polyclinic
from tests.data.folders import draw_case, write_picture, write_site
from tests.outside import CODE, write_package

STUDY = """
name = "first"
task = { name = "fundus", resolution = 32 }
[data]
size = 0.1
[network]
name = "unet"
width = 2
[[method]]
name = "fedavg"
[[method]]
name = "ditto"
pull = 0.5
[training]
iterations = 1
batch = 4
[federation]
rounds = 1
[engine]
threads = 1
"""
TWO_SITES = '[[site]]\nname = "amber"\n[[site]]\nname = "birch"\n'


@pytest.fixture
def study(tmp_path) -> Path:
    path = tmp_path / "first.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def site(tmp_path) -> Path:
    folder = tmp_path / "sites" / "alpha"
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(6):
        image = rng.integers(0, 255, (48, 64), dtype=np.uint8)
        mask = np.zeros((48, 64), dtype=np.uint8)
        mask[10 : 20 + number, 10:30] = 1
        Image.fromarray(image).save(folder / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
    return folder


def test_a_study_runs_from_file_to_report(polyclinic, study, tmp_path):
    few = '[evaluation]\nmetrics = ["dice"]\npictures = false\n'
    study.write_text(STUDY + few + TWO_SITES)
    code, _, _ = polyclinic("run", study, "--runs", tmp_path / "runs", "--only", "Ditto")
    assert code == 0
    assert [path.parent.name for path in tmp_path.glob("runs/first/*/seed-0")] == ["ditto"]
    code, out, _ = polyclinic("run", study, "--runs", tmp_path / "runs", "--resume")
    assert code == 0
    assert "round 1/1" in out
    assert "FedAvg" in out
    page = tmp_path / "runs" / "first" / "report.html"
    assert str(page) in out.replace("\n", "")
    assert "Ditto" in page.read_text()
    assert (page.parent / "table-dice.csv").exists()
    code, _, err = polyclinic("run", study, "--runs", tmp_path / "runs")
    assert code == 2
    assert "already holds a run" in err
    code, _, _ = polyclinic("run", study, "--runs", tmp_path / "runs", "--resume")
    assert code == 0
    code, out, _ = polyclinic("report", tmp_path / "runs" / "first", "--to", tmp_path / "page.html")
    assert code == 0
    assert (tmp_path / "page.html").exists()


def test_a_wrong_title_of_a_method_to_run_is_told_with_the_nearest(polyclinic, study, tmp_path):
    code, _, err = polyclinic("run", study, "--only", "Dito", "--runs", tmp_path / "runs")
    assert code == 2
    assert "did you mean Ditto?" in err
    assert not (tmp_path / "runs").exists()


def test_the_version_is_told(polyclinic):
    code, out, _ = polyclinic("--version")
    assert (code, out) == (0, f"polyclinic {version('polyclinic')}\n")


def test_an_absent_device_is_a_message_and_no_traceback(polyclinic, study, tmp_path):
    code, _, err = polyclinic(
        "run", study, "--runs", tmp_path / "runs", "--set", "engine.device=cuda:99"
    )
    assert code == 2
    assert 'engine.device = "cuda:99"' in err
    assert not (tmp_path / "runs").exists()


def test_resume_and_fresh_exclude_each_other(polyclinic, study):
    code, _, err = polyclinic("run", study, "--resume", "--fresh")
    assert code == 2
    assert "give one of them" in err


@pytest.mark.parametrize("what", ["methods", "networks", "tasks", "kinds", "metrics", "losses"])
def test_what_exists_is_listed_with_a_line_each(polyclinic, what):
    code, out, _ = polyclinic("list", what)
    assert code == 0
    assert all("  built in  " in line for line in out.splitlines())
    if what == "methods":
        assert all(any(line.startswith(name) for line in out.splitlines()) for name in METHODS)


def test_what_a_package_offers_is_listed_with_its_origin_also_where_it_is_broken(
    polyclinic, tmp_path, monkeypatch, forgotten
):
    write_package(tmp_path / "packages")
    points = {"methods": "ours = broken:Ours\nfedavg = broken:Ours"}
    monkeypatch.syspath_prepend(
        write_package(tmp_path / "packages", "broken", code="import nothing\n", **points)
    )
    code, out, err = polyclinic("list", "methods")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert "fed-mine 1.2" in lines["fedmine"]
    assert "Goes only a part of the way to the average. (pace = 0.5)" in lines["fedmine"]
    assert "cannot be used: comes from the package broken 1.2, but it cannot be" in lines["ours"]
    assert "built in" in lines["fedavg"]
    assert "warning: the method fedavg of the package broken 1.2 is left out" in err


def test_what_is_in_a_file_is_listed_with_what_it_can_be(polyclinic, tmp_path, forgotten):
    (tmp_path / "mine.py").write_text(CODE)
    code, out, _ = polyclinic("list", tmp_path / "mine.py")
    assert code == 0
    named = [" ".join(line.split()[:2]) for line in out.splitlines()]
    for name in ("method FedMine", "finish Rest", "network Tiny", "metric AREA", "task FOVEA"):
        assert named.count(name) == 1
    assert "loss brier" in named
    assert all(f"  file {tmp_path}/mine.py  " in line for line in out.splitlines())


def test_a_method_is_shown_with_its_paper_its_costs_and_its_settings(polyclinic):
    code, out, _ = polyclinic("list", "fedbabu")
    assert code == 0
    assert "arXiv 2106.06042" in out
    assert "each round: down " in out
    (line,) = (line for line in out.splitlines() if line.split()[:2] == ["tuning.epochs", "20"])
    assert line.endswith("Passes over the site's images.")


def test_listing_something_unknown_names_the_nearest(polyclinic):
    code, _, err = polyclinic("list", "method")
    assert code == 2
    assert 'did you mean "methods"?' in err
    assert 'did you mean "fedbabu"?' in polyclinic("list", "fedbabo")[2]


def test_the_resolved_settings_are_printed_with_overrides(polyclinic, study):
    code, out, _ = polyclinic(
        "config", study, "--set", "training.batch=7", "--set", "method.pull=2.0"
    )
    assert code == 0
    settings = tomllib.loads(out)
    assert settings["training"]["batch"] == 7
    assert settings["method"][1]["pull"] == 2.0
    assert settings["training"]["learning_rate"] == 0.01


def test_all_mistakes_of_a_study_are_told_at_once(polyclinic, study):
    study.write_text(
        STUDY.replace("batch = 4", 'bach = 4\noptimizer = "adm"').replace("ditto", "dito")
    )
    code, _, err = polyclinic("config", study)
    assert code == 2
    assert "did you mean" in err
    for word in ("bach", "batch", "adm", "dito", "ditto", str(study.name)):
        assert word in err


def test_a_folder_is_checked_with_a_summary_and_a_contact_sheet(polyclinic, site, tmp_path):
    sheet = tmp_path / "sheet.png"
    code, out, _ = polyclinic("data", "check", site.parent, "--task", "octa", "--sheet", sheet)
    assert code == 0
    assert "alpha" in out
    assert "errors: 0" in out
    with Image.open(sheet) as drawn:
        assert drawn.size[0] > 100


def test_everything_wrong_with_a_folder_is_told_at_once(polyclinic, site, tmp_path):
    (site / "masks" / "1.png").unlink()
    (site / "images" / "2.png").write_bytes(b"not a picture")
    Image.fromarray(np.full((48, 64), 9, dtype=np.uint8)).save(site / "masks" / "3.png")
    Image.fromarray(np.zeros((20, 20), dtype=np.uint8)).save(site / "masks" / "4.png")
    sheet = tmp_path / "sheet.png"
    code, out, _ = polyclinic("data", "check", site.parent, "--task", "octa", "--sheet", sheet)
    assert code == 2
    for word in ("alpha", "1", "2.png", "3.png", "4.png"):
        assert word in out


def test_a_study_on_broken_images_stops_before_training(polyclinic, site, study, tmp_path):
    (site / "images" / "2.png").write_bytes(b"not a picture")
    study.write_text(
        STUDY.replace("size = 0.1", f'source = "{site.parent}"').replace("fundus", "octa")
    )
    code, _, err = polyclinic("run", study, "--runs", tmp_path / "runs")
    assert code == 2
    assert "alpha" in err
    assert "2.png" in err
    assert not (tmp_path / "runs" / "first" / "fedavg").exists()


def test_weak_labels_are_made_for_a_site(polyclinic, site):
    code, out, _ = polyclinic("weaken", site, "--kind", "scribble", "--task", "octa")
    assert code == 0
    assert len(list((site / "labels" / "scribble").glob("*.png"))) == 6
    assert (site / "labels-scribble.png").exists()
    assert "labels-scribble.png" in out.replace("\n", "")
    code, _, err = polyclinic("weaken", site, "--kind", "scribbel", "--task", "octa")
    assert code == 2
    assert "scribble" in err


def test_sites_are_imported_into_site_folders(polyclinic, site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, _ = polyclinic("data", "import", site.parent, tmp_path / "new", "--task", "octa")
    assert code == 0
    assert (tmp_path / "new" / "alpha" / "cases.csv").exists()
    code, _, err = polyclinic("data", "import", site.parent, tmp_path / "new", "--task", "otca")
    assert code == 2
    assert "octa" in err


def test_help_does_not_wait_for_torch():
    code = "import sys, polyclinic.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_split_is_written_into_the_sites_folders_when_asked(polyclinic, site):
    (site / "cases.csv").unlink(missing_ok=True)
    code, out, _ = polyclinic("data", "split", site.parent, "--ratio", 0.5, 0.25, 0.25)
    assert code == 0
    assert str(site / "splits.csv") in out
    assert "ratio 0.5 0.25 0.25; seed 0" in (site / "splits.csv").read_text()
    code, _, err = polyclinic("data", "split", site.parent)
    assert (code, "delete it to cut anew" in err) == (2, True)
    code, _, err = polyclinic("data", "split", site.parent, "--ratio", 0.5, 0.25, 0.5)
    assert (code, "must sum to 1" in err) == (2, True)
    (site / "splits.csv").unlink()
    assert polyclinic("data", "split", site.parent, "--in-order")[0] == 0
    assert "ratio 0.7 0.1 0.2; in order" in (site / "splits.csv").read_text()


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self):
        return True


def test_importing_says_what_it_understood_and_what_it_left_out(polyclinic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        image, mask = draw_case(number)
        write_picture(tmp_path / "clinic" / "a" / f"{number}.png", image)
        write_picture(tmp_path / "clinic" / "b" / f"{number}.png", mask)
    (tmp_path / "clinic" / "notes.txt").write_text("hello")

    code, _, err = polyclinic("data", "import", "clinic", "ours", "--task", "fundus")
    assert (code, "say it by --masks" in err) == (2, True)
    code, _, err = polyclinic("data", "import", "clinic", "ours", "--masks", "b/*")
    assert (code, "for which task is it (fundus, " in err) == (2, True)
    assert not (tmp_path / "ours").exists()
    code, out, _ = polyclinic(
        "data", "import", "clinic", "ours", "--task", "fundus", "--masks", "b/*"
    )
    assert code == 0
    assert "3 pictures" in out
    assert "left out: notes.txt: is no image that can be read" in out
    assert (tmp_path / "contact-sheet.png").exists()
    assert (tmp_path / "ours" / "clinic" / "masks" / "2.png").exists()


def test_importing_asks_at_a_terminal_and_writes_only_after_a_yes(
    polyclinic, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        image, mask = draw_case(number)
        write_picture(tmp_path / "clinic" / "a" / f"{number}.png", image)
        write_picture(tmp_path / "clinic" / "b" / f"{number}.png", mask)

    monkeypatch.setattr("sys.stdin", Terminal("b/*\nfundus\nn\n"))
    code, out, _ = polyclinic("data", "import", "clinic", "ours")
    assert (code, "nothing was written" in out) == (0, True)
    assert list((tmp_path / "ours").iterdir()) == []
    monkeypatch.setattr("sys.stdin", Terminal("b/*\nfundus\ny\n"))
    assert polyclinic("data", "import", "clinic", "ours")[0] == 0
    assert (tmp_path / "ours" / "clinic" / "cases.csv").exists()


def test_exporting_gives_an_nnunet_dataset(polyclinic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_site(tmp_path / "north", 3)
    code, _, err = polyclinic("data", "export", "north", "Dataset001_North")
    assert (code, "for which task" in err) == (2, True)
    code, out, _ = polyclinic("data", "export", "north", "Dataset001_North", "--task", "fundus")

    assert (code, "3 cases to train on, 0 to test on" in out) == (0, True)
    assert (tmp_path / "Dataset001_North" / "dataset.json").exists()
    code, _, err = polyclinic("data", "export", "north", "x", "--task", "fundus", "--format", "csv")
    assert (code, 'no format "csv" (allowed: nnunet)' in err) == (2, True)
