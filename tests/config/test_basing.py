import pytest

from polyclinic.config import ConfigError, load_study
from tests.config.example import TABLES

FULL = """
name = "the full one"
seeds = [0, 1, 2]
task = { name = "octa", resolution = 128 }
data.source = "sites"
network = { name = "unet", width = 4 }
training.batch = 12
method = ["fedavg", { name = "fedprox", mu = 1 }]
sweep = { "training.iterations" = [10, 20] }
"""


@pytest.fixture
def read(tmp_path):
    def load(text, **others):
        for name, other in {"full": FULL, **others}.items():
            (tmp_path / f"{name}.toml").write_text(other)
        (tmp_path / "small.toml").write_text(text)
        return load_study(tmp_path / "small.toml", [], TABLES)

    return load


def test_a_study_has_what_its_base_has_but_for_what_it_says_itself(read, tmp_path):
    study = read('base = "full.toml"\nseeds = [7]\n[task]\nresolution = 64\n[method.fedprox]\nmu=3')
    assert (study.name, study.seeds) == ("small", (7,)), "the base's name is not its own"
    assert (study.task.name, study.task.built.resolution) == ("octa", 64)
    assert study.data.folder == tmp_path / "sites"
    assert (study.network.settings, study.training.batch) == ({"width": 4}, 12)
    assert [(each.name, each.settings.get("mu")) for each in study.method] == [
        ("fedavg", None),
        ("fedprox", 3),
    ]


def test_lists_and_bare_names_take_the_place_of_the_bases(read):
    text = 'network = "classic_unet"\nsweep."training.iterations" = [5]\n[[method]]\nname="fedavg"'
    study = read(f'base = "full.toml"\n{text}')
    assert study.network.settings == {"copy": True}
    assert [each.name for each in study.method] == ["fedavg"]
    assert study.sweep == {"training.iterations": (5,)}


def test_a_base_may_have_a_base(read):
    study = read('base="middle.toml"\ntraining.batch=3', middle='base="full.toml"\nseeds=[9]')
    assert (study.name, study.seeds, study.training.batch) == ("small", (9,), 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('base = "../full.toml"', "base = .*: must be the name of a file in the same folder"),
        ('base = ""', "base = .*: must be the name of a file in the same folder"),
        ("base = 3", "base = 3: must be the name of a file in the same folder"),
        ('base = "ful.toml"', "cannot be read.*did you mean .*full.toml"),
        ('base = "small.toml"', "is its own base: small.toml → small.toml"),
        ('base = "full.toml"\nmethod.nu = 3', "no method of this name or with this setting"),
        ('base = "full.toml"\ntraining.bach = 3', "training.bach.*did you mean batch"),
    ],
)
def test_a_wrong_base_is_told(read, text, told):
    with pytest.raises(ConfigError, match=told):
        read(text)
