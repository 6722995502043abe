"""A contact sheet: a few cases of each site in a row, with the outlines of their regions."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from polyclinic.data.case_files import CaseFiles
from polyclinic.data.case_reading import Content, read_contents
from polyclinic.data.coding import coding_of
from polyclinic.data.folder import SiteFolder, find_sites, read_site
from polyclinic.data.formats.store import read_slice
from polyclinic.data.pictures import BACKGROUND, as_picture, colour_of, draw_contours, draw_label
from polyclinic.data.site_files import SPLITS
from polyclinic.data.tasks import Task

TILE, GAP, LINE = 224, 12, 22  # pixels
PAPER, INK, GREY = (255, 255, 255), (25, 25, 25), (110, 110, 110)


def contact_sheet(
    folder: Path,
    task: Task,
    path: Path,
    *,
    per_site: int = 6,
    kind: str | None = None,
    volumes: Path | None = None,
) -> None:
    """Write a PNG with `per_site` cases of every site in `folder`, spread evenly over its cases.

    Of volumes with masks these are slices that show much of what was drawn.
    Labels of a `kind`, by default the one that site.toml names, show as tinted pixels; of cases
    without a mask their first ones do. What cannot be read stays empty.
    """
    sites = [read_site(each, volumes=volumes) for each in find_sites(folder)]
    columns = max(1, min(per_site, max(len(site.cases) for site in sites)))
    row = LINE + TILE + LINE + GAP
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), GAP + LINE + len(sites) * row), PAPER)
    _write_legend(sheet, task)
    for number, site in enumerate(sites):
        _draw_row(sheet, site, task, columns, top=GAP + LINE + number * row, kind=kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def _draw_row(
    sheet: Image.Image, site: SiteFolder, task: Task, columns: int, *, top: int, kind: str | None
) -> None:
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, top), _caption(site, kind), INK, ImageFont.load_default(15))
    cases = [case for case in site.cases if kind is None or kind in case.labels]
    own = site.toml.labels if site.toml.labels in site.kinds else None
    shown = kind or (own if own != "mask" else None)
    kinds = (shown,) if shown else site.kinds
    coding, _ = coding_of(site.toml, task)
    contents = read_contents(_spread(_telling(cases), columns), task, kinds, coding=coding)
    for column, content in enumerate(contents):
        left = GAP + column * (TILE + GAP)
        if content.image is not None:
            sheet.paste(_tile(content, task, tinted=bool(shown)), (left, top + LINE))
        name = _shortened(content.case.name, draw)
        draw.text((left, top + LINE + TILE + 2), name, GREY, ImageFont.load_default(12))


def _tile(content: Content, task: Task, *, tinted: bool) -> Image.Image:
    """The case, its longer side TILE pixels, on grey."""
    assert content.image is not None
    high, wide = content.size
    scale = TILE / max(high, wide)
    picture = as_picture(content.image)
    # Before the picture becomes small, because thin labels would break.
    for label in list(content.labels.values())[:1] if tinted or content.mask is None else ():
        picture = draw_label(picture, label, len(task.classes))
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    pixels = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
    if content.mask is not None:
        for number, classes in enumerate(task.regions.values()):
            colour = colour_of(number)
            pixels = draw_contours(pixels, np.isin(content.mask, classes), colour)
    tile = Image.new("RGB", (TILE, TILE), (225, 225, 225))
    tile.paste(Image.fromarray(pixels), ((TILE - size[0]) // 2, (TILE - size[1]) // 2))
    return tile


def _telling(cases: Sequence[CaseFiles]) -> list[CaseFiles]:
    """The cases without those slices of volumes that show little of what the volume's mask has."""
    areas = [_area(case) for case in cases]
    largest: dict[str | None, int] = {}
    for case, area in zip(cases, areas, strict=True):
        largest[case.volume] = max(largest.get(case.volume, 0), area or 0)
    return [
        case
        for case, area in zip(cases, areas, strict=True)
        if area is None or area * 2 >= largest[case.volume]
    ]


def _area(case: CaseFiles) -> int | None:
    """How many pixels of a volume's slice the volume's mask has; None of other cases."""
    piece = case.slices.get(case.mask) if case.mask else None
    return int(np.count_nonzero(read_slice(piece))) if piece else None


def _spread(cases: Sequence[CaseFiles], count: int) -> list[CaseFiles]:
    if not cases:
        return []
    places = np.linspace(0, len(cases) - 1, min(count, len(cases))).round().astype(int)
    return [cases[place] for place in places]


def _caption(site: SiteFolder, kind: str | None) -> str:
    splits = Counter(case.split for case in site.cases)
    parts = [f"{splits[split]} {split}" for split in SPLITS if splits[split]]
    labels = [f"{kind} labels"] if kind else []
    return " · ".join((site.name, f"{len(site.cases)} cases", *parts, *labels))


def _write_legend(sheet: Image.Image, task: Task) -> None:
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    left = GAP
    draw.text((left, GAP // 2), task.name, INK, font)
    left += int(draw.textlength(task.name, font)) + 2 * GAP
    colours = {name: colour_of(number) for number, name in enumerate(task.regions)}
    for name, colour in {**colours, "background strokes": BACKGROUND}.items():
        draw.rectangle((left, GAP // 2 + 2, left + GAP, GAP // 2 + 2 + GAP), colour, INK)
        draw.text((left + GAP + 5, GAP // 2), name, INK, font)
        left += int(draw.textlength(name, font)) + 3 * GAP


def _shortened(name: str, draw: ImageDraw.ImageDraw) -> str:
    font = ImageFont.load_default(12)
    short = name
    while draw.textlength(short, font) > TILE and len(short) > 2:
        short = f"{short[:-2]}…"
    return short
