from dataclasses import replace

import pytest

from polyclinic.config import to_toml
from tests.config.example import OCTA, SMALLEST, TABLES, Contrast, Projector, load, mistakes


def test_a_bare_name_means_a_table_with_that_name(tmp_path):
    bare = 'task = "octa"\nnetwork = "unet"\nmethod = ["fedavg", {name = "fedprox"}]\n'
    tables = """
        task = {name = "octa"}
        network = {name = "unet"}
        [[method]]
        name = "fedavg"
        [[method]]
        name = "fedprox"
        """
    assert load(tmp_path, bare) == load(tmp_path, tables)


def test_one_method_may_be_a_single_table_and_one_finish_a_single_name(tmp_path):
    study = load(tmp_path, 'task = "octa"\n[method]\nname = "fedavg"\nthen = "finetune"\n')
    assert [piece.name for piece in study.method[0].then] == ["finetune"]


def test_the_defaults_of_a_callable_are_filled_in(tmp_path):
    study = load(tmp_path, 'task = "octa"\nmethod = {name = "fedprox", mu = 2}\n')
    assert study.method[0].settings == {
        "mu": 2.0,
        "projector": Projector(),
        "layers": (16, 32),
        "strength": "learned",
    }
    assert study.network.settings == {"width": 16}
    assert study.task.built == OCTA


def test_settings_fit_the_callable(tmp_path):
    text = 'task = "octa"\nmethod = {name = "fedprox", projector = {depth = 5}, layers = [1, 2]}\n'
    settings = load(tmp_path, text).method[0].settings
    assert settings["projector"] == Projector(depth=5)
    assert settings["layers"] == (1, 2)


def test_a_table_inside_the_settings_is_filled_up_from_the_methods_own_default(tmp_path):
    tables = replace(TABLES, method={"contrast": Contrast})
    text = 'task = "octa"\nmethod = {name = "contrast", projector.width = 3, second.width = 4}\n'
    study = load(tmp_path, text, tables=tables)
    assert study.method[0].settings == {
        "projector": Projector(depth=7, width=3),
        "second": Projector(depth=2, width=4),
    }
    assert load(tmp_path, to_toml(study), tables=tables) == study


def test_a_network_without_a_name_is_the_usual_one(tmp_path):
    network = load(tmp_path, SMALLEST + "[network]\nwidth = 8\n").network
    assert (network.name, network.settings) == ("unet", {"width": 8})


@pytest.mark.parametrize(
    ("method", "key", "told"),
    [
        ("mu = -1", "mu", "= -1: must be at least 0"),
        ('mu = "a"', "mu", "must be a number"),
        ("muh = 1", "muh", "no such setting; did you mean mu?"),
        (
            "tilte = 1",
            "tilte",
            "did you mean title? Allowed: name, title, labels, weak, weighting, then",
        ),
        ("rounds = 1", "rounds", "did you mean federation.rounds?"),
        ("title = 1", "title", "must be text"),
        ('title = ""', "title", "must have a letter or a digit"),
        ("layers = [1, 2.5]", "layers#2", "must be a whole number"),
        ("layers = 3", "layers", "must be a list"),
        ("projector = 3", "projector", "must be a table"),
        ("projector = {depth = 0}", "projector.depth", "must be at least 1"),
        ("projector = {dept = 1}", "projector.dept", "did you mean depth? Allowed: depth, width"),
        ('strength = "learnd"', "strength", "did you mean learned? Allowed: learned, none"),
        ("strength = true", "strength", "must be one of the allowed values or a number"),
        ('then = ["fintune"]', "then.fintune.name", "did you mean finetune?"),
        ("then = [3]", "then#1", "must be the name of a finishing step"),
        ("then = {name = 'finetune', epochs = 0}", "then.finetune.epochs", "at least 1"),
        ("then = {epochs = 1}", "then#1.name", "is required; allowed: finetune"),
    ],
)
def test_a_setting_that_does_not_fit_is_told(tmp_path, method, key, told):
    found = mistakes(tmp_path, f'task = "octa"\n[method]\nname = "fedprox"\n{method}\n')
    key = f"method.fedprox.{key}"
    assert list(found) == [key]
    assert told in found[key]


def test_what_the_program_gives_is_no_setting(tmp_path):
    found = mistakes(tmp_path, SMALLEST + "[network]\nchannels = 3\nwidth = 0\n")
    assert "no such setting" in found["network.channels"]
    assert "must be at least 1" in found["network.width"]


def test_a_setting_without_default_is_required(tmp_path):
    found = mistakes(tmp_path, 'task = "octa"\nmethod = "ranged"\n')
    assert found == {"method.ranged.low": "  method.ranged.low: is required"}


def test_settings_that_a_dataclass_refuses_together_are_told(tmp_path):
    found = mistakes(tmp_path, 'task = "octa"\nmethod = {name = "ranged", low = 3}\n')
    assert found == {"method.ranged": "  method.ranged: low must not be above high"}


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ('method = "fedavg"', "task", "is required; allowed: fundus, octa"),
        ('task = "fundus"', "method", "is required; allowed: fedavg, fedprox, ranged"),
        ('task = "fundus"\nmethod = []', "method", "is required"),
        ('task = "fundas"\nmethod = "fedavg"', "task.name", "did you mean fundus?"),
        ('task = 3\nmethod = "fedavg"', "task", "must be the name of a task or a table"),
        ('task = {name = 3}\nmethod = "fedavg"', "task.name", "there is no such task"),
        ('task = {resolution = 3}\nmethod = "fedavg"', "task.name", "is required"),
        (
            'task = {name = "octa", resolution = 0}\nmethod = "fedavg"',
            "task.resolution",
            "at least 1",
        ),
        (
            'task = {name = "octa", resolutoin = 8}\nmethod = "fedavg"',
            "task.resolutoin",
            "did you mean resolution?",
        ),
        ('task = "octa"\nmethod = "FedAvg"', "method.FedAvg.name", "did you mean fedavg?"),
        ('task = "octa"\nmethod = [4]', "method#1", "must be the name of a method or a table"),
        (SMALLEST + 'network = "unett"', "network.name", "did you mean unet?"),
        (SMALLEST + "network = 3", "network", "must be the name of a network or a table"),
    ],
)
def test_a_name_that_is_not_in_the_table_is_told(tmp_path, text, key, told):
    found = mistakes(tmp_path, text)
    assert list(found) == [key]
    assert told in found[key]


def test_a_method_may_say_what_all_sites_train_on(tmp_path):
    text = (
        'task = "octa"\n[[method]]\nname = "fedavg"\n[[method]]\nname = "fedavg"\nlabels = "mask"\n'
    )
    study = load(tmp_path, text)
    assert [(each.title, each.labels) for each in study.method] == [
        ("FedAvg", None),
        ("FedAvg, mask", "mask"),
    ]
    assert load(tmp_path, to_toml(study)) == study
    found = mistakes(tmp_path, text.replace('"mask"', '"mesk"'))
    assert "mask" in found["method.fedavg#2.labels"]
