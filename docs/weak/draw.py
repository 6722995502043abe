"""Draw the sheets of this folder: `POLYCLINIC_REAL_DATA=… python docs/weak/draw.py`."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from polyclinic.data.synthetic import draw_site, federation
from polyclinic.data.tasks import TASKS
from polyclinic.masks import UNLABELLED
from polyclinic.weak import KINDS, weaken

HERE = Path(__file__).parent
TILE, GAP, LINE = 112, 4, 15  # pixels
COLOURS = {0: (70, 120, 235), 1: (0, 160, 70), 2: (215, 40, 60), UNLABELLED: (244, 244, 240)}
OUTLINE, INK, PAPER = (40, 40, 40), (30, 30, 30), (255, 255, 255)
PUBLISHED = {
    "octa": ("faz", ("point", "scribble", "scribble2", "block", "box-block")),
    "fundus": ("odoc", ("point", "scribble", "scribble2", "block")),
}
WITHOUT = ("polyp", "prostate")  # real tasks without published labels

Pixels = NDArray[np.uint8]
Row = tuple[str, list[Image.Image]]


def main() -> None:
    """Write every sheet, those of real pictures where there are any."""
    write("kinds", ["image", *KINDS], [drawn_row(task) for task in TASKS])
    if not os.environ.get("POLYCLINIC_REAL_DATA"):
        return
    real = Path(os.environ["POLYCLINIC_REAL_DATA"])
    for task, (folder, kinds) in PUBLISHED.items():
        sites = [
            site for site in sorted((real / folder).iterdir()) if (site / "train/weak").is_dir()
        ]
        heads = ["image", *(f"{kind}{who}" for kind in kinds for who in ("", ", ours"))]
        write(task, heads, [compared_row(site, task, kinds) for site in sites])
    for task in WITHOUT:
        sites = [site for site in sorted((real / task).iterdir()) if site.is_dir()]
        write(task, ["image", *KINDS], [own_row(site, task) for site in sites])


def drawn_row(task: str) -> Row:
    """A synthetic case with every kind of label."""
    site = federation(task)[0].name
    cases = draw_site(task, site, resolution=384, seed=0, size=0.1)
    image = cases.images[0].transpose(1, 2, 0)
    return task, [photograph(image), *labels(cases.masks[0], task, list(KINDS))]


def compared_row(site: Path, task: str, kinds: Sequence[str]) -> Row:
    """A real case: of each kind the published label, and ours of the same mask."""
    files = sorted((site / "train/masks").iterdir())
    file = files[len(files) // 3]
    mask = pixels(file)
    tiles = [photograph(pixels(image_of(site / "train", file.stem)))]
    for kind, ours in zip(kinds, labels(mask, task, kinds), strict=True):
        tiles += [drawing(pixels(site / "train/weak" / kind / file.name), mask), ours]
    return site.name, tiles


def own_row(site: Path, task: str) -> Row:
    """A real case with every kind of label of ours."""
    files = sorted((site / "masks").iterdir())
    file = files[len(files) // 3]
    mask = pixels(file)
    return site.name, [
        photograph(pixels(image_of(site, file.stem))),
        *labels(mask, task, list(KINDS)),
    ]


def labels(mask: Pixels, task: str, kinds: Sequence[str]) -> list[Image.Image]:
    """Labels of ours, drawn; of the same mask always the same."""
    seed = int(mask.sum())
    return [drawing(weaken(mask, kind, np.random.default_rng(seed), task), mask) for kind in kinds]


def image_of(folder: Path, case: str) -> Path:
    """The case's image, whatever its ending."""
    return next((folder / "images").glob(f"{case}.*"))


def pixels(file: Path) -> Pixels:
    """What a picture holds."""
    with Image.open(file) as picture:
        return np.asarray(picture)


def photograph(image: Pixels) -> Image.Image:
    """An image as a tile."""
    return Image.fromarray(image.squeeze()).convert("RGB").resize((TILE, TILE))


def drawing(label: Pixels, mask: Pixels) -> Image.Image:
    """A label in flat colours, with the outlines of its mask."""
    canvas = np.empty((*label.shape, 3), np.uint8)
    for number, colour in COLOURS.items():
        canvas[label == number] = colour
    for number in range(1, mask.max() + 1):
        inside = np.pad(mask >= number, 1, mode="edge")
        middle = inside[1:-1, 1:-1]
        kept = inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        canvas[middle & ~kept] = OUTLINE
    return Image.fromarray(canvas).resize((TILE, TILE), Image.Resampling.LANCZOS)


def write(name: str, heads: Sequence[str], rows: Sequence[Row]) -> None:
    """Write a sheet with a head for each column and a name below each row."""
    step = TILE + GAP
    size = (GAP + len(heads) * step, LINE + len(rows) * (step + LINE))
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    for column, head in enumerate(heads):
        draw.text((GAP + column * step, 1), head, INK, font)
    for number, (site, tiles) in enumerate(rows):
        top = LINE + number * (step + LINE)
        draw.text((GAP, top + TILE), site, INK, font)
        for column, tile in enumerate(tiles):
            sheet.paste(tile, (GAP + column * step, top))
    sheet.quantize(160).save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
