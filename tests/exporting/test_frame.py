"""The graph around a network does what data/preparing.py does."""

import numpy as np
import onnxruntime
import pytest

from polyclinic.data.preparing import prepare
from polyclinic.data.tasks import TASKS
from polyclinic.exporting.graph import whole_graph
from polyclinic.predict import load
from tests.predict.hand_made import bright_core, disc, hand_made

SIZES = [(32, 32), (1, 1), (50, 21), (13, 77), (96, 96)]
NORMALISATIONS = [
    {"normalisation": "minmax"},
    {"normalisation": "standard"},
    {"normalisation": "channelwise"},
    {"normalisation": "percentile", "percentiles": (1, 98)},
    {"normalisation": "window", "window": (20.4, 180)},
]


def session_of(task, *levels):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    cores = [bright_core(task, level) for level in levels]
    return onnxruntime.InferenceSession(whole_graph(task, cores).SerializeToString(), options)


def outputs(session, image):
    given = {"image": image[None].astype(np.float32), "eight_bit": np.array(image.dtype == "uint8")}
    names = ["classes", "probabilities", "members", "prepared"]
    return [each[0] for each in session.run(names, given)]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("fit", ["stretch", "pad"])
@pytest.mark.parametrize("how", NORMALISATIONS, ids=lambda how: how["normalisation"])
def test_images_are_prepared_as_for_training(how, fit, dtype):
    task = TASKS["fundus"].changed(resolution=32, fit=fit, fill=0.3, **how)
    session = session_of(task, 0.5)
    rng = np.random.default_rng(0)
    for size in SIZES:
        image = rng.integers(0, 256, (3, *size)).astype(dtype)
        image[:, : size[0] // 3] = 0
        expected = prepare(image, task)
        _, _, members, prepared = outputs(session, image)
        assert np.allclose(prepared, expected.normalised(), atol=2e-5), size
        seen = np.ones((32, 32), bool) if expected.view is None else expected.view
        assert (members[0][0][~seen] == 1).all(), size


@pytest.mark.parametrize("fit", ["stretch", "pad"])
def test_predictions_go_back_to_the_size_of_the_image(fit):
    task = TASKS["octa"].changed(resolution=32, fit=fit)
    image = np.random.default_rng(1).integers(0, 256, (1, 50, 21)).astype(np.uint8)
    classes, probabilities, members, _ = outputs(session_of(task, 0.5), image)
    back = prepare(image, task).geometry.probabilities_back(members[0])
    assert np.allclose(probabilities, back, atol=1e-6)
    assert (classes == back.argmax(axis=0)).all()
    assert 0 < classes.mean() < 1


def test_several_members_are_averaged():
    task = TASKS["octa"].with_resolution(32)
    image = np.random.default_rng(1).integers(0, 256, (1, 32, 32)).astype(np.uint8)
    session = session_of(task, 0.2, 0.7)
    images = np.stack([image, image[:, ::-1]]).astype(np.float32)
    probabilities, members = session.run(["probabilities", "members"], {"image": images})
    assert members.shape == (2, 2, 2, 32, 32)
    assert np.allclose(probabilities, members.mean(axis=1), atol=1e-6)
    assert (members[:, 0, 1] >= members[:, 1, 1]).all()


def test_what_is_cropped_outside_the_graph_comes_back_in_its_place(tmp_path):
    task = TASKS["fundus"].changed(resolution=32, fit="crop", dark=0.05)
    hand_made(task, quality=None).write(tmp_path / "m.polyclinic")
    model = load(tmp_path / "m.polyclinic", threads=1)
    image = np.zeros((3, 70, 90), np.uint8)
    image[:, 10:50, 20:80] = disc((40, 60))
    image[:, 10, 20:80] = 30
    expected = prepare(image, task)
    classes, prepared = model.square(image)
    assert np.allclose(prepared, expected.normalised(), atol=2e-5)
    found = model.look(image, flips=False)
    members = model._run(image, ["members"])[0]
    back = expected.geometry.probabilities_back(members[0])
    assert np.allclose(found.probabilities, back, atol=1e-6)
    assert (found.classes == back.argmax(axis=0)).all()
    assert (found.classes == model.predict(image)).all()
    assert set(np.unique(classes)) == {0, 2}
