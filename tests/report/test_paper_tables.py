"""Tables with ticks and figures of varied settings, for the settings of the papers' studies."""

from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study, to_toml, weighting_of
from polyclinic.engine.run import runs_of
from polyclinic.report.ablations import ablations
from polyclinic.report.figures.sweeps import sweeps
from polyclinic.report.reading import read_runs
from tests.report.invented import write_run
from tests.report.reading_pages import texts

PAPERS = Path(__file__).parents[2] / "studies" / "papers"


@pytest.fixture
def reported(tmp_path):
    """A study of a paper with invented scores, as the report reads it."""

    def make(name, *overrides):
        study = load_study(PAPERS / f"{name}.toml", [*overrides], BUILT_IN)
        for minute, run in enumerate(runs_of(study, tmp_path / "unused")):
            started = f"2026-03-04T10:{minute:02}:00+00:00"
            look = {"sites": ("alpha", "beta"), "metrics": ("dice",), "pictures": False}
            look |= {"started": started, "settings": to_toml(run.study)}
            done = write_run(tmp_path, run.choice.title, seed=run.seed, rounds=1, cases=2, **look)
            how = weighting_of(run.choice.built, run.choice.weighting, run.study.federation)
            done.write_about(done.about().model_copy(update={"weighting": how or ""}))
        return read_runs([tmp_path / "demo"])

    return make


def ticks(sheet):
    """What each row says of each setting."""
    return {row[0].text: [each.text for each in row[1 : sheet.words]] for row in sheet.rows}


def table(comparison, method):
    (found,) = [each for each in ablations(comparison) if each.name == f"ablation-{method}"]
    return found


def line_styles(drawing):
    """How the means of a figure are joined."""
    (panel, *_) = drawing.figure.axes
    return {bars.lines[0].get_linestyle() for bars in panel.containers}


def test_the_parts_of_fedicra_have_ticks_beside_fedavg(reported):
    sheet = table(reported("002-fundus"), "fedicra")
    heads = ("Method", "adaptive aggregation", "site gate", "weak.crf", "weak.tree")
    assert sheet.heads[:5] == heads
    assert ticks(sheet) == {
        "FedAvg": ["–", "–", "–", "–"],
        "FedICRA": ["✓", "✓", "✓", "✓"],
        "AA": ["✓", "–", "–", "–"],
        "SCR": ["–", "✓", "–", "–"],
        "AA + SCR": ["✓", "✓", "–", "–"],
        "AA + SCR + tree": ["✓", "✓", "–", "✓"],
        "AA + SCR + CRF": ["✓", "✓", "✓", "–"],
    }


def test_terms_that_fedavg_has_from_the_study_are_ticked_there_too(reported):
    sheet = table(reported("002-fundus", "training.weak.tree=0.1"), "fedicra")
    place = sheet.heads[1:].index("weak.tree")
    assert {title: row[place] for title, row in ticks(sheet).items()} == {
        "FedAvg": "✓",
        "FedICRA": "✓",
        "AA": "–",
        "SCR": "–",
        "AA + SCR": "–",
        "AA + SCR + tree": "✓",
        "AA + SCR + CRF": "–",
    }


@pytest.mark.parametrize("study", ["004-fundus-parts", "004-octa-parts", "004-polyp-parts"])
def test_the_parts_of_fedlppa_have_ticks_beside_fedavg(reported, study):
    sheet = table(reported(study), "fedlppa")
    assert sorted(sheet.heads[1 : sheet.words]) == [
        "attention",
        "learned aggregation",
        "second decoder",
        "sparsity prompt",
        "universal prompt",
        "weak.pseudo labels",
    ]
    found = {
        title: dict(zip(sheet.heads[1:], row, strict=False)) for title, row in ticks(sheet).items()
    }
    assert set(found["FedAvg"].values()) == {"–"}
    parts = ("second decoder", "learned aggregation", "sparsity prompt", "universal prompt")
    assert [found["TDF"][each] for each in parts] == ["–", "–", "✓", "✓"]
    assert [found["TDF + LA"][each] for each in parts] == ["–", "✓", "✓", "✓"]
    assert [found["DDP + UKP"][each] for each in parts] == ["aggregated", "✓", "–", "✓"]


