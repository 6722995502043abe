import sys
from dataclasses import fields

import pytest

from polyclinic.catalog import BUILT_IN, installed, left_out, outside, things_in
from polyclinic.config import ConfigError, load_study, to_toml
from tests.outside import CODE, IN_FILE, NAMES, study_text, write_package

pytestmark = pytest.mark.usefixtures("forgotten")


def load(folder, names, *overrides, tables=None):
    file = folder / "study.toml"
    file.write_text(study_text(names))
    return load_study(file, overrides, tables or installed())


def told(folder, names, *overrides, tables=None):
    with pytest.raises(ConfigError) as caught:
        load(folder, names, *overrides, tables=tables)
    return {mistake.key: str(mistake) for mistake in caught.value.mistakes}


def test_without_packages_the_tables_are_the_built_in_ones():
    tables = installed()
    for table in ("task", "network", "method", "finish", "kind", "metric", "loss"):
        assert dict(getattr(tables, table)) == dict(getattr(BUILT_IN, table))
        assert len(getattr(tables, table)) == len(getattr(BUILT_IN, table))
    assert left_out() == []


@pytest.mark.usefixtures("package")
def test_an_installed_package_adds_to_every_table_and_is_named_as_the_origin():
    tables = installed()
    for table, name in NAMES.items():
        thing, origin = tables.find(table, name)
        assert thing.__module__ == "fed_mine" or table in ("metric", "task")
        assert str(origin) == "fed-mine 1.2"
        assert str(tables.find(table, next(iter(getattr(BUILT_IN, table))))[1]) == "built in"


@pytest.mark.usefixtures("package")
def test_code_of_a_package_is_not_imported_before_a_study_names_it(tmp_path):
    tables = installed()
    assert "fedmine" in tables.method
    assert "fed_mine" not in sys.modules
    study = load(tmp_path, NAMES, tables=tables)
    assert "fed_mine" in sys.modules
    assert study.packages == {"fed-mine": "1.2"}
    assert study.files == []


@pytest.mark.usefixtures("package")
def test_a_study_with_things_from_a_package_is_built_and_printed_with_their_settings(tmp_path):
    study = load(tmp_path, NAMES)
    (choice,) = study.method
    assert (choice.title, choice.settings) == ("FedMine + Rest", {"pace": 0.25})
    assert study.network.built(channels=1, classes=2).head.in_channels == 3
    assert study.task.built.name == "fovea"
    again = tmp_path / "again.toml"
    again.write_text(to_toml(study))
    assert load_study(again, [], installed()) == study


@pytest.mark.usefixtures("package")
def test_settings_of_a_class_from_outside_are_checked_like_built_in_ones(tmp_path):
    found = told(tmp_path, NAMES, "method.pace=2", "task.resolution=30", "network.widht=2")
    assert "must be at most 1" in found["method.fedmine.pace"]
    assert "did you mean width?" in found["network.widht"]
    found = told(tmp_path, NAMES, "task.resolution=30")
    assert found["task.resolution"] == (
        "task.resolution = 30: must be a multiple of 4 for the network tiny; try 28 or 32"
    )


@pytest.mark.parametrize(("network", "allowed"), [("fcn", 64), ("unet", 48), ("res_unet", 40)])
def test_a_network_states_what_the_resolution_must_be_a_multiple_of(tmp_path, network, allowed):
    file = tmp_path / "study.toml"
    file.write_text(f'task = "octa"\nmethod = "fedavg"\nnetwork = "{network}"\n')
    divisor = BUILT_IN.network[network].divisor
    load_study(file, [f"task.resolution={allowed}"], BUILT_IN)
    with pytest.raises(ConfigError, match=f"multiple of {divisor} for the network {network}; try"):
        load_study(file, [f"task.resolution={allowed - divisor // 2}"], BUILT_IN)


@pytest.mark.usefixtures("package")
def test_a_site_takes_only_what_comes_from_packages_that_it_allows(tmp_path):
    found = told(tmp_path, NAMES, tables=installed(["another"]))
    assert list(found) == [
        "training.loss",
        "evaluation.metrics#2",
        "task.name",
        "network.name",
        "method.fedmine.name",
        "method.fedmine.then.rest.name",
    ]
    for line in found.values():
        assert "comes from the package fed-mine 1.2, whose code does not run here" in line
        assert "allow.packages" in line
    assert "fed_mine" not in sys.modules
    assert load(tmp_path, NAMES, tables=installed(["fed-mine"])).name == "study"


