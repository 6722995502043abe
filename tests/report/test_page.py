import base64
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from polyclinic.report import summary_table, write_report
from polyclinic.runs import CONTOUR_COLOURS, RoundLine, RunError, RunFolder
from tests.report.invented import METRICS, write_run
from tests.report.reading_pages import Page


def made(paths, folder):
    return Page(write_report(paths, folder).read_text("utf-8"))


def test_the_page_has_all_sections_and_every_link_leads_to_one(page):
    sections = ["overview", "scores", "learning", "cases", "examples", "costs", "settings"]
    assert [name for name in page.ids if name in sections] == sections
    inner = [link[1:] for _, link in page.links if link.startswith("#")]
    assert set(inner) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_the_page_is_well_formed(page):
    assert page.unclosed == []


def test_the_page_needs_nothing_but_itself(report, page):
    html = report.read_text("utf-8")
    assert "http://" not in html
    assert "https://" not in html
    assert not page.tags & {"link", "iframe", "object"}
    assert page.scripts == [{}]  # its own, with no source elsewhere
    assert "@import" not in html
    assert "url(" not in html
    assert all(source.startswith("data:image/") for _, source in page.images)
    assert all(link.startswith(("#", "data:")) for _, link in page.links)


def test_drawings_inside_the_page_load_nothing_either(page):
    for _, source in page.images:
        if source.startswith("data:image/svg+xml"):
            drawing = base64.b64decode(source.partition(",")[2]).decode()
            loaded = re.findall(r'(?:href|src)="([^"]*)"', drawing)
            assert all(each.startswith(("#", "data:")) for each in loaded)


def test_every_picture_has_words_for_those_who_do_not_see_it(page):
    assert all(alt for alt, _ in page.images)


def test_the_scores_of_the_page_are_those_computed_by_hand(study, page):
    rows = page.scores(0)
    run = RunFolder(study / "fedavg" / "seed-0")
    values = [
        row.value
        for row in run.scores("test")
        if (row.site, row.region, row.metric) == ("beta", "disc", "dice")
    ]
    cell = rows["FedAvg"][1]
    assert cell.text == f"{100 * np.mean(values):.2f}"
    assert cell.spread == f"{100 * np.std(values):.2f}"


@pytest.mark.parametrize(("number", "metric"), list(enumerate(METRICS)))
def test_in_every_column_the_best_is_bold_and_the_second_underlined(page, number, metric):
    rows = page.scores(number)
    deviations = {5, 12, 15}
    for place, pair in enumerate(zip(*rows.values(), strict=True)):
        first, second = sorted(pair, key=lambda cell: float(cell.text))
        assert first.text != second.text
        lower = place in deviations or metric in ("hd", "hd95", "assd")
        best, other = (first, second) if lower else (second, first)
        assert (best.bold, best.underlined) == (True, False)
        assert (other.bold, other.underlined) == (False, True)


def test_tables_lie_beside_the_page_and_inside_it(report, page):
    names = {path.name for path in report.parent.iterdir()}
    orders = [f"ranking-{metric}{end}" for metric in METRICS for end in ("", "-by-region")]
    tables = (*METRICS, "efficiency", *orders)
    expected = {f"table-{table}.{kind}" for table in tables for kind in ("csv", "md", "tex")}
    assert names == expected | {"report.html", "methods.txt", "references.bib"}
    inside = {name: link for name, link in page.links if name}
    assert set(inside) == expected
    for name, link in inside.items():
        content = base64.b64decode(link.partition(",")[2]).decode()
        assert content == (report.parent / name).read_text("utf-8")


def test_the_page_shows_curves_cases_costs_and_settings(page):
    alternatives = [alt for alt, _ in page.images]
    assert any(alt.startswith("Validation score per round, mean") for alt in alternatives)
    assert any(alt.startswith("Training loss per round") for alt in alternatives)
    assert sum("of every test case" in alt for alt in alternatives) == 2 * len(METRICS)
    assert "29.0 MB" in page.text
    assert "learning_rate = 0.01" in page.text
    assert "torch 2.13.0" in page.text
    assert "polyclinic run study.toml" in page.text
    assert "Test cases never choose a model." in page.text


