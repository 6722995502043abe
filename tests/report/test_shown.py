"""Figures with their captions, the files they become, and the words for a paper."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.networks import NETWORKS
from polyclinic.report import write_report
from polyclinic.report.figures.curves import watched_by_site
from polyclinic.report.figures.mixtures import mixtures
from polyclinic.report.figures.same_cases import same_cases
from polyclinic.report.figures.shown import shown_figures
from polyclinic.report.figures.sweeps import cost_figure, effort_figure, sweeps
from polyclinic.report.methods_text import methods_paragraph
from polyclinic.report.reading import read_runs
from polyclinic.report.references import METHODS as PAPERS
from polyclinic.report.references import NETWORKS as WRITTEN
from polyclinic.report.references import bibtex
from polyclinic.runs import DIAGNOSED, SIZES, Embedded, RoundTable, Score, write_embeddings
from tests.report.invented import drawing, write_run
from tests.report.reading_pages import texts


def named(run, old, new):
    path = run.path / "study.toml"
    path.write_text(path.read_text().replace(old, new))
    return run


@pytest.fixture
def swept(tmp_path):
    """Two methods, each with three values of a setting, and another that has none."""
    number = 0
    for name in ("one", "two"):
        for value in (0.1, 0.01, 1.0):
            number += 1
            title = f"{name} {value}"
            run = write_run(tmp_path, title, metrics=("dice", "hd95"), started=f"2026-0{number}")
            named(run, 'name = "invented"', f'name = "{name}"\npull = {value}')
    named(write_run(tmp_path, "Other", metrics=("dice", "hd95"), started="2027"), "invented", "x")
    return read_runs([tmp_path / "demo"])


def test_a_setting_that_alone_differs_is_drawn_against_the_scores(swept):
    (found,) = sweeps(swept)
    assert found.setting == "method.pull"
    assert [title for title, _ in found.lines] == ["one", "two"]
    for _, points in found.lines:
        assert [value for value, _ in points] == [0.01, 0.1, 1.0]
    words = texts(found.figure)
    assert {"pull", "one", "two", "0.01", "1.0"} <= set(words)
    dots = [line for line in found.figure.figure.axes[0].lines if line.get_marker() == "."]
    assert len(dots) == 2 * len(swept.sites)
    own = swept.methods[1].runs[0].summaries["dice"]["overall"].sites["alpha"].mean
    assert dots[0].get_ydata()[0] == pytest.approx(100 * own)  # "one" at 0.01


def test_lines_of_one_method_are_named_by_what_sets_them_apart(tmp_path):
    for number, (first, second) in enumerate([(0.1, 1), (0.1, 2), (1.0, 1), (1.0, 2)]):
        run = write_run(tmp_path, f"{first} {second}", started=f"2026-0{number + 1}")
        named(run, 'name = "invented"', f'name = "one"\npull = {first}\ndeep = {second}')
    pull, deep = sweeps(read_runs([tmp_path / "demo"]))
    assert [name for name, _ in pull.lines] == ["one (deep=1)", "one (deep=2)"]
    assert [name for name, _ in deep.lines] == ["one (pull=0.1)", "one (pull=1)"]
    assert {"(deep=1)", "(deep=2)"} <= set(texts(pull.figure))


def test_words_are_swept_in_the_order_of_the_study(tmp_path):
    for number, way in enumerate(("random", "fixed", "alike")):
        run = write_run(tmp_path, way, metrics=("dice",), started=f"2026-0{number + 1}")
        named(run, "[federation]", f'[federation]\ncombine = "{way}"')
    (found,) = sweeps(read_runs([tmp_path / "demo"]))
    assert [value for value, _ in found.lines[0][1]] == ["random", "fixed", "alike"]


def test_runs_that_differ_in_several_settings_are_no_sweep(tmp_path):
    named(write_run(tmp_path, "A"), "batch = 12", "batch = 6\nsteps = 1")
    write_run(tmp_path, "B", started="2027")
    assert sweeps(read_runs([tmp_path / "demo"])) == []


def test_the_same_cases_stand_in_a_grid_of_sites_and_methods(tmp_path):
    for title in ("A", "B"):
        run = write_run(tmp_path, title, sites=("alpha", "beta"), metrics=("dice",))
        for site in ("alpha", "beta"):
            drawing(site, "case-03", 0.1).save(run.picture_path(site, "middle", "case-03"))
    (found,) = same_cases(read_runs([tmp_path / "demo"]))
    assert found.size in SIZES
    words = texts_of(found.figure)
    assert {"A", "B", "alpha", "beta"} <= set(words)
    assert sum(word.startswith("Dice ") for word in words) == 4
    value = read_runs([tmp_path / "demo"]).methods[0].runs[0].tested["dice", "disc", "alpha"]
    assert any(f"{100 * value['case-03']:.2f}" in word for word in words)


def test_many_methods_stand_in_bands_that_name_the_sites_again(tmp_path):
    titles = [f"method {number:02}" for number in range(11)]
    for title in titles:
        run = write_run(tmp_path, title, sites=("alpha",), metrics=("dice",), rounds=1)
        drawing("alpha", "case-03", 0.1).save(run.picture_path("alpha", "middle", "case-03"))
    (found,) = same_cases(read_runs([tmp_path / "demo"]))
    words = texts_of(found.figure)
    assert [word for word in words if word in titles] == titles
    assert words.count("alpha") == 2
    assert sum(word.startswith("Dice ") for word in words) == len(titles)


def texts_of(figure):
    """The words of a figure that is a photograph on the page."""
    import base64

    svg = base64.b64encode(figure.file("svg")).decode()
    return texts(f"data:image/svg+xml;base64,{svg}")


def test_a_mixture_is_a_histogram_at_each_site(tmp_path):
    run = write_run(tmp_path, "FedALA", sites=("alpha", "beta"))
    columns = ("area", *(f"W {n / 10:.1f}-{(n + 1) / 10:.1f}" for n in range(10)))
    values = tuple((1.0, *np.eye(10)[place]) for place in (0, 9))
    table = RoundTable(
        round=3, name=DIAGNOSED, rows=("alpha", "beta"), columns=columns, values=values
    )
    run.append(tables=[table])
    (found,) = mixtures(read_runs([run.path]))
    bars = [panel.patches for panel in found.figure.figure.axes]
    heights = [[bar.get_height() for bar in each] for each in bars]
    assert heights == [[100.0, *[0.0] * 9], [*[0.0] * 9, 100.0]]


def test_scores_stand_against_bytes_and_against_effort(swept, tmp_path):
    assert "traffic of a run, all sites, both ways (MB)" in texts(cost_figure(swept))
    shown = {each.name: each for each in shown_figures(swept)}["score-against-effort"]
    assert "nobody's effort was measured" in shown.caption
    words = texts(effort_figure(swept))
    assert {"scribble", "2 strokes", "point", "8 clicks", "mask"} <= set(words)


def test_effort_is_that_of_each_method_s_own_labels(tmp_path):
    for number, kind in enumerate(("point", "box", "mask")):
        run = write_run(tmp_path, kind, metrics=("dice",), started=f"2026-0{number + 1}")
        about = run.about()
        sites = tuple(replace(site, kind=kind) for site in about.sites)
        run.write_about(about.model_copy(update={"sites": sites}))
    words = texts(effort_figure(read_runs([tmp_path / "demo"])))
    assert {"point", "box", "mask"} <= set(words)
    assert "scribble" not in words


def test_test_cases_that_were_watched_have_a_panel_for_each_site(tmp_path):
    run = write_run(tmp_path, "A", sites=("alpha", "beta"), metrics=("dice",))
    assert watched_by_site(read_runs([run.path])) == []
    rows = (Score(n, "watch", s, "c", "disc", "iou", n / 9) for n in (1, 2) for s in ("alpha",))
    run.append(scores=rows)
    ((title, drawing),) = watched_by_site(read_runs([run.path]))
    assert title == "TEST IoU (%)"
    lines = [list(panel.lines[0].get_ydata()) for panel in drawing.figure.axes if panel.lines]
    assert lines == [pytest.approx([100 / 9, 200 / 9])]


@pytest.mark.slow
def test_every_figure_has_a_name_of_its_own_a_title_and_a_caption(swept):
    for run in swept.runs:
        for site in swept.sites:
            values = np.random.default_rng(0).normal(size=(9, 4))
            table = [Embedded("after", np.arange(9) % 3, values)]
            write_embeddings(run.folder.embeddings_path(site), table)
            write_embeddings(run.folder.features_path(site), table)
    found = shown_figures(swept)
    assert len({each.name for each in found}) == len(found)
    assert all(each.title and each.caption.endswith((".", ")")) for each in found)
    sections = {each.section for each in found}
    assert sections == {"learning", "sweeps", "inside", "cases", "costs"}


def test_figures_are_written_as_svg_pdf_and_png_with_their_captions(tmp_path):
    run = write_run(tmp_path, "A", sites=("alpha",), regions=("disc",), metrics=("dice",))
    write_report([run.path], tmp_path / "out", files=True)
    folder = tmp_path / "out" / "figures"
    names = {path.stem for path in folder.iterdir()} - {"captions"}
    assert "validation" in names
    assert (folder / "validation.pdf").read_bytes().startswith(b"%PDF")
    assert ">A<" in (folder / "validation.svg").read_text()  # the method is named in print
    with Image.open(io.BytesIO((folder / "validation.png").read_bytes())) as image:
        assert image.size[0] > 1000
    captions = (folder / "captions.md").read_text()
    assert all(f"**{name}.**" in captions for name in names)


def test_every_method_from_a_paper_has_its_reference():
    ours = {"local", "centralized", "consensus"}
    assert {*METHODS, *FINISHING_STEPS} - set(PAPERS) == ours
    assert set(PAPERS) <= {*METHODS, *FINISHING_STEPS}


def test_every_network_has_its_references():
    assert set(WRITTEN) == set(NETWORKS)
    text = bibtex([], ["pvt_fpn", "resnet_fpn"])
    assert re.findall(r"^@(\w+)\{(.+),$", text, re.M) == [
        ("article", "pvt"),
        ("inproceedings", "fpn"),
        ("inproceedings", "resnet"),
    ]


def test_what_appeared_only_as_a_preprint_is_neither_article_nor_talk():
    assert bibtex(["fedper"], []).startswith("@misc{fedper,")
    assert bibtex(["fedap"], []).startswith("@article{fedap,")


def test_the_bibtex_has_each_publication_once_and_is_balanced():
    text = bibtex(["fedavg", "pflfe", "fc-pflfe", "mine"], ["unet"])
    assert re.findall(r"^@\w+\{(.+),$", text, re.M) == ["fedavg", "pflfe", "unet"]
    assert text.count("{") == text.count("}")
    assert "eprint = {1602.05629}" in text


def test_the_paragraph_tells_what_was_run(swept):
    text = methods_paragraph(swept)
    assert "We segmented disc and cup (task fundus) with 4 sites" in text
    assert "220 training, 24 validation and 48 test images" in text
    assert "20 rounds" in text
    assert "adamw (learning rate 0.01, batches of 12)" in text
    assert "labels (mask, scribble, point, block)" in text
