import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.report.exports import to_markdown
from polyclinic.report.reading import read_runs
from polyclinic.report.sheets import Entry, Sheet
from tests.report.invented import SITES, write_run

ROOT = Path(__file__).parents[2]
STUDIES = tomllib.loads((ROOT / "docs" / "papers.toml").read_text())["study"]


@pytest.fixture
def made(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("result_tables")


def test_the_tables_of_the_pages_are_what_the_results_give(made):
    for page in made.PAGES:
        assert made.MARKED.search(page.read_text())
        assert made.filled(page.read_text()) == page.read_text(), "run `make results`"


def test_a_result_has_sites_means_and_conditions_and_is_read_back_as_it_was(made, tmp_path):
    for seed in (0, 1):
        write_run(tmp_path, "FedAvg", seed=seed, sites=SITES[:2], metrics=("dice", "hd95"), cases=3)
    write_run(tmp_path, "Ditto", seed=1, sites=SITES[:2], metrics=("dice", "hd95"), cases=3)
    write_run(tmp_path, "Ditto", seed=0, sites=SITES[:2], stop=3)
    write_run(tmp_path, "Local", seed=0, sites=SITES[:2], stop=3)
    sheet = made.result(read_runs([tmp_path / "demo"]))
    heads = ("Method", "alpha", "beta", "mean", "disc", "cup", "HD95 (px)")
    assert sheet.heads == (*heads, "seeds", "weighting", "settings")
    told = {row[0].text: row[7].text for row in sheet.rows}
    assert told == {"FedAvg": "0, 1", "Ditto": "1 (1 of 2)"}, "Local has not finished"
    assert float(sheet.rows[0][3].text) == pytest.approx(
        sum(float(sheet.rows[0][place].text) for place in (1, 2)) / 2, abs=0.011
    )
    assert to_markdown(made.from_json(made.as_json(sheet))) == to_markdown(sheet)


def test_seeds_of_another_day_are_added_unless_settings_changed(made, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    for seed in (0, 1):
        write_run(tmp_path / f"{seed}", "FedAvg", seed=seed, sites=SITES[:2], metrics=("dice",))
        sheet = made.result(made.gathered(tmp_path / f"{seed}" / "demo", results))
    both = tmp_path / "both"
    for seed in (0, 1):
        write_run(both, "FedAvg", seed=seed, sites=SITES[:2], metrics=("dice",))
    assert made.as_json(sheet) == made.as_json(made.result(read_runs([both / "demo"])))
    archive = (results / "demo.zip").read_bytes()
    made.gathered(both / "demo", results)
    assert (results / "demo.zip").read_bytes() == archive
    later = tmp_path / "later"
    started = "2026-03-05T10:00:00+00:00"
    write_run(later, "FedAvg", seed=2, sites=SITES[:2], metrics=("dice",), batch=9, started=started)
    told = made.result(made.gathered(later / "demo", results)).rows[0]
    assert told[-3].text == "2"


def test_seeds_that_started_from_other_weights_are_kept_apart(made, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    started = [("a.safetensors", "sha256-1"), ("b.safetensors", "sha256-1"), ("b.safetensors", "")]
    told = []
    for seed, (file, start) in enumerate(started):
        run = write_run(tmp_path / f"{seed}", "FedAvg", seed=seed, sites=SITES[:2])
        settings = run.path / "study.toml"
        text = settings.read_text().replace('"unet"', f'"unet"\npretrained = "/{seed}/{file}"')
        settings.write_text(text)
        about = run.path / "about.json"
        known = {"pretrained": f"{file}: 2 of 2 tensors of the network", "start": start}
        about.write_text(json.dumps(json.loads(about.read_text()) | known))
        sheet = made.result(made.gathered(tmp_path / f"{seed}" / "demo", results))
        told.append(sheet.rows[0][-3].text)
    assert told[:2] == ["0", "0, 1"], "one file in two places"
    assert told[2] != "0, 1, 2", "a file that nobody knows the content of"


def test_studies_are_found_in_a_folder_of_runs_or_named_themselves(made, tmp_path):
    for study in ("one", "two"):
        write_run(tmp_path, "FedAvg", study=study, sites=SITES[:1], stop=1)
    both = [tmp_path / "one", tmp_path / "two"]
    assert made.studies([str(tmp_path)]) == made.studies(list(map(str, both))) == both
    assert made.studies([]) == []


def test_a_page_without_results_says_so_and_gets_them_once_they_are_there(made, tmp_path):
    page = "before\n<!-- result demo -->\nold\n<!-- end -->\nafter\n"
    assert "*Not run yet.*" in made.filled(page, tmp_path)
    write_run(tmp_path, "FedAvg", sites=SITES[:2], metrics=("dice",), cases=3)
    text = made.as_json(made.result(read_runs([tmp_path / "demo"])))
    (tmp_path / "demo.json").write_text(text)
    filled = made.filled(page, tmp_path)
    assert "| FedAvg |" in filled
    assert "old" not in filled
    assert filled.startswith("before\n<!-- result demo -->\n")
    assert filled.endswith("<!-- end -->\nafter\n")


def test_a_paper_stands_beside_the_study_of_another_name(made, tmp_path):
    write_run(tmp_path, "FedAvg", sites=SITES[:2], metrics=("dice",), cases=3)
    sheet = made.result(read_runs([tmp_path / "demo"]))
    lines = made.papers({"octa-weak": sheet}).splitlines()
    own = f"{sheet.rows[0][3].text} (seed 0)"
    assert f"| FedAvg | 84.05 | {own} |" in lines
    assert "| FedBN | 70.84 | – |" in lines
    assert (
        "| 002 | Fig. 4 | `002-octa.toml` | [octa-weak](#002-octa) | [not run](#002-octa) |"
        in lines
    )
    assert any(line.startswith("Twin: tried with ") for line in lines)
    twin = made.papers({"002-octa-small": sheet}).splitlines()
    assert "| 002 | Fig. 4 | `002-octa.toml` | – | [run](twins.md#002-octa) |" in twin


def test_a_twin_shows_its_scores_and_the_other_tables_that_the_paper_has(made, tmp_path):
    write_run(tmp_path, "FedAvg", study="003-polyp-small", sites=SITES[:2], metrics=("dice",))
    folder = tmp_path / "003-polyp-small"
    sheets = {folder.name: made.result(read_runs([folder]))}
    assert made.twins({}) == ""
    assert [sheet.name for sheet in made.beside(folder)] == ["efficiency"]
    for sheet in made.beside(folder):
        read = made.from_json(made.as_json(sheet))
        assert to_markdown(read) == to_markdown(sheet)
        sheets[f"{folder.name}.{sheet.name}"] = read
    text = made.twins(sheets)
    assert text.startswith("### 003-polyp\n")
    assert "| FedAvg |" in text
    assert "Parameters (M)" in text
    assert list(made.beside(tmp_path / "nothing" / "octa-drawn")) == []


def test_a_column_of_several_twins_has_its_mean_over_them(made):
    def apart(*rows):
        return Sheet("separation", "Apart", "How.", ("Method", "a", "Avg", "a", "Avg"), rows)

    def row(title, value):
        return (Entry(title), *map(Entry, ("1", "2", "3", value)))

    tasks = ("001-fundus", "001-polyp", "001-prostate")
    sheets = {
        f"{task}-small.separation": apart(row("FedAvg", str(place)), row(f"only {place}", "9"))
        for place, task in enumerate(tasks)
    }
    scores = {f"{task}-small": apart(row("FedAvg", "0")) for task in tasks}
    assert "| FedAvg | 0.00 | 1.00 | 2.00 | 1.00 |" in made.twins(sheets | scores).splitlines()
    assert "by tasks" not in made.twins(scores)


def test_every_study_of_a_paper_stands_in_the_matrix():
    files = {f"{study['file']}.toml" for study in STUDIES}
    found = {file.name for file in (ROOT / "studies" / "papers").glob("*.toml")}
    assert files == {name for name in found if not name.endswith("-small.toml")}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study["file"])
def test_what_a_paper_says_is_said_of_rows_of_its_study(study):
    read = load_study(ROOT / "studies" / "papers" / f"{study['file']}.toml", [], BUILT_IN)
    swept = read.swept or [read]
    titles = {method.title for each in swept for method in each.method}
    assert study.get("said", {}).keys() <= titles