@pytest.mark.slow
def test_the_page_shows_some_of_many_sites_and_which_rounds_were_trained_once(tmp_path):
    sites = tuple(f"site-{number}" for number in range(40))
    run = write_run(tmp_path, "A", rounds=5, sites=sites, metrics=("dice",), cases=1)
    begun = {"shared_rounds": 5, "shared_with": "B seed 0"}
    run.write_about(run.about().model_copy(update=begun))
    page = Page(write_report([run.path], tmp_path / "report").read_text("utf-8"))
    assert "the first 30 of 40 sites one by one" in page.text
    assert "site-29" in page.text
    assert "site-30" not in page.text
    assert "all up to round 5, with B seed 0" in page.text


def test_the_page_shows_the_traffic_of_every_stage(tmp_path):
    run = write_run(tmp_path, "A", rounds=2, sites=("alpha", "beta"), metrics=("dice",))
    (run.path / "rounds.jsonl").unlink()
    for number, stage, down, up in ((1, "fit", 4, 5), (2, "fit", 4, 5), (3, "disclose", 6, 70)):
        for site in ("alpha", "beta"):
            line = {"stage": stage, "site": site, "down": down * 1000, "up": up * 1000}
            run.append([RoundLine(round=number, **line)])
    page = made([run.path], tmp_path / "out")
    (table,) = [
        rows for _, rows in page.tables if [cell.text for cell in rows[0]][1:2] == ["Stage"]
    ]
    assert [[cell.text for cell in row] for row in table[1:]] == [
        ["A", "fit", "2", "8.00 kB", "10.0 kB", "36.0 kB"],
        ["disclose", "1", "12.0 kB", "140 kB", "152 kB"],
    ]
    assert page.unclosed == []


def test_every_site_shows_best_median_and_worst_case_of_every_method(study, page):
    shown = [alt for alt, source in page.images if source.startswith("data:image/jpeg")]
    assert len(shown) == 2 * 4 * 3
    best = RunFolder(study / "fedavg" / "seed-0").pictures("alpha")[0]
    assert f"alpha, best case of FedAvg: {best.case}" in shown
    assert "true contour" in page.text
    assert "predicted contour" in page.text


def test_pictures_on_the_page_are_real_images_of_modest_size(page):
    source = next(source for _, source in page.images if source.startswith("data:image/jpeg"))
    with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as image:
        assert image.size == (192, 192)


def test_large_pictures_are_made_smaller(tmp_path):
    run = write_run(tmp_path, "A", sites=("alpha",), pictures=False, metrics=("dice",))
    path = run.picture_path("alpha", "best", "case-00")
    path.parent.mkdir(parents=True)
    Image.new("RGB", (1600, 800)).save(path)
    page = made([run.path], tmp_path / "out")
    (source,) = [source for _, source in page.images if source.startswith("data:image/jpeg")]
    with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as image:
        assert image.size == (320, 160)


def test_a_broken_picture_is_named(tmp_path):
    run = write_run(tmp_path, "A", sites=("alpha",))
    run.pictures("alpha")[0].path.write_bytes(b"no picture")
    with pytest.raises(RunError, match=r"cannot read the picture .*best-case"):
        write_report([run.path], tmp_path / "out")


def test_the_legend_has_the_colours_that_pictures_are_drawn_in():
    from polyclinic.data.pictures import PREDICTED, TRUE

    drawn = {"true": TRUE, "predicted": PREDICTED}
    assert {name: "#{:02x}{:02x}{:02x}".format(*rgb) for name, rgb in drawn.items()} == (
        CONTOUR_COLOURS
    )


def test_names_are_escaped_wherever_they_stand(tmp_path):
    name = "<script>alert('x')</script> & \"q\""
    run = write_run(
        tmp_path,
        "A",
        study="s",
        sites=("<b>site</b>",),
        regions=("<i>r</i>", "q&r"),
        metrics=("dice",),
    )
    about = run.about().model_copy(update={"method": name})
    (run.path / "about.json").write_text(about.model_dump_json())
    page = made([run.path], tmp_path / "out")
    assert page.scripts == [{}]
    assert page.unclosed == []
    assert name in page.text
    assert "<b>site</b>" in page.text
    assert "<i>r</i>" in page.text


