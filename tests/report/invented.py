"""Run folders with invented but repeatable numbers, made by the writers that a real run uses."""

import json
import zlib

import numpy as np
from PIL import Image, ImageDraw

from polyclinic.runs import (
    CONTOUR_COLOURS,
    About,
    AboutTask,
    Finished,
    RoundLine,
    RunFolder,
    Score,
    SiteInfo,
    run_path,
)

SITES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
METRICS = ("dice", "iou", "hd", "hd95", "assd")


def generator(*names):
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def write_run(
    root,
    title,
    *,
    study="demo",
    seed=0,
    sites=SITES[:4],
    regions=("disc", "cup"),
    metrics=METRICS,
    rounds=20,
    stop=None,
    cases=12,
    pictures=True,
    batch=12,
    started="2026-03-04T10:00:00+00:00",
    settings=None,
):
    """A run folder with invented but repeatable numbers; `stop` leaves it unfinished there.

    `settings` are the text of its study.
    """
    run = RunFolder(run_path(root, study, title, seed))
    run.create(
        settings or settings_text(study, title, seed, rounds, batch),
        about(title, seed, sites, regions, cases, started),
    )
    for number in range(1, (stop or rounds) + 1):
        run.append(round_line(title, seed, site, number) for site in sites)
        if number % 5 == 0:
            run.append(scores=validation(title, seed, sites, regions, number, rounds))
    if stop is None:
        run.append(scores=tested(title, seed, sites, regions, metrics, rounds, cases))
        for site in sites if pictures else ():
            draw_pictures(run, site)
        run.finish(Finished(chosen_round=rounds, seconds=184.2 + seed))
    return run


def settings_text(study, title, seed, rounds, batch):
    return f"""name = "{study}"
task = "fundus"
seeds = [{seed}]

[data]
source = "synthetic"

[network]
name = "unet"

[[method]]
name = "invented"
title = {json.dumps(title, ensure_ascii=False)}

[training]
optimizer = "adamw"
learning_rate = 0.01
batch = {batch}

[federation]
rounds = {rounds}

[evaluation]
choose = "best"
"""


def about(title, seed, sites, regions, cases, started):
    kinds = ("mask", "scribble", "point", "block", "box", "mask")
    return About(
        method=title,
        seed=seed,
        task=AboutTask(
            name="fundus" if len(regions) > 1 else "octa",
            classes=("background", *regions),
            regions={region: (index + 1,) for index, region in enumerate(regions)},
        ),
        sites=tuple(
            SiteInfo(site, index, kinds[index % 6], train=40 + 10 * index, val=6, test=cases)
            for index, site in enumerate(sites)
        ),
        network="unet",
        parameters=1813764,
        device="cpu",
        threads=2,
        started=started,
        versions={"polyclinic": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
    )


def round_line(title, seed, site, number):
    rng = generator("round", title, seed, site, number)
    size = 0 if title == "Local" else 7_255_056 if "Rep" not in title else 7_000_000
    extras = ("control/encoder", "control/decoder") if title == "SCAFFOLD" else ()
    return RoundLine(
        round=number,
        stage="fit",
        site=site,
        loss=0.15 + 0.8 * np.exp(-number / 6) + 0.02 * rng.normal(),
        seconds=1.2 + 0.3 * rng.random() + (0.6 if extras else 0),
        images=120,
        down=size * (1 + len(extras) // 2),
        up=size * (1 + len(extras) // 2),
        extras=extras,
    )


def quality(title, seed, site, region):
    skill = generator("skill", title).uniform(0.78, 0.93)
    return skill - 0.05 * generator("site", site).random() - 0.06 * (region == "cup") + 0.004 * seed


def validation(title, seed, sites, regions, number, rounds):
    for site in sites:
        for region in regions:
            rng = generator("val", title, seed, site, region, number)
            level = quality(title, seed, site, region) * (1 - 0.6 * np.exp(-3 * number / rounds))
            for case in range(4):
                value = float(np.clip(level + 0.03 * rng.normal(), 0, 1))
                yield Score(number, "val", site, f"v{case}", region, "dice", value)


def tested(title, seed, sites, regions, metrics, number, cases):
    for site in sites:
        for region in regions:
            rng = generator("test", title, seed, site, region)
            dice = np.clip(
                quality(title, seed, site, region) + 0.05 * rng.gumbel(size=cases) * -1, 0, 1
            )
            for case, value in enumerate(dice):
                distance = 60 * (1 - value) * (0.7 + 0.6 * rng.random())
                values = {
                    "dice": value,
                    "iou": value / (2 - value),
                    "hd": 1.6 * distance,
                    "hd95": distance,
                    "assd": 0.3 * distance,
                }
                for metric in metrics:
                    yield Score(
                        number,
                        "test",
                        site,
                        f"case-{case:02d}",
                        region,
                        metric,
                        float(values[metric]),
                    )


def draw_pictures(run, site):
    found = {}
    for score in run.scores("test"):
        if score.site == site and score.metric == "dice":
            found.setdefault(score.case, []).append(score.value)
    ordered = sorted(found, key=lambda case: -np.mean(found[case]))
    chosen = {"best": ordered[0], "median": ordered[len(ordered) // 2], "worst": ordered[-1]}
    for rank, case in chosen.items():
        path = run.picture_path(site, rank, case)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing(site, case, 1 - np.mean(found[case])).save(path)


def drawing(site, case, error):
    rng = generator("picture", site, case)
    shade = np.add.outer(np.linspace(0, 60, 192), np.linspace(40, 120, 192))
    grey = shade + rng.normal(0, 12, (192, 192))
    pixels = np.stack([grey + 90, grey + 20, grey - 20], axis=-1).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for size in (58, 26):
        box = np.array([96 - size, 96 - size, 96 + size, 96 + size])
        moved = box + rng.normal(0, 40 * error, 4)
        draw.ellipse(tuple(box), outline=CONTOUR_COLOURS["true"], width=2)
        corners = np.sort(moved.reshape(2, 2), axis=0).ravel()
        draw.ellipse(tuple(corners), outline=CONTOUR_COLOURS["predicted"], width=2)
    return image
