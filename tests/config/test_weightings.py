from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from polyclinic.config import load_study, to_toml, uniform_row_told, weighting_of
from tests.config import example
from tests.config.example import load, mistakes


@dataclass(frozen=True)
class Alike:
    """A method whose authors count sites alike."""

    paper_weighting: ClassVar[str] = "uniform"


@dataclass(frozen=True)
class Alone:
    """A method without an average."""

    paper_weighting: ClassVar[str] = ""


TABLES = replace(example.TABLES, method={**example.TABLES.method, "alike": Alike, "alone": Alone})


def study(folder, methods, federation=""):
    text = f'task = "octa"\nmethod = {methods}\n[federation]\n{federation}\n'
    return load(folder, text, tables=TABLES)


def counted(folder, methods, federation=""):
    found = study(folder, methods, federation)
    return {
        each.title: weighting_of(each.built, each.weighting, found.federation)
        for each in found.method
    }


def test_every_method_counts_sites_as_the_study_says(tmp_path):
    methods = '["fedavg", "alike", "alone"]'
    assert counted(tmp_path, methods) == {"FedAvg": "samples", "Alike": "samples", "Alone": ""}
    uniform = counted(tmp_path, methods, 'weighting = "uniform"')
    assert uniform == {"FedAvg": "uniform", "Alike": "uniform", "Alone": ""}


def test_the_papers_weights_bring_fedavg_with_equal_ones_along(tmp_path):
    expected = {"FedAvg": "samples", "FedAvg, uniform": "uniform", "Alike": "uniform"}
    assert counted(tmp_path, '["fedavg", "alike"]', 'weighting = "paper"') == expected
    own = '["fedavg", {name = "alike", weighting = "paper", title = "Alike"}]'
    assert counted(tmp_path, own) == expected


@pytest.mark.parametrize(
    ("methods", "federation"),
    [
        ('["fedavg", "alike"]', 'weighting = "samples"'),  # nobody counts sites alike
        ('["fedavg", "alike"]', 'weighting = "uniform"'),  # FedAvg does, too
        ('["fedprox", "alike"]', 'weighting = "paper"'),  # there is no FedAvg to compare with
        ('["fedavg", "alike"]', 'weighting = "paper"\nuniform_row = false'),
        ('["fedavg", {name = "fedavg", weighting = "uniform"}, "alike"]', 'weighting = "paper"'),
        ('["fedavg", "alike"]', 'combine = "median"'),
    ],
)
def test_no_row_is_added_where_it_would_say_nothing_or_is_not_wanted(tmp_path, methods, federation):
    assert len(study(tmp_path, methods, federation).method) == methods.count("fed") + 1


def test_an_entry_has_its_own_weights_in_its_title_only_where_they_differ(tmp_path):
    methods = '[{name = "fedprox", weighting = "uniform"}, {name = "alike", weighting = "samples"}]'
    assert counted(tmp_path, methods) == {"FedProx, uniform": "uniform", "Alike": "samples"}


def test_the_row_that_was_added_is_told_and_can_be_read_again(tmp_path):
    found = study(tmp_path, '["fedavg", "alike"]', 'weighting = "paper"')
    told = uniform_row_told(found.method, found.federation)
    assert told.startswith(
        "FedAvg, uniform stands beside FedAvg because sites count alike in Alike"
    )
    assert "federation.uniform_row = false" in told
    file = tmp_path / "again.toml"
    file.write_text(to_toml(found))
    assert load_study(file, [], TABLES).method == found.method
    plain = study(tmp_path, '["fedavg", "alike"]')
    assert uniform_row_told(plain.method, plain.federation) == ""


def test_a_weighting_without_effect_is_refused(tmp_path):
    start = 'task = "octa"\nmethod = [{name = "%s", weighting = "uniform"}]\n'
    (line,) = mistakes(tmp_path, start % "alone", tables=TABLES).values()
    assert "the method averages nothing" in line
    rule = start % "fedavg" + '[federation]\ncombine = "median"\n'
    (line,) = mistakes(tmp_path, rule, tables=TABLES).values()
    assert 'federation.combine = "median"' in line
    (line,) = mistakes(
        tmp_path, (start % "fedavg").replace("uniform", "unifrom"), tables=TABLES
    ).values()
    assert "uniform" in line
