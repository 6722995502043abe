"""What listing, reference and pages tell of methods: all of them, as they are."""

import re
from pathlib import Path

import pytest
from bench.method_costs import cost_of

from polyclinic.config.callables import settings_of
from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.methods.costs import Cost, Exchange, cost_lines, measured_costs


def test_every_method_and_finishing_step_was_measured():
    assert list(measured_costs()) == [*METHODS, *FINISHING_STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedap", "scaffold"])
def test_what_is_measured_anew_is_what_the_file_says(name):
    assert cost_of(name) == measured_costs()[name]


def test_fedavg_is_the_measure_of_the_others():
    fedavg = measured_costs()["fedavg"]
    assert (fedavg.round.down, fedavg.round.up, fedavg.round.steps, fedavg.round.images) == (1,) * 4
    assert (fedavg.site_keeps, fedavg.server_keeps, fedavg.before) == (0, 1, Exchange())


def test_known_ratios_come_out():
    costs = measured_costs()
    assert costs["local"].round.down == 0
    assert costs["scaffold"].round.up == pytest.approx(2, abs=0.01)
    assert costs["ditto"].round.steps == 2
    assert costs["fedadam"].server_keeps == pytest.approx(3, abs=0.01)
    assert costs["finetune"].after.steps == 20
    assert costs["igc"].after.sends == ("extra disclosed",)


def test_a_cost_in_words_names_what_travels_and_what_is_kept():
    each = Exchange(receives=("head",), sends=("head",), down=0.5, up=0.0001, steps=1, images=2)
    told = cost_lines(Cost(network="unet", round=each, keeps=("encoder",), site_keeps=0.5))
    assert told == [
        "each round: down 0.5× (head), up < 0.001× (head), steps 1×, images trained on 2×",
        "kept between rounds: at a site 0.5× (encoder), at the server 0×",
    ]


@pytest.mark.parametrize("name", [*METHODS, *FINISHING_STEPS])
def test_every_setting_says_what_it_means(name):
    thing = METHODS.get(name) or FINISHING_STEPS[name]
    assert [each.name for each in settings_of(thing) if not each.meaning] == []


def test_the_page_for_choosing_a_method_lists_them_all():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    tables = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    shown = {*re.findall(r"`([\w-]+)`", tables), *re.findall(r'then = \["(\w+)"\]', tables)}
    assert shown == {*METHODS, *FINISHING_STEPS}
