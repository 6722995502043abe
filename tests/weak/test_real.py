"""Labels made here against the published ones of the same masks, where the real data is."""

from functools import cache

import numpy as np
import pytest
from PIL import Image

from polyclinic.masks import UNLABELLED
from polyclinic.weak import weaken

FOLDERS = {"octa": "faz", "fundus": "odoc"}
SITES = {
    "octa": ("fazid", "octa500-3m", "octa500-6m", "octa25k-3x3", "rose"),
    "fundus": ("drishti-gs", "refuge-train", "refuge-val"),
}
KINDS = ("point", "scribble", "scribble2", "block", "box-block")
MOST = 60  # cases of a site
PLACES = [
    pytest.param(task, site, kind, marks=[pytest.mark.slow] if site != sites[0] else [])
    for task, sites in SITES.items()
    for site in sites
    for kind in KINDS
    if (task, kind) != ("fundus", "box-block")
]


@cache
def pixels(file):
    with Image.open(file) as picture:
        return np.asarray(picture)


def cases(real, task, site, *kinds):
    """Masks and published labels of a site's training cases, spread over all of them."""
    folder = real / FOLDERS[task] / site / "train"
    files = sorted((folder / "masks").iterdir())
    chosen = np.unique(np.linspace(0, len(files) - 1, MOST).round().astype(int))
    for number in chosen:
        name = files[number].name
        yield pixels(files[number]), *(pixels(folder / "weak" / kind / name) for kind in kinds)


@pytest.mark.parametrize(("task", "site", "kind"), PLACES)
def test_each_class_is_covered_as_much_as_in_the_published_labels(real, task, site, kind):
    ratios = []
    for seed, (mask, published) in enumerate(cases(real, task, site, kind)):
        label = weaken(mask, kind, np.random.default_rng(seed), task)
        counts = [np.bincount(each.ravel(), minlength=256)[:3] for each in (label, published)]
        ratios.append(counts[0][: mask.max() + 1] / counts[1][: mask.max() + 1])

    ratio = np.median(ratios, axis=0)
    assert (ratio > 1 / 1.5).all()
    assert (ratio < 1.5).all()


@pytest.mark.parametrize(("task", "site"), [("octa", "rose"), ("fundus", "drishti-gs")])
def test_a_ragged_scribble_keeps_about_as_much_as_the_published_one(real, task, site):
    kept = {"ours": [], "published": []}
    for mask, whole, ragged in cases(real, task, site, "scribble", "scribble2"):
        kept["published"].append((ragged != UNLABELLED).sum() / (whole != UNLABELLED).sum())
        ours = [
            weaken(mask, kind, np.random.default_rng(0), task) for kind in ("scribble", "scribble2")
        ]
        kept["ours"].append((ours[1] != UNLABELLED).sum() / (ours[0] != UNLABELLED).sum())

    assert abs(np.median(kept["ours"]) - np.median(kept["published"])) < 0.06
