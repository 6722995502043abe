"""MONAI itself predicts with an exported bundle what the package predicts."""

import json
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

from polyclinic.exporting.monai_bundle import write_bundle
from polyclinic.predict import load
from polyclinic.runs import RunError
from tests.predict.hand_made import OCTA, disc, hand_made


@pytest.mark.slow
def test_monai_runs_the_bundle(tmp_path, monkeypatch):
    package = hand_made()
    package.write(tmp_path / "m.polyclinic")
    bundle = tmp_path / "bundle"
    write_bundle(package, bundle)
    (bundle / "images").mkdir()
    for name, size in (("a", (40, 50)), ("b", (32, 32))):
        Image.fromarray(disc(size)).save(bundle / "images" / f"{name}.png")
    monkeypatch.setattr(sys, "path", [str(bundle), *sys.path])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from monai.bundle import run

        run(
            config_file=str(bundle / "configs" / "inference.json"),
            meta_file=str(bundle / "configs" / "metadata.json"),
            bundle_root=str(bundle),
        )
    model = load(tmp_path / "m.polyclinic", threads=1)
    for name in ("a", "b"):
        found = np.asarray(Image.open(bundle / "eval" / f"{name}_mask.png"))
        assert (found == model.predict(bundle / "images" / f"{name}.png")).all()
        assert found.any()


def test_a_bundle_holds_what_monai_wants_to_know(tmp_path):
    write_bundle(hand_made(), tmp_path / "bundle")
    metadata = json.loads((tmp_path / "bundle" / "configs" / "metadata.json").read_text())
    outputs = metadata["network_data_format"]["outputs"]["pred"]
    assert outputs["channel_def"] == {"0": "background", "1": "faz"}
    assert (tmp_path / "bundle" / "docs" / "README.md").read_text().startswith("# bright is faz")
    with pytest.raises(RunError, match="is not empty"):
        write_bundle(hand_made(), tmp_path / "bundle")


def test_what_cannot_be_a_whole_graph_is_refused(tmp_path):
    with pytest.raises(RunError, match="crops images to their content"):
        write_bundle(hand_made(OCTA.changed(fit="crop")), tmp_path / "bundle")
