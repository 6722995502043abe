"""Packages on labelled folders: the run's scores again, intervals, differences, a matrix."""

import csv
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import polyclinic
from polyclinic.cli import app
from polyclinic.data.errors import DataError
from polyclinic.data.tasks import TASKS
from polyclinic.evaluation import METRICS
from polyclinic.evaluation.intervals import NONE_FOR_FEW, bootstrap_interval
from polyclinic.predict import PackageError, load
from polyclinic.predict.evaluating import evaluate
from polyclinic.predict.facts import ScoreFacts
from polyclinic.predict.pages import score
from polyclinic.report.evaluation import write_evaluation
from tests.predict.hand_made import disc, hand_made

LEVELS = {"good": 0.5, "bad": 0.05}


@pytest.fixture
def models(tmp_path):
    for name, level in LEVELS.items():
        hand_made(TASKS["octa"].with_resolution(32), level).write(tmp_path / f"{name}.polyclinic")
    return {name: load(tmp_path / f"{name}.polyclinic", threads=1) for name in LEVELS}


def a_site(folder: Path, *, cases: int = 4, more: str = "") -> Path:
    """A site whose patients have two cases each; the bright ellipse is the object."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    lines = ["case,patient"]
    for number in range(cases):
        image = disc((40 + number, 50))
        Image.fromarray(image).save(folder / "images" / f"c{number}.png")
        Image.fromarray((image > 127).astype(np.uint8)).save(folder / "masks" / f"c{number}.png")
        lines.append(f"c{number},p{number // 2}")
    (folder / "cases.csv").write_text("\n".join(lines) + "\n")
    (folder / "site.toml").write_text(f"spacing = [0.5, 0.25]\n{more}")
    return folder


def test_means_come_with_intervals_over_patients(models, tmp_path):
    site = a_site(tmp_path / "north", cases=18)
    found = evaluate({"good": models["good"]}, [site], metrics=["dice"])
    ((model, facts),) = found.summary()
    assert (model, facts.site, facts.cases, facts.patients) == ("good", "north", 18, 9)
    assert facts.mean > 0.9
    assert facts.low <= facts.mean <= facts.high
    values = [row.value for row in found.scores]
    assert facts.mean == pytest.approx(np.mean(values))


def test_so_few_patients_have_no_interval_anywhere(models, tmp_path):
    found = evaluate(models, [a_site(tmp_path / "north", cases=16)], metrics=["dice"])
    (_, facts), _ = found.summary()
    assert facts.patients == 8
    assert math.isnan(facts.low)
    assert math.isnan(facts.high)
    assert math.isnan(found.difference("bad", "north", "dice")[1])
    assert score(facts) == f"{100 * facts.mean:.1f} (–)"
    page = write_evaluation(found, tmp_path / "out", {n: m.facts for n, m in models.items()})
    assert NONE_FOR_FEW in page.read_text()
    assert "nan" not in page.read_text().split('id="intervals"')[1].split("</section>")[0]


def test_a_package_keeps_that_there_is_no_interval(tmp_path):
    few, many = (
        ScoreFacts.of((site, "faz", "dice"), METRICS["dice"], [0.5, 0.7] * times, range(2 * times))
        for site, times in (("north", 1), ("south", 5))
    )
    hand_made(scores=(few, many)).write(tmp_path / "p.polyclinic")
    model = load(tmp_path / "p.polyclinic", threads=1)
    first, second = model.facts.scores
    assert (first.mean, math.isnan(first.low), second) == (0.6, True, many)
    assert "| 60.0 (–) |" in model.card
    assert NONE_FOR_FEW in model.card
    hand_made(scores=(many,)).write(tmp_path / "q.polyclinic")
    assert NONE_FOR_FEW not in load(tmp_path / "q.polyclinic", threads=1).card


def test_a_site_may_name_the_file_of_its_task(models, tmp_path):
    site = a_site(tmp_path / "north", cases=1, more='task = "zone.task.toml"\n')
    about = 'name = "octa"\nclasses = ["background", "faz"]\n'
    (site / "zone.task.toml").write_text(about)
    assert evaluate({"good": models["good"]}, [site], metrics=["dice"]).scores
    (site / "zone.task.toml").write_text(about.replace("faz", "zone"))
    with pytest.raises(DataError, match="knows another task octa: its classes are"):
        evaluate({"good": models["good"]}, [site], metrics=["dice"])


def test_a_table_of_distances_names_their_unit(models, tmp_path):
    north, south = a_site(tmp_path / "north", cases=1), a_site(tmp_path / "south", cases=1)
    (south / "site.toml").unlink()
    for folders, unit in (([north], "mm"), ([south], "px"), ([north, south], "mm or px")):
        found = evaluate({"good": models["good"]}, folders, metrics=["dice", "hd95"])
        assert {m: about.unit for m, about in found.metrics.items()} == {"dice": "", "hd95": unit}


def test_distances_are_in_millimetres(models, tmp_path):
    site = a_site(tmp_path / "north", cases=1)
    small = evaluate(models, [site], metrics=["assd"]).matrix("assd")
    (site / "site.toml").write_text("spacing = [5.0, 2.5]\n")
    large = evaluate(models, [site], metrics=["assd"]).matrix("assd")
    assert small[1][0] > 0
    assert large[1][0] == pytest.approx(10 * small[1][0])


def test_models_are_compared_on_the_same_cases(models, tmp_path):
    site = a_site(tmp_path / "north", cases=18)
    found = evaluate(models, [site], metrics=["dice", "iou"])
    mean, low, high = found.difference("bad", "north", "dice")
    first, second = (
        np.array([r.value for r in found.scores if (r.model, r.metric) == (m, "dice")])
        for m in ("good", "bad")
    )
    assert mean == pytest.approx((second - first).mean())
    assert low <= mean <= high < 0
    page = write_evaluation(found, tmp_path / "out", {n: m.facts for n, m in models.items()})
    assert "Difference from good" in page.read_text()


def test_the_page_is_the_report_of_a_study_with_models_for_methods(models, tmp_path):
    sites = [a_site(tmp_path / "north"), a_site(tmp_path / "south", cases=2)]
    found = evaluate(models, sites, metrics=["dice", "hd95"])
    packages = {
        n: model.facts.model_copy(update={"title": f"<{n}>"}) for n, model in models.items()
    }
    to = tmp_path / "out"
    page = write_evaluation(found, to, packages).read_text()
    for section in ("overview", "scores", "ranking", "intervals", "matrix", "cases", "examples"):
        assert f'id="{section}"' in page
    assert "&lt;bad&gt;" in page
    assert "<bad>" not in page
    # The table of a study's report, from the same scores.
    mean = np.mean([r.value for r in found.scores if r[:2] == ("good", "north") and r[5] == "dice"])
    assert (to / "table-dice.csv").exists()
    assert f"<b>{100 * mean:.2f}</b>" in page
    # Best, median and worst case of both models at both sites.
    assert [each.rank for each in found.shown] == ["best", "median", "worst"] * 4
    assert page.count("data:image/jpeg;base64,") == 12
    dice = {r.case: r.value for r in found.scores if r[:2] == ("bad", "north") and r[5] == "dice"}
    (worst,) = [s.case for s in found.shown if s[:3] == ("bad", "north", "worst")]
    assert dice[worst] == min(dice.values())


def test_every_model_at_every_site_is_a_matrix(models, tmp_path):
    sites = [a_site(tmp_path / "north"), a_site(tmp_path / "south", cases=2)]
    words = [str(tmp_path / f"{name}.polyclinic") for name in LEVELS]
    to = tmp_path / "out"
    options = ["--cross-site", "--to", str(to), "--metric", "dice"]
    done = CliRunner().invoke(app, ["evaluate", *words, *map(str, sites), *options])
    assert done.exit_code == 0, done.exception
    assert "Every model at every site" in (to / "evaluation.html").read_text()
    rows = list(csv.DictReader((to / "scores.csv").read_text().splitlines()))
    assert {(r["model"], r["site"]) for r in rows} == {
        (m, s) for m in LEVELS for s in ("north", "south")
    }


def test_commands_say_what_they_need(models, tmp_path):
    site, model = str(a_site(tmp_path / "north")), str(tmp_path / "good.polyclinic")
    for words, told in (
        (["compare-models", model, site], "name at least two"),
        (["evaluate", model], "one site"),
        (["evaluate", model, model, site], "takes one model"),
        (["evaluate", model, str(tmp_path / "nowhere")], "there is no"),
        (["evaluate", model, site, "--metric", "dise"], "dice"),
    ):
        done = CliRunner().invoke(app, [*words, "--to", str(tmp_path / "out")])
        assert isinstance(done.exception, ValueError)
        assert told in str(done.exception)


def test_another_task_is_refused(models, tmp_path):
    site = a_site(tmp_path / "north", more='task = "fundus"\n')
    with pytest.raises(DataError, match="is for the task fundus, the model for octa"):
        evaluate(models, [site])
    hand_made(TASKS["prostate"].with_resolution(32), 0.5).write(tmp_path / "p.polyclinic")
    other = load(tmp_path / "p.polyclinic", threads=1)
    with pytest.raises(PackageError, match="only models of one task can be compared"):
        evaluate({**models, "other": other}, [a_site(tmp_path / "south")])


def test_an_interval_holds_what_it_should():
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        patients = np.repeat(np.arange(30), 3)
        values = rng.normal(size=30)[patients] + 0.1 * rng.normal(size=90)
        low, high = bootstrap_interval(values.tolist(), patients.tolist(), seed=seed)
        inside += low < 0 < high
    assert 0.87 <= inside / 200 <= 0.99
    with pytest.raises(ValueError, match="2 values need as many groups"):
        bootstrap_interval([1.0, 2.0], ["a"])


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "onnx", "matplotlib", "flwr"}:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, NoTorch())
from polyclinic.cli import main
main()
"""


def test_evaluating_needs_no_torch(models, tmp_path):
    words = ["evaluate", tmp_path / "good.polyclinic", a_site(tmp_path / "north", cases=1)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, words), "--to", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(polyclinic.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
