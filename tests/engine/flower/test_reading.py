"""Images and masks read out of a site by a coordinator with crafted weights, and what stops it."""

import pytest
import torch

from polyclinic.data.batches import normalised
from polyclinic.data.load import load_federation
from polyclinic.engine.flower.wire import header_of
from polyclinic.engine.process import prepare_process
from tests.engine.flower.crafted import (
    SIDE,
    foreground_in,
    squares_of,
    telling_pixels,
    told_pixels,
)
from tests.engine.flower.hospitals import Hospitals, greeting, score_more
from tests.engine.flower.hostile import Coordinator

WIDTH = 16
PIXELS = [(row, column) for row in range(SIDE) for column in range(SIDE)]


@pytest.fixture
def hospitals(tmp_path):
    prepare_process(1)
    hospitals = Hospitals(tmp_path, sites=1, network="classic_unet")
    score_more(tmp_path / "data" / hospitals.names[0], 1, "val")
    return hospitals


def study_of(hospitals, *settings):
    return hospitals.study("fedavg", f"network.width={WIDTH}", "training.iterations=1", *settings)


def cases_of(hospitals):
    study = hospitals.study()
    (data,) = load_federation(study.task.built, study.data, study.site)
    return data


def image_read(hospitals, study, policy, batch):
    """What is read pixel by pixel until the site refuses: rows by columns, zero where not read."""
    (service,) = hospitals.services(policy)
    attacker = Coordinator(service, study)
    read, asked = torch.zeros(SIDE, SIDE), 0
    for pixels in (PIXELS[n : n + WIDTH] for n in range(0, len(PIXELS), WIDTH)):
        sent = telling_pixels(attacker.first, pixels)
        answer = attacker.stage(weights=sent)
        if "refused" in answer.header:
            break
        asked += 1
        rows, columns = zip(*pixels, strict=True)
        read[rows, columns] = told_pixels(sent, answer.tensors, WIDTH, batch).float()
    return read, asked


def best_psnr(read, images):
    """Of the training image most like what was read, however it lies."""
    lying = [image.flip(axes) for image in images for axes in ([], [0], [1], [0, 1])]
    return max(
        float(10 * torch.log10((each.max() - each.min()) ** 2 / ((read - each) ** 2).mean()))
        for each in lying
    )


ALONE = (
    "training.batch=1",
    "training.augmentation.flips=false",
    "training.augmentation.rotation=0",
)


@pytest.mark.slow
def test_an_image_is_read_out_of_running_statistics_only_where_a_hospital_gives_up_its_bounds(
    hospitals,
):
    train = cases_of(hospitals).train
    images = normalised(train, torch.arange(len(train)), "cpu").images[:, 0]
    alone, four = study_of(hospitals, *ALONE), study_of(hospitals, "training.batch=4")

    unbound = "batch = 1\naugmentation = false\nrepeats = 100\n"
    read, asked = image_read(hospitals, alone, unbound, batch=1)
    assert asked == SIDE * SIDE / WIDTH
    assert best_psnr(read, images) > 50  # each pixel to a three-hundredth of the range

    (service,) = hospitals.services()
    assert "training.batch = 1" in header_of(service.respond(greeting(alone)))["refused"]
    read, asked = image_read(hospitals, four, "", batch=4)
    assert asked == 11  # one that the study has, and allow.repeats
    assert best_psnr(read, images) < 15
    read, _ = image_read(hospitals, four, "repeats = 100\n", batch=4)
    assert best_psnr(read, images) < 25  # four images, one over another


ROUNDS = 20  # with a validation after each: as often as allow.validations lets a run ask


def mask_read(hospitals, policy):
    """What is read, square by square and ever smaller, of the mask that the first row is of."""
    (service,) = hospitals.services(policy)
    often = study_of(hospitals, f"federation.rounds={ROUNDS}", "evaluation.every=1")
    attacker = Coordinator(service, often)
    attacker.stage()
    mask, asked, area = torch.zeros(SIDE, SIDE), 0, 0.0
    waiting = [(0, 0, SIDE)]
    while waiting:
        row, column, side = square = waiting.pop(0)
        sent = foreground_in(attacker.first, square)
        answer = attacker.score(number=min(asked + 1, ROUNDS), weights=sent).header
        if "refused" in answer:
            break
        asked += 1
        dice = answer["response"]["rows"][0][3]
        area = area or SIDE * SIDE * dice / (2 - dice)
        share = round(dice * (side * side + area) / 2) / side**2
        mask[row : row + side, column : column + side] = share >= 0.5
        if 0 < share < 1:
            waiting += squares_of(square)
    return mask == 1, asked


def dice_of(one, other):
    return float(2 * (one & other).sum() / (one.sum() + other.sum()))


@pytest.mark.slow
def test_a_mask_is_read_out_of_scores_only_where_a_hospital_gives_up_its_bounds(hospitals):
    masks = cases_of(hospitals).val.masks == 1
    read, asked = mask_read(hospitals, 'scores = "cases"\nrepeats = 1000\n')
    assert ROUNDS + 10 < asked < 100
    assert dice_of(read, masks[0]) == 1
    read, asked = mask_read(hospitals, 'scores = "mean"\n')
    assert asked == ROUNDS + 10  # allow.validations, and allow.repeats
    assert all(dice_of(read, mask) < 0.75 for mask in masks)
