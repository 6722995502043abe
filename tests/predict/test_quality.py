"""Notes name what is odd about a prediction, and say nothing about what is not."""

import numpy as np
import pytest

from polyclinic.predict import load, quality
from polyclinic.predict.facts import Limit
from polyclinic.predict.folder import joined
from polyclinic.predict.quality import BINS, Note
from tests.predict.hand_made import EVEN, OCTA, disc, hand_made


def even_image(size=(32, 32)) -> np.ndarray:
    """Every grey level equally often, as in the known histogram, and half of it bright."""
    levels = np.linspace(0, 255, size[0] * size[1])
    return np.sort(levels).reshape(size).astype(np.uint8)[None]


@pytest.fixture
def model(tmp_path):
    hand_made().write(tmp_path / "m.polyclinic")
    return load(tmp_path / "m.polyclinic", threads=1)


def test_a_usual_case_gets_no_reason(model):
    note = model.look(even_image()).note
    assert note.reasons == ()
    assert str(note) == ""
    assert note.doubt < 1


def test_an_empty_mask_is_named(model):
    note = model.look(np.zeros((1, 32, 32), np.uint8)).note
    assert any(reason.startswith("faz is empty") for reason in note.reasons)
    assert note.doubt > 1


def test_an_unusually_large_mask_is_named(model):
    image = np.full((1, 32, 32), 250, np.uint8)
    image[0, 0, 0] = 0
    note = model.look(image).note
    assert any(reason.startswith("faz is unusually large") for reason in note.reasons)
    assert "the image is unlike the training images" in note.reasons


def test_a_model_that_sees_mirrored_images_otherwise_is_noticed(model):
    class OneEyed(type(model)):
        def classes(self, image):
            found = super().classes(image)
            return np.zeros_like(found) if image[0, 0, 0] > image[0, -1, 0] else found

    image = even_image()
    odd = OneEyed(model.package, threads=1)
    note = odd.look(image).note
    assert note.measures["flips"] == pytest.approx(0.5)
    assert "the mirrored image gives another mask" in note.reasons
    assert "flips" not in odd.look(image, flips=False).note.measures


def test_members_that_disagree_are_noticed(tmp_path):
    limits = {**EVEN.limits, "members": Limit(middle=0.0, limit=0.05)}
    known = EVEN.model_copy(update={"limits": limits})
    hand_made(OCTA, 0.2, 0.8, quality=known).write(tmp_path / "m.polyclinic")
    note = load(tmp_path / "m.polyclinic", threads=1).look(even_image()).note
    assert "the models of the ensemble disagree" in note.reasons


def test_nothing_known_is_said(tmp_path):
    hand_made(quality=None).write(tmp_path / "m.polyclinic")
    note = load(tmp_path / "m.polyclinic", threads=1).look(disc((40, 50))[None]).note
    assert np.isnan(note.doubt)
    assert "nothing is known" in str(note)


def test_a_histogram_counts_shares_of_each_channel():
    task = OCTA.changed(channels=2)
    image = np.stack([np.zeros((4, 4)), np.ones((4, 4))]).astype(np.float32)
    found = quality.histogram(image, task)
    assert found.shape == (2 * BINS,)
    assert found[0] == found[-1] == 1
    assert quality.image_distance(found, found.tolist()) == 0
    # Moving all of one channel by the whole range costs 31 of 32 steps, the other nothing.
    moved = quality.histogram(np.zeros((2, 4, 4), np.float32), task)
    assert quality.image_distance(moved, found.tolist()) == pytest.approx(31 / 32 / 2)


def test_limits_leave_one_known_case_in_twenty_beyond():
    known = [{"flips": value} for value in np.linspace(0, 1, 101)]
    found = quality.limits(known)["flips"]
    assert found.middle == pytest.approx(0.5)
    assert found.limit == pytest.approx(0.95)
    assert quality.limits([{"flips": 0.0}] * 5)["flips"].limit == quality.MARGINS["flips"]


def test_a_volume_has_the_reasons_that_half_of_its_slices_have():
    odd, fine = Note(2.0, ("a: 1", "b"), {}), Note(0.0, ("a: 2",), {})
    assert joined([odd, fine, fine]) == Note(pytest.approx(2 / 3), ("a",), {})


def test_a_mask_that_its_probabilities_do_not_stand_behind_is_noticed(tmp_path):
    sure, unsure = np.full((2, 2, 2), 0.5, np.float32), np.full((2, 2, 2), 0.5, np.float32)
    mask = np.array([[1, 1], [0, 0]], np.uint8)
    sure[1], unsure[1] = mask, [[0.6, 0.6], [0.1, 0.1]]
    assert quality.uncertainty(sure, mask, OCTA) == 0
    # The model expects 1.2 pixels in common, of 2 predicted and 1.4 believed in.
    assert quality.uncertainty(unsure, mask, OCTA) == pytest.approx(1 - 2 * 1.2 / (2 + 1.4))
    assert quality.uncertainty(0 * sure, 0 * mask, OCTA) == 0
    limits = {**EVEN.limits, "unsure": Limit(middle=0.0, limit=1e-6)}
    hand_made(quality=EVEN.model_copy(update={"limits": limits})).write(tmp_path / "m.polyclinic")
    note = load(tmp_path / "m.polyclinic", threads=1).look(even_image()).note
    assert "the model is unsure of its own mask" in note.reasons


def test_the_doubt_is_what_the_model_says_of_itself_and_what_is_beyond_limits():
    known = {name: Limit(middle=1.0, limit=2.0) for name in ("size", "flips", "unsure", "image")}
    usual = {"faz": Limit(middle=0.25, limit=0.5)}
    facts = EVEN.model_copy(update={"limits": known, "sizes": usual})
    pixels = np.array(facts.histogram)

    def doubt(flips, unsure, share=0.25):
        return quality.judge(
            facts, {"faz": share}, pixels, {"flips": flips, "unsure": unsure}
        ).doubt

    assert doubt(1, 1) == 0
    assert doubt(2, 2) == 1
    assert doubt(2, 1) == pytest.approx(0.5)
    assert doubt(0, 1) == pytest.approx(-0.5), "surer than the usual case"
    far = np.log((0.25 + 1e-3) / 1e-3)  # of an empty mask, in units of one above a middle of one
    assert doubt(1, 1, share=0.0) == pytest.approx(far - 2)
