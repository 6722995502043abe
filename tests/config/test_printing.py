import math
import tomllib
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.config import load_study, to_toml
from polyclinic.config.printing import literal
from tests.config.example import SMALLEST, TABLES, Projector, load

STUDIES = [
    SMALLEST,
    'task = "octa"\nmethod = ["fedprox", {name = "fedprox", mu = 1, then = "finetune"}]\n',
    'task = {name = "octa", resolution = 64}\nmethod = [{name = "fedprox", strength = 2}, '
    '{name = "fedprox", projector = {width = 3}}]\nnetwork = "classic_unet"\n',
    SMALLEST + "[data]\nfolds = 3\nfold = 2\n[training]\nepochs = 3\nclip_value = 0.5\n",
    SMALLEST + '[training]\noptimizer = "sgd"\nschedule = "cosine"\n[data]\nsource = "sites"\n',
    SMALLEST + '[network]\nname = "classic_unet"\npretrained = "weights/a.pth"\ncopy = false\n',
    SMALLEST + '[[site]]\nname = "ä \'b\'"\nfolder = "x"\n[[site]]\nname = "c"\nlabels = "box"\n',
]


@pytest.mark.parametrize("text", STUDIES)
def test_a_printed_study_read_from_anywhere_is_the_same_study(tmp_path, text):
    study = load(tmp_path, text)
    (tmp_path / "run").mkdir()
    again = tmp_path / "run" / "study.toml"
    again.write_text(to_toml(study), encoding="utf-8")
    assert load_study(again, [], TABLES) == study
    assert to_toml(load_study(again, [], TABLES)) == to_toml(study)


@settings(deadline=None, max_examples=40)
@given(
    st.floats(min_value=0, allow_infinity=False),
    st.lists(st.integers(0, 10**12), min_size=1, unique=True),
    st.text(st.characters(codec="utf-8")).map(lambda text: f"a{text}"),
)
def test_any_number_and_title_survive_printing(tmp_path_factory, mu, seeds, title):
    folder = tmp_path_factory.getbasetemp()
    study = load(
        folder, f"{SMALLEST}seeds = {seeds}\n", 'method={name="fedprox"}', f"method.mu={mu}"
    )
    method = study.method[0].model_copy(update={"title": title})
    study = study.model_copy(update={"method": (method,)})
    assert load(folder, to_toml(study)) == study


def test_all_settings_are_printed_but_those_without_effect(tmp_path):
    printed = tomllib.loads(to_toml(load(tmp_path, SMALLEST)))
    assert list(printed) == [
        "name",
        "seeds",
        "task",
        "data",
        "network",
        "method",
        "training",
        "federation",
        "evaluation",
        "engine",
    ]
    assert printed["network"] == {"name": "unet", "width": 16}
    assert printed["training"]["power"] == 0.9
    assert printed["training"]["augmentation"]["rotation"] == 45.0
    without = {"momentum", "epochs", "clip_norm", "clip_value"}
    assert not without & printed["training"].keys()


def test_lists_stand_on_one_line_and_methods_have_headings(tmp_path):
    text = to_toml(load(tmp_path, SMALLEST, 'method=["fedavg", "fedprox"]'))
    assert '\nmetrics = ["dice", "iou", "hd", "hd95", "assd"]\n' in text
    assert text.count("[[method]]\n") == 2
    assert "\n[method.projector]\ndepth = 2\n" in text


class Shade(Enum):
    DARK = "dark"


@dataclass(frozen=True)
class Odd:
    shades: frozenset[int] = frozenset({3, 1, 2})
    shade: Shade = Shade.DARK
    limit: float = math.inf
    where: Path = Path("a")
    levels: dict[str, float] | None = None
    inside: tuple[Projector, ...] = (Projector(width=1), Projector(depth=3))


def test_settings_of_every_sort_survive_printing(tmp_path):
    tables = replace(TABLES, method={"odd": Odd})
    text = 'task = "octa"\nmethod = {name = "odd", levels = {"a b" = 1}}\n'
    study = load(tmp_path, text, tables=tables)
    assert study.method[0].settings == vars(Odd(levels={"a b": 1.0}))
    assert load(tmp_path, to_toml(study), tables=tables) == study


def test_a_literal_is_one_line_of_toml():
    value = {"a b": [1, 2.5, True], "c": {"d": "x\ny"}}
    assert literal(value) == '{"a b" = [1, 2.5, true], c = {d = "x\\ny"}}'
    assert tomllib.loads(f"v = {literal(value)}")["v"] == value