def test_seeds_give_one_row_and_a_spread_over_seeds(tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path, "A", seed=seed, pictures=False, metrics=("dice",), cases=3)
    page = made([tmp_path / "demo"], tmp_path / "out")
    means = []
    for seed in (0, 1, 2):
        rows = RunFolder(tmp_path / "demo" / "a" / f"seed-{seed}").scores("test")
        means.append(np.mean([r.value for r in rows if (r.site, r.region) == ("alpha", "cup")]))
    cell = page.scores(0)["A"][7]
    assert (cell.text, cell.spread) == (
        f"{100 * np.mean(means):.2f}",
        f"{100 * np.std(means, ddof=1):.2f}",
    )
    assert "± standard deviation over seeds" in page.text
    assert "the other runs differ in nothing but seeds" in page.text


def test_unfinished_runs_are_marked_and_their_curves_shown(tmp_path):
    write_run(tmp_path, "A", pictures=False, metrics=("dice",))
    write_run(tmp_path, "B", stop=7, batch=4, started="2027")
    page = made([tmp_path / "demo"], tmp_path / "out")
    assert "unfinished: round 7 of 20" in page.text
    assert "The methods were run with different training.batch." in page.text
    assert {cell.text for cell in page.scores(0)["Bunfinished"]} == {"–"}
    assert "The runs have no pictures." in page.text


def test_runs_of_which_none_has_finished_still_give_a_page(tmp_path):
    run = write_run(tmp_path, "A", stop=3)
    page = made([run.path], tmp_path / "out")
    assert "No run has finished yet" in page.text
    assert any(alt.startswith("Training loss") for alt, _ in page.images)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    tables = [f"table-efficiency.{kind}" for kind in ("csv", "md", "tex")]
    assert names == ["methods.txt", "references.bib", "report.html", *tables]


def test_a_run_that_has_only_begun_still_gives_a_page(tmp_path):
    run = write_run(tmp_path, "A", stop=1)
    (run.path / "rounds.jsonl").unlink()
    page = made([run.path], tmp_path / "out")
    assert page.images == []
    assert "No round has been written yet." in page.text


def test_the_destination_may_be_the_page_itself(tmp_path):
    run = write_run(tmp_path, "A", stop=1)
    page = write_report([run.path], tmp_path / "new" / "comparison.html")
    assert page == tmp_path / "new" / "comparison.html"
    assert page.exists()


def test_the_same_runs_give_the_same_page(tmp_path):
    run = write_run(tmp_path, "A", sites=("alpha",), metrics=("dice",))
    first, second = (write_report([run.path], tmp_path / name).read_bytes() for name in "xy")
    assert first == second


def test_a_folder_that_cannot_be_written_is_said_in_plain_words(tmp_path):
    run = write_run(tmp_path, "A", stop=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        write_report([run.path], tmp_path / "file" / "out")


def printed(paths):
    console = Console(width=120, file=io.StringIO())
    console.print(summary_table(paths))
    return console.file.getvalue()


def test_the_terminal_shows_sites_by_the_mean_over_regions(study):
    rows = RunFolder(study / "fedavg" / "seed-0").scores("test")
    dice = [row.value for row in rows if (row.site, row.metric) == ("gamma", "dice")]
    text = printed([study])
    assert f"{100 * np.mean(dice):.2f}" in text
    assert all(name in text for name in ("gamma", "Avg", "Std", "Images", "FedRep"))


def test_the_terminal_says_how_far_unfinished_runs_came(tmp_path):
    run = write_run(tmp_path, "[A]", stop=3)
    text = printed([run.path])
    assert "[A]" in text
    assert "unfinished: round 3 of 20" in text


def test_reports_are_made_without_torch_and_begin_without_matplotlib():
    code = (
        "import sys, polyclinic.report; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