def test_a_package_that_cannot_be_imported_is_told_and_leaves_the_rest_alone(tmp_path, monkeypatch):
    folder = write_package(
        tmp_path / "packages", "broken", code="import nothing_like_it\n",
        methods="ours = broken:Ours", losses="odd = broken",
    )  # fmt: skip
    monkeypatch.syspath_prepend(folder)
    tables = installed()
    with pytest.raises(ValueError, match=r"package broken 1.2, but .*nothing_like_it"):
        tables.find("method", "ours")
    assert tables.find("method", "fedavg")[0] is BUILT_IN.method["fedavg"]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ({"methods": "ours = fed_mine:Tiny"}, "must be a dataclass derived from"),
        ({"methods": "ours = fed_mine:Own"}, "must be a dataclass derived from"),
        ({"networks": "ours = fed_mine:brier"}, "parameters channels and classes"),
        ({"metrics": "ours = fed_mine:brier"}, "must be a polyclinic.evaluation.Metric"),
        ({"losses": "ours = fed_mine:AREA"}, "must be a function of logits and labels"),
        ({"losses": "ours = fed_mine:Nobody"}, "AttributeError"),
        ({"tasks": "ours = fed_mine:FOVEA"}, "its task is called fovea"),
        ({"finishing_steps": "ours = fed_mine:Tiny"}, "a dataclass with a method called stages"),
    ],
)
def test_a_package_that_offers_something_else_is_told(tmp_path, monkeypatch, point, reason):
    code = CODE + "\nclass Own(Method):\n    def __init__(self, secret=1):\n        pass\n"
    monkeypatch.syspath_prepend(write_package(tmp_path / "packages", code=code, **point))
    tables = installed()
    table = next(f.name for f in fields(tables) if "ours" in (getattr(tables, f.name) or ()))
    with pytest.raises(ValueError, match=f"package fed-mine 1.2, but .*{reason}"):
        tables.find(table, "ours")


def test_a_built_in_name_stays_and_the_package_that_wants_it_is_named(tmp_path, monkeypatch):
    folder = write_package(tmp_path / "packages", methods="fedavg = fed_mine:FedMine")
    monkeypatch.syspath_prepend(folder)
    tables = installed()
    assert tables.find("method", "fedavg")[0] is BUILT_IN.method["fedavg"]
    assert str(tables.find("method", "fedavg")[1]) == "built in"
    assert len(tables.method) == len(BUILT_IN.method)
    assert left_out() == [
        "the method fedavg of the package fed-mine 1.2 is left out: the name is taken"
    ]


def test_a_name_that_two_packages_offer_is_refused_with_both(tmp_path, monkeypatch):
    folder = write_package(tmp_path / "packages")
    monkeypatch.syspath_prepend(write_package(folder, "second", "3"))
    with pytest.raises(ValueError, match=r"fed-mine 1\.2 and second 3|second 3 and fed-mine 1\.2"):
        installed().find("method", "fedmine")


def test_a_file_beside_the_study_can_be_named_and_found_again_from_anywhere(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    study = load(tmp_path, IN_FILE)
    (choice,) = study.method
    assert choice.name == f"{tmp_path}/mine.py:FedMine"
    assert (choice.title, choice.settings) == ("FedMine + Rest", {"pace": 0.25})
    assert str(choice.origin) == f"file {tmp_path}/mine.py"
    assert len(study.files) == 5  # a task is data and goes with the study
    run = tmp_path / "runs" / "study.toml"
    run.parent.mkdir()
    run.write_text(to_toml(study))
    assert load_study(run, [], installed()) == study


def test_a_file_in_an_override_is_relative_to_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "study.toml"
    file.write_text('task = "octa"\nmethod = "fedavg"\n')
    overrides = ["method=mine.py:FedMine", "method.mine.py:FedMine.pace=0.5", "method.pace=0.1"]
    (choice,) = load_study(file, overrides, installed()).method
    assert (choice.name, choice.built.pace) == (f"{tmp_path}/here/mine.py:FedMine", 0.1)


def test_an_override_reaches_only_methods_that_have_the_setting(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    file = tmp_path / "study.toml"
    file.write_text('task = "octa"\nmethod = ["mine.py:FedMine", "ditto"]\n')
    first, second = load_study(file, ["method.pull=0.5", "method.pace=0.1"], installed()).method
    assert (first.built.pace, second.built.pull) == (0.1, 0.5)
    with pytest.raises(ConfigError, match=r"method\.mine\.py:FedMine\.pace = 3: must be at most"):
        load_study(file, ["method.pace=3"], installed())


@pytest.mark.parametrize(
    ("name", "table", "reason"),
    [
        ("mien.py:FedMine", "method", r'there is no file .*mien\.py; did you mean "mine\.py"\?'),
        ("mine.py:FedMyne", "method", r'mine\.py has no FedMyne; did you mean "FedMine"\?'),
        ("mine.py:Other", "metric", r"mine\.py has no Other; it has AREA"),
        ("mine.py:Tiny", "method", "must be a dataclass derived from"),
        ("mine.py:AREA", "kind", "must be something that is built in"),
        ("broken.py:A", "method", r"broken\.py cannot be imported: SyntaxError.*line 1"),
        ("json.py:A", "method", "has the name of another module .*give it another name"),
        ("fedavg", "method", "is no name in a file, such as mine.py:FedMine"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path, name, table, reason):
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("def :")
    (tmp_path / "json.py").write_text("A = 1")
    with pytest.raises(ValueError, match=reason):
        outside(name, table, beside=tmp_path)


def test_what_a_file_imports_is_nothing_that_it_offers(tmp_path):
    (tmp_path / "mine.py").write_text(f"from typing import Any, Literal\n{CODE}")
    found = {name for _, name, _ in things_in(tmp_path / "mine.py")}
    assert "FedMine" in found
    assert not found & {"Any", "Literal", "Method", "Task", "Field", "dataclass"}


def test_a_mistake_in_a_file_stands_beside_the_others_of_the_study(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    names = {**IN_FILE, "method": "mine.py:FedMyne", "loss": "mine.py:FedMine"}
    found = told(tmp_path, names, "federation.rounds=0")
    assert list(found) == ["training.loss", "federation.rounds", "method.mine.py:FedMyne.name"]
    assert "must be a function of logits and labels" in found["training.loss"]
