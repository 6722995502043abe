import math

import numpy as np
import pytest

from polyclinic.report.figures.curves import (
    _losses,
    loss_figure,
    site_figure,
    traffic_figure,
    validation_figure,
)
from polyclinic.report.figures.distributions import distribution_figure
from polyclinic.report.figures.style import style
from polyclinic.report.reading import read_runs
from polyclinic.runs import RoundLine
from tests.report.invented import SITES, write_run
from tests.report.reading_pages import texts


def test_figures_hold_real_text(study):
    comparison = read_runs([study])
    assert "Validation Dice (%), mean over sites" in texts(validation_figure(comparison))
    assert "Training loss, mean over sites" in texts(loss_figure(comparison))
    assert set(SITES[:4]) <= set(texts(site_figure(comparison)))
    assert "Traffic so far, all sites, both ways (GB)" in texts(traffic_figure(comparison))
    words = texts(distribution_figure(comparison, "dice", "disc"))
    assert {"FedAvg", "FedRep", *SITES[:4]} <= set(words)


def test_the_same_runs_give_the_same_figures(study):
    first, second = (validation_figure(read_runs([study])) for _ in range(2))
    assert first == second


def test_before_the_first_round_there_are_no_figures(tmp_path):
    run = write_run(tmp_path, "A", stop=1)
    (run.path / "rounds.jsonl").unlink()
    comparison = read_runs([run.path])
    assert validation_figure(comparison) is None
    assert loss_figure(comparison) is None
    assert site_figure(comparison) is None
    assert traffic_figure(comparison) is None


def test_names_of_any_script_and_with_dollars_are_drawn_as_they_are(tmp_path):
    run = write_run(tmp_path, "$a$ 名", sites=("$x_1$", "病院"))
    words = texts(distribution_figure(read_runs([run.path]), "dice", "disc"))
    assert {"$a$ 名", "$x_1$", "病院"} <= set(words)


def test_a_long_label_is_cut_in_figures(tmp_path):
    run = write_run(tmp_path, "A" * 60)
    assert "A" * 25 + "…" in texts(distribution_figure(read_runs([run.path]), "dice", "disc"))


def test_more_sites_than_columns_go_on_in_the_next_row(tmp_path):
    sites = tuple(f"site{number}" for number in range(8))
    run = write_run(tmp_path, "A", sites=sites, pictures=False, cases=3)
    comparison = read_runs([run.path])
    assert set(sites) <= set(texts(distribution_figure(comparison, "dice", "disc")))
    assert set(sites) <= set(texts(site_figure(comparison)))


def test_only_the_loss_a_round_ends_with_is_drawn(tmp_path):
    run = write_run(tmp_path, "A", rounds=1, sites=("alpha",))
    (run.path / "rounds.jsonl").unlink()
    stages = {"enhance": 7.0, "fit": 1.0}
    run.append([RoundLine(round=1, stage=n, site="alpha", loss=loss) for n, loss in stages.items()])
    (read,) = read_runs([run.path]).runs
    assert _losses(read) == {1: 1.0}


def test_losses_that_are_no_numbers_leave_a_gap(tmp_path):
    run = write_run(tmp_path, "A", stop=3)
    run.append([RoundLine(round=4, stage="fit", site="alpha", loss=math.nan)])
    assert loss_figure(read_runs([run.path])) is not None


def test_the_first_two_dozen_methods_all_look_different():
    looks = {(style(index).colour, style(index).dashes) for index in range(24)}
    assert len(looks) == 24


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("index", range(8))
def test_every_colour_stands_out_from_the_white_page(index):
    assert 1.05 / (luminance(style(index).colour) + 0.05) > 2


def test_a_single_round_has_a_single_tick(tmp_path):
    write_run(tmp_path, "A", rounds=1, cases=2)
    drawn = traffic_figure(read_runs([tmp_path / "demo"]))
    for panel in drawn.figure.axes:
        low, high = panel.get_xlim()
        assert [tick for tick in panel.get_xticks() if low < tick < high] == [1]
        assert all(line.get_marker() == "o" for line in panel.lines)
