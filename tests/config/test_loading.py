import subprocess
import sys

import pytest

from polyclinic.config import ConfigError, DataSettings, TrainingSettings, load_study
from tests.config.example import SMALLEST, TABLES, load, mistakes


def test_a_task_and_a_method_are_all_that_a_study_needs(tmp_path):
    study = load(tmp_path, SMALLEST)
    assert study.name == "demo"
    assert study.seeds == (0,)
    assert (study.task.name, study.network.name) == ("fundus", "unet")
    assert [method.title for method in study.method] == ["FedAvg"]
    assert study.site == ()
    assert study.data == DataSettings()
    assert study.training == TrainingSettings()
    assert (study.training.iterations, study.training.epochs) == (10, None)


def test_every_key_of_every_section_arrives(tmp_path):
    study = load(
        tmp_path,
        """
        name = "all"
        seeds = [3, 1]
        [task]
        name = "octa"
        resolution = 128
        [data]
        seed = 7
        size = 0.5
        split = [0.5, 0.25, 0.25]
        folds = 5
        fold = 4
        [[site]]
        name = "alpha"
        labels = "scribble"
        [[site]]
        name = "beta"
        [network]
        name = "classic_unet"
        copy = false
        [[method]]
        name = "fedprox"
        title = "ours"
        mu = 1
        then = [{name = "finetune", epochs = 3}]
        [training]
        optimizer = "sgd"
        momentum = 0.5
        epochs = 2
        clip_norm = 12
        [training.augmentation]
        rotation = 0
        [federation]
        rounds = 3
        statistics = "private"
        [evaluation]
        every = 0
        metrics = ["dice"]
        choose = "last"
        [engine]
        workers = 2
        device = "cuda:1"
        """,
    )
    assert (study.name, study.seeds, study.task.built.resolution) == ("all", (3, 1), 128)
    assert study.data == DataSettings(seed=7, size=0.5, split=(0.5, 0.25, 0.25), folds=5, fold=4)
    assert [(site.name, site.labels) for site in study.site] == [
        ("alpha", "scribble"),
        ("beta", None),
    ]
    assert study.network.settings == {"copy": False}
    method = study.method[0]
    assert (method.title, method.settings["mu"]) == ("ours", 1.0)
    assert [(piece.name, piece.settings) for piece in method.then] == [("finetune", {"epochs": 3})]
    assert (study.training.momentum, study.training.iterations, study.training.epochs) == (
        0.5,
        None,
        2,
    )
    assert (study.training.clip_norm, study.training.augmentation.rotation) == (12.0, 0.0)
    assert (study.federation.rounds, study.federation.statistics) == (3, "private")
    assert (study.evaluation.metrics, study.evaluation.choose) == (("dice",), "last")
    assert (study.engine.workers, study.engine.device) == (2, "cuda:1")


def test_a_study_cannot_be_changed(tmp_path):
    study = load(tmp_path, SMALLEST)
    with pytest.raises(ValueError, match="frozen"):
        study.training.batch = 3


def test_folders_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = SMALLEST + '[data]\nsource = "../sites"\n[[site]]\nname = "a"\nfolder = "a folder"\n'
    study = load(tmp_path, text)
    assert study.data.folder == tmp_path.parent / "sites"
    assert study.site[0].folder == tmp_path / "a folder"


def test_folders_given_on_the_command_line_are_relative_to_the_working_directory(
    tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = SMALLEST + '[[site]]\nname = "a"\n[[site]]\nname = "b"\nfolder = "b"\n'
    study = load(tmp_path, text, "data.source=sites", "site.a.folder=mine")
    assert study.data.folder == tmp_path / "elsewhere" / "sites"
    assert study.site[0].folder == tmp_path / "elsewhere" / "mine"
    assert study.site[1].folder == tmp_path / "b"


def test_sites_that_all_have_a_folder_need_no_source(tmp_path):
    text = SMALLEST + '[[site]]\nname = "a"\nfolder = "a"\n'
    study = load(tmp_path, text)
    assert (study.data.source, study.data.folder) == ("none", None)
    assert load(tmp_path, text, "data.source=synthetic").data.source == "synthetic"
    assert load(tmp_path, text + '[[site]]\nname = "b"\n').data.source == "synthetic"


def test_a_home_folder_and_an_absolute_folder_stay_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert load(tmp_path, SMALLEST, "data.source=~/sites").data.folder == tmp_path / "me" / "sites"
    absolute = SMALLEST + f'[data]\nsource = "{tmp_path}/sites"\n'
    assert load(tmp_path, absolute).data.folder == tmp_path / "sites"


def test_the_file_a_network_starts_from_is_found_like_a_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = SMALLEST + '[network]\nname = "unet"\npretrained = "weights/a.pth"\n'
    network = load(tmp_path, text).network
    assert network.pretrained == tmp_path / "weights" / "a.pth"
    assert network.settings == {"width": 16}, "it is no setting of the network itself"
    given = load(tmp_path, text, "network.pretrained=b.pth").network
    assert given.pretrained == tmp_path / "elsewhere" / "b.pth"
    assert load(tmp_path, SMALLEST).network.pretrained is None


@pytest.mark.parametrize("wrong", ['""', "3"])
def test_a_file_of_weights_must_have_a_name(tmp_path, wrong):
    text = SMALLEST + f"[network]\npretrained = {wrong}\n"
    assert "network.pretrained" in mistakes(tmp_path, text)


def test_synthetic_sites_have_no_folder(tmp_path):
    assert load(tmp_path, SMALLEST).data.folder is None


def test_synthetic_misspelt_is_not_taken_for_a_folder_unless_there_is_one(tmp_path):
    text = SMALLEST + '[data]\nsource = "syntetic"\nsize = 3.0\n'
    found = mistakes(tmp_path, text)
    assert list(found) == ["data.source"]
    assert "did you mean synthetic?" in found["data.source"]
    (tmp_path / "syntetic").mkdir()
    assert list(mistakes(tmp_path, text)) == ["data.size"]


def test_site_names_must_differ(tmp_path):
    found = mistakes(tmp_path, SMALLEST + "site = ['a', 'b', 'a']\n")
    assert list(found) == ["site.a.name"]
    assert "more than one site" in found["site.a.name"]


def test_a_mistake_of_syntax_is_told_with_its_line(tmp_path):
    with pytest.raises(ConfigError, match=r"demo\.toml:\n.*not valid TOML.*line 3"):
        load(tmp_path, 'task = "fundus"\n\nmethod = [}\n')


def test_a_file_that_is_not_text_is_told_with_its_line(tmp_path):
    file = tmp_path / "demo.toml"
    file.write_bytes(b'task = "fundus"\nmethod = "\xff"\n')
    with pytest.raises(ConfigError, match=r"line 2: is not UTF-8"):
        load_study(file, [], TABLES)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    file = tmp_path / "demo.toml"
    file.write_bytes(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode())
    assert load_study(file, [], TABLES).name == "demo"


def test_a_missing_file_is_told_with_the_nearest_that_exists(tmp_path):
    (tmp_path / "demo.toml").write_text(SMALLEST)
    with pytest.raises(ConfigError, match=r"no such file.*did you mean .*demo\.toml") as caught:
        load_study(tmp_path / "dmo.toml", [], TABLES)
    assert str(tmp_path / "dmo.toml") in str(caught.value)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load_study(tmp_path, [], TABLES)


def test_importing_the_settings_does_not_import_torch():
    command = "import polyclinic.config, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