def test_virtual_classes_and_affinities_have_ticks_beside_fedavg(reported):
    sheet = table(reported("000-fundus"), "virtual-classes")
    assert sorted(sheet.heads[1 : sheet.words]) == ["paa", "paa shares", "virtual classes"]
    places = [sheet.heads[1:].index(each) for each in ("virtual classes", "paa")]
    assert {title: [row[place] for place in places] for title, row in ticks(sheet).items()} == {
        "FedAvg": ["–", "–"],
        "VC + PAA": ["✓", "✓"],
        "VC": ["✓", "–"],
        "PAA": ["–", "✓"],
        "PAA, all shared": ["–", "✓"],
        "VC + PAA, all shared": ["✓", "✓"],
    }


def test_calibration_has_a_tick_beside_the_same_network_with_fedavg(reported):
    sheet = table(reported("003-polyp"), "feddp")
    assert ticks(sheet) == {"FedAvg": ["–"], "FedDP": ["✓"], "LQ": ["–"]}


def test_weightings_are_told_by_their_names(reported):
    sheet = table(reported("000-fundus", 'method=["fedavg", "fedlc"]'), "fedavg")
    assert ticks(sheet) == {"FedAvg": ["samples"], "FedAvg, uniform": ["uniform"]}


def test_fedavg_stands_beside_no_method_that_averages_nothing(reported):
    assert list(ticks(table(reported("002-fundus"), "local"))) == ["Local (weak)", "Local (full)"]


def test_fedavg_stands_beside_rows_of_its_own_network_alone(reported):
    resnets = (
        'sweep.network=[{ name = "resnet_fpn", depth = 18 }, { name = "resnet_fpn", depth = 34 }]'
    )
    reported("003-polyp-resnet", resnets)
    mixed = reported("003-polyp", 'method=["feddp", { name = "feddp", calibrate = false }]')
    assert len(mixed.methods) == 6
    assert len(ticks(table(mixed, "feddp"))) == 2


def test_terms_for_weak_labels_are_one_setting_whether_of_the_study_or_of_the_method(reported):
    study = reported(
        "004-octa-decoders", 'method=["fedavg"]', 'sweep={ "training.weak.crf" = [0.0, 0.1] }'
    )
    (found,) = sweeps(study)
    assert found.setting == "method.weak.crf"
    assert line_styles(found.figure) == {"-"}


def test_networks_of_other_widths_are_one_line_of_networks(reported):
    study = reported("001-polyp-networks")
    (found,) = [each for each in sweeps(study) if each.setting == "network.name"]
    assert "None" in line_styles(found.figure), "names have no order"
    ((_, points),) = found.lines
    assert [name for name, _ in points] == ["fcn", "classic_unet", "unet_plus_plus", "res_unet"]


def test_networks_of_two_widths_each_are_a_line_for_each_width(reported):
    widths = 'sweep={ "network.name"=["fcn", "res_unet"], "network.width"=[8, 16] }'
    found = {each.setting: each for each in sweeps(reported("001-polyp-networks", widths))}
    assert [len(points) for _, points in found["network.name"].lines] == [2, 2]


def test_attention_and_convolutions_stand_in_one_figure(reported):
    assert [each.title for each in reported("003-polyp-resnet").methods] == [
        f"{method} (network={network})"
        for network in ("pvt_fpn", *(f"resnet_fpn(depth={depth})" for depth in (18, 34, 50)))
        for method in ("FedAvg", "FedRep")
    ]


def test_a_step_s_settings_in_which_rows_differ_stand_beside_its_name(reported):
    comparison = reported("003-polyp-parts")
    assert list(ticks(table(comparison, "iop-fl")).values()) == [
        ["–"],
        ["igc (weight=0)"],
        ["igc (weight=1)"],
    ]
    found = {each.setting: each for each in sweeps(comparison)}["method.then"]
    for title, points in found.lines:
        assert title in ("iop-fl", "fedbabu")
        assert [value for value, _ in points] == ["", "igc (weight=0)", "igc (weight=1)"]
    assert {"none", "igc", "(weight=0)", "(weight=1)"} <= set(texts(found.figure))
