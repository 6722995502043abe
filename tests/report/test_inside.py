"""Embeddings and maps of attention on the page."""

import numpy as np
import pytest
from PIL import Image

from polyclinic.evaluation.statistics import separation
from polyclinic.report import write_report
from polyclinic.report.exports import to_latex
from polyclinic.report.figures.embeddings import embedding_figures
from polyclinic.report.pictures import _side, attention_maps
from polyclinic.report.reading import read_runs
from polyclinic.report.separations import separation_sheet
from polyclinic.runs import Embedded, read_embeddings, write_embeddings
from tests.report.invented import SITES, generator, write_run
from tests.report.reading_pages import Page, texts


def add_embeddings(run, sites=SITES[:4], pixels=30, moments=("before", "after")):
    for site in sites:
        rng = generator("embeddings", site)
        classes = np.arange(pixels) % 3
        spread = {"before": 0.0, "after": 4.0}
        tables = [
            Embedded(
                moment, classes, rng.normal(size=(pixels, 6)) + spread[moment] * np.eye(6)[classes]
            )
            for moment in moments
        ]
        write_embeddings(run.embeddings_path(site), tables)


def add_attention(
    run,
    site="alpha",
    names=("own query", "query of beta"),
    cases=("c1", "c2"),
    shows="attention",
):
    for case in cases:
        for name in names:
            path = run.attention_path(site, name, case, shows)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 64), "blue").save(path)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path, "VirtualClasses", cases=3)


def test_embeddings_are_drawn_before_and_after_by_class_and_by_site(run):
    add_embeddings(run)
    (figure,) = embedding_figures(read_runs([run.path]))
    assert (figure.method, figure.seed, figure.channels) == ("VirtualClasses", 0, 6)
    words = set(texts(figure.figure))
    assert {"before training, PCA by class", "after training, t-SNE by site"} <= words
    assert {"background", "disc", "cup", *SITES[:4]} <= words
    assert figure == embedding_figures(read_runs([run.path]))[0]
    assert 0 <= figure.separation["before"] < 0.5 < figure.separation["after"]


def test_many_pixels_are_thinned_and_a_moment_may_be_missing(run):
    add_embeddings(run, pixels=300, moments=("after",))
    (figure,) = embedding_figures(read_runs([run.path]))
    assert not any("before" in word for word in texts(figure.figure) if word)


def test_separation_is_each_site_s_own_where_channels_mean_something_else_at_each(run):
    rng, classes = generator("apart"), np.arange(40) % 2
    for sign, site in zip((1, -1, 1, -1), SITES[:4], strict=True):
        values = rng.normal(size=(40, 2)) + sign * 10 * classes[:, None]
        write_embeddings(run.embeddings_path(site), [Embedded("after", classes, values)])
    (figure,) = embedding_figures(read_runs([run.path]))
    assert figure.separation["after"] > 40  # pooled over the sites it would be about 25


def test_separation_has_a_table_with_each_site_and_their_mean(tmp_path, run):
    write_run(tmp_path, "Other", cases=3, started="2027")
    add_embeddings(run)
    sheet = separation_sheet(read_runs([run.path.parents[1]]))
    assert [row[0].text for row in sheet.rows] == ["VirtualClasses"]
    assert sheet.heads == ("Method", *SITES[:4], "Avg", *SITES[:4], "Avg")
    before, after = sheet.rows[0][1:6], sheet.rows[0][6:]
    for half in (before, after):
        assert half[-1].number == pytest.approx(np.mean([each.number for each in half[:-1]]))
    table = next(t for t in read_embeddings(run.embeddings_path("beta")) if t.moment == "after")
    assert after[1].number == pytest.approx(separation(table.values, table.classes > 0))
    assert max(each.number for each in before) < min(each.number for each in after)
    assert to_latex(sheet).count(r"\cmidrule") == 2


def test_methods_without_embeddings_and_unfinished_ones_have_no_figure(tmp_path, run):
    unfinished = write_run(tmp_path, "Other", stop=2)
    add_embeddings(unfinished)
    assert embedding_figures(read_runs([run.path, unfinished.path])) == []


def test_attention_is_a_row_per_case_and_a_column_per_name(run):
    add_attention(run)
    run.attention_path("alpha", "query of beta", "c2").unlink()
    ((shown,),) = attention_maps(read_runs([run.path])).values()
    assert (shown.method, shown.site) == ("VirtualClasses", "alpha")
    assert shown.names == ("own query", "query of beta")
    assert [case for case, _ in shown.rows] == ["c1", "c2"]
    assert [[bool(source) for source in row] for _, row in shown.rows] == [
        [True, True],
        [True, False],
    ]


@pytest.mark.slow
def test_the_page_has_the_section_only_where_there_is_something_to_show(tmp_path, run):
    page = Page(write_report([run.path], tmp_path / "without").read_text("utf-8"))
    assert "inside" not in page.ids
    add_embeddings(run)
    add_attention(run)
    page = Page(write_report([run.path], tmp_path / "with").read_text("utf-8"))
    assert page.unclosed == []
    assert "inside" in page.ids
    alternatives = [alt for alt, _ in page.images]
    assert any(alt.startswith("VirtualClasses: embeddings of pixels") for alt in alternatives)
    assert "alpha, c1, VirtualClasses, where it looks: own query" in alternatives
    assert all(source.startswith("data:image/") for _, source in page.images)


def test_virtual_classes_and_contexts_of_prompts_are_not_called_attention(tmp_path, run):
    add_attention(run, names=("virtual classes",), shows="classes")
    text = write_report([run.path], tmp_path / "classes").read_text("utf-8")
    assert "VirtualClasses: virtual classes at alpha" in text
    assert "They have no order" in text
    assert "attention at" not in text
    assert "looks most" not in text
    other = write_run(tmp_path, "FedLPPA", cases=3, started="2027")
    add_attention(other, names=("context of prompts",), shows="context")
    add_attention(other, site="beta")
    add_attention(other, names=("alpha", "beta"), shows="models")
    text = write_report([run.path, other.path], tmp_path / "all").read_text("utf-8")
    assert "FedLPPA: context of prompts at alpha" in text
    assert "FedLPPA: attention at beta" in text
    assert "FedLPPA: the models of all sites at alpha" in text
    assert text.index("VirtualClasses: virtual classes at") < text.index("They have no order")


def test_of_many_sites_those_of_the_page_are_projected_and_told_apart(tmp_path):
    sites = tuple(f"site{number:02}" for number in range(40))
    run = write_run(tmp_path, "A", sites=sites, pictures=False, cases=1, rounds=1)
    add_embeddings(run, sites, moments=("after",))
    (found,) = embedding_figures(read_runs([run.path]))
    by_class, by_site = found.figure.figure.axes[0], found.figure.figure.axes[2]
    assert sum(len(each.get_offsets()) for each in by_class.collections) == 480
    assert [each.get_label() for each in by_site.collections] == list(sites[:30])
    looks = {
        (tuple(each.get_facecolor()[0]), each.get_paths()[0].vertices.tobytes())
        for each in by_site.collections
    }
    assert len(looks) == 30


@pytest.mark.parametrize("pictures", [1, 60, 600, 1800])
def test_pictures_of_a_section_share_what_a_page_may_weigh(pictures):
    side = _side(pictures)
    assert 96 <= side <= 320
    assert pictures * 0.4 * side**2 < 7e6
