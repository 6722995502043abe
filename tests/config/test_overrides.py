import math

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.config.overrides import parse_value
from tests.config.example import FUNDUS, SMALLEST, load, mistakes

TWO = 'task = "octa"\nmethod = ["fedavg", "fedprox", {name = "fedprox", mu = 3, title = "far"}]\n'
SITES = SMALLEST + 'site = ["a", "b", "a.b"]\n'

scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def mu(study):
    return [method.settings.get("mu") for method in study.method]


def test_an_override_replaces_what_the_file_says_and_the_last_one_wins(tmp_path):
    text = SMALLEST + "[training]\nbatch = 8\n"
    assert load(tmp_path, text, "training.batch=4").training.batch == 4
    assert load(tmp_path, text, "training.batch=4", "training.batch = 5").training.batch == 5


def test_an_override_makes_the_tables_it_needs(tmp_path):
    study = load(tmp_path, SMALLEST, "training.augmentation.flips=false", "seeds=[1, 2]")
    assert study.training.augmentation.flips is False
    assert study.seeds == (1, 2)


def test_a_name_needs_no_quotes(tmp_path):
    study = load(tmp_path, SMALLEST, "task=octa", "name=my study", "training.loss=ce+dice")
    assert (study.task.name, study.name, study.training.loss) == ("octa", "my study", "ce+dice")


def test_a_setting_of_a_task_or_network_named_by_a_bare_string_can_be_set(tmp_path):
    study = load(tmp_path, SMALLEST, "task.resolution=64", "network.width=4")
    assert study.task.built == FUNDUS.with_resolution(64)
    assert study.network.settings == {"width": 4}


def test_a_setting_of_methods_goes_to_all_that_have_it(tmp_path):
    assert mu(load(tmp_path, TWO, "method.mu=0.5", "method.fedprox#2.layers=[1]")) == [
        None,
        0.5,
        0.5,
    ]


def test_a_setting_of_a_named_method_goes_to_it_alone(tmp_path):
    text = 'task = "octa"\nmethod = ["fedprox", {name = "ranged", low = 0}]\n'
    study = load(tmp_path, text, "method.ranged.high=2", "method.fedprox.mu=7")
    assert mu(study) == [7, None]
    assert study.method[1].settings == {"low": 0.0, "high": 2.0}


def test_one_of_two_methods_of_a_name_is_called_by_its_number(tmp_path):
    assert mu(load(tmp_path, TWO, "method.fedprox#2.mu=9")) == [None, 0.01, 9]
    assert mu(load(tmp_path, TWO, "method.fedprox#1.mu=9")) == [None, 9, 3]
    assert mu(load(tmp_path, TWO, "method.fedprox.mu=9")) == [None, 9, 9]
    wrong = mistakes(tmp_path, TWO, "method.fedprox#1.mu=far")
    assert wrong["method.fedprox.mu"].endswith("(given by --set)")
    assert mu(load(tmp_path, TWO, "method.fedprox.mu=9", "method.fedprox.layers=[]")) == [
        None,
        9,
        9,
    ]


def test_settings_inside_a_setting_and_inside_finishing_steps_can_be_set(tmp_path):
    text = 'task = "octa"\nmethod = {name = "fedprox", then = "finetune"}\n'
    overrides = ["method.projector.depth=7", "method.then.epochs=4"]
    method = load(tmp_path, text, *overrides).method[0]
    assert method.settings["projector"].depth == 7
    assert method.then[0].settings == {"epochs": 4}
    assert load(tmp_path, text, "method.fedprox.then.finetune.epochs=5").method[0].then[
        0
    ].settings == {"epochs": 5}


def test_all_methods_can_be_replaced(tmp_path):
    assert [m.name for m in load(tmp_path, TWO, "method=ranged", "method.low=0").method] == [
        "ranged"
    ]
    assert len(load(tmp_path, TWO, 'method=["fedavg", "fedprox"]').method) == 2
    assert len(load(tmp_path, TWO, "method.then=finetune").method[0].then) == 1


def test_a_site_is_called_by_its_name_even_with_a_dot(tmp_path):
    def kinds(*overrides):
        return [site.labels for site in load(tmp_path, SITES, *overrides).site]

    assert kinds("site.labels=box") == ["box"] * 3
    assert kinds("site.a.labels=box") == ["box", None, None]
    assert kinds("site.a.b.labels=box") == [None, None, "box"]


def test_a_mistake_of_an_override_says_so(tmp_path):
    (line,) = mistakes(tmp_path, SMALLEST + "training.batch = 3\n", "training.batch=-3").values()
    assert line == "  training.batch = -3: must be at least 1 (given by --set)"
    (line,) = mistakes(tmp_path, SMALLEST + "training.batch = -3\n", "training.loss=ce").values()
    assert "--set" not in line
    (line,) = mistakes(tmp_path, SMALLEST, "seeds=[-1]").values()
    assert line == "  seeds#1 = -1: must be at least 0 (given by --set)"


@pytest.mark.parametrize(
    ("override", "key", "told"),
    [
        ("training.batch", "--set training.batch", "must look like key=value"),
        ("=4", "--set =4", "must look like key=value"),
        ("training..batch=4", "--set training..batch=4", "must look like key=value"),
        ("training.=4", "--set training.=4", "must look like key=value"),
        ("name.first=4", "--set name.first=4", "name is not a table"),
        ("trainig.batch=4", "trainig", "no such setting; did you mean training?"),
        ("training.bach=4", "training.bach", "did you mean batch?"),
        ("method.muh=4", "--set method.muh=4", "did you mean mu? Allowed: fedavg, fedprox"),
        ("method.fedprx.mu=4", "--set method.fedprx.mu=4", "did you mean fedprox?"),
        ("method.fedavg.mu=4", "method.fedavg.mu", "there is no such setting"),
        ("site.a.labels=box", "--set site.a.labels=box", "there is no site of this name"),
    ],
)
def test_an_override_that_sets_nothing_is_told(tmp_path, override, key, told):
    found = mistakes(tmp_path, TWO, override)
    assert list(found) == [key]
    assert told in found[key]


def test_entries_that_are_no_tables_do_not_stop_the_search_for_mistakes(tmp_path):
    text = 'task = "octa"\nmethod = [3, "fedawg"]\nsite = [4]\n'
    found = mistakes(tmp_path, text, "method.mu=1", "site.labels=box")
    assert list(found) == ["--set site.labels=box", "site#1", "method#1", "method.fedawg.name"]


@settings(deadline=None)
@given(scalars | st.lists(scalars))
def test_a_toml_value_is_read_as_itself(value):
    text = tomli_w.dumps({"x": value}).removeprefix("x = ")
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_gives_a_value_and_no_second_key(text):
    value = parse_value(text)
    if isinstance(value, str):
        assert value in text or text.strip()[0] in "\"'"


def test_values_fall_back_to_text():
    assert parse_value("adamw") == "adamw"
    assert parse_value(" 1e-3 ") == 0.001
    assert parse_value("") == ""
    assert parse_value("1\nb = 2") == "1\nb = 2"
    assert math.isinf(parse_value("inf"))
