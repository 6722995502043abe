"""Predicting whatever files and folders hold, one case at a time, from where it was stopped."""

import csv
import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.volume import Axis
from polyclinic.predict.inputs import Input, Scan
from polyclinic.predict.masks_out import Masks, write_masks
from polyclinic.predict.model import Model
from polyclinic.predict.overlay import overlay
from polyclinic.predict.pages import data_uri, streamed
from polyclinic.predict.quality import Note
from polyclinic.predict.records import Extent, Record, Records, finite, stamp
from polyclinic.runs import replacing

OVERLAYS, MASKS, TABLE, PAGE = "overlays", "masks", "cases.csv", "index.html"
SIDE = 360  # pixels of a picture on the page
Failure = tuple[Path, str]


@dataclass(frozen=True)
class Options:
    """How cases are read and judged."""

    axis: Axis | None = None  # along which volumes are cut; None: as the format has it
    window: bool = False  # see DICOM through the window that is stored in it
    spacing: tuple[float, float] | None = None  # mm of a picture's pixels, rows and columns
    flips: bool = True  # predict mirrored images too, for the note


@dataclass(frozen=True)
class Outcome:
    """What came of it: cases done now, cases done before, and files that could not be used."""

    done: int
    before: int
    failed: tuple[Failure, ...]
    page: Path


def predict_all(
    model: Model,
    inputs: Sequence[Input],
    to: Path,
    options: Options,
    *,
    fresh: bool = False,
    on_case: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Predict each case and write masks, overlays, a table and a page.

    A case that was done before is not done again, unless its files changed. A file that cannot be
    used stops nothing.
    """
    maker = {"model": model.package.content_hash, "options": asdict(options)}
    records = Records(to, maker)
    known = records.begin(fresh=fresh)
    failed: list[Failure] = []
    count: Counter[str] = Counter()
    kept: dict[str, Record] = {}
    for given in inputs:
        before = known.get(given.name)
        try:
            if before and before.stamp == stamp(given.files) and (to / before.mask).exists():
                count["before"] += 1
                kept[given.name] = before
            else:
                kept[given.name] = _predicted(model, given, to, options)
                records.add(kept[given.name])
                count["done"] += 1
        except (UnreadableError, OSError) as error:
            failed.append((given.files[0], str(error)))
        on_case(given.name)
    ordered = [kept[name] for name in sorted(kept)]
    _write_table(to / TABLE, ordered)
    _write_page(to, model, ordered, failed)
    return Outcome(count["done"], count["before"], tuple(failed), to / PAGE)


def _predicted(model: Model, given: Input, to: Path, options: Options) -> Record:
    started = time.perf_counter()
    marks = stamp(given.files)
    scan = given.read(model.task.channels, options.axis, window=options.window)
    masks, note, shown = looked_at(model, scan, flips=options.flips)
    picture = overlay(scan.voxels[shown], masks[shown], model.facts.colours, model.task)
    place = to / OVERLAYS / f"{given.name}.png"
    with replacing(place) as unfinished:
        Image.fromarray(picture).save(unfinished, format="PNG")
    return Record(
        case=given.name,
        files=tuple(map(str, given.files)),
        stamp=marks,
        mask=str(write_masks(to / MASKS, given, scan, masks, model.task).relative_to(to)),
        overlay=str(place.relative_to(to)),
        size=(len(masks), masks.shape[1], masks.shape[2]),
        shown=shown,
        extents=extents(masks, scan, model.task.classes, options.spacing),
        doubt=finite(note.doubt),
        reasons=note.reasons,
        seconds=time.perf_counter() - started,
    )


class Looked(NamedTuple):
    """The masks of a case's slices, the note on it, and the slice that shows most."""

    masks: Masks
    note: Note
    shown: int


def looked_at(model: Model, scan: Scan, *, flips: bool = True) -> Looked:
    """What the model makes of all slices of a case."""
    found = [model.look(image, flips=flips) for image in scan.slices()]
    masks = np.stack([each.classes for each in found])
    return Looked(masks, joined([each.note for each in found]), most_shown(masks))


def most_shown(masks: Masks) -> int:
    """The slice with the most pixels that are no background."""
    return int(np.argmax([np.count_nonzero(mask) for mask in masks]))


def joined(notes: Sequence[Note]) -> Note:
    """The note on a volume: mean doubt of its slices, reasons that half of them have."""
    if len(notes) == 1:
        return notes[0]
    counts = Counter(reason.partition(":")[0] for note in notes for reason in note.reasons)
    reasons = [reason for reason, count in counts.items() if 2 * count >= len(notes)]
    return Note(float(np.mean([note.doubt for note in notes])), tuple(reasons), {})


def extents(
    masks: Masks, scan: Scan, classes: Sequence[str], spacing: tuple[float, float] | None
) -> dict[str, Extent]:
    """How much of a case each class but background is."""
    size = scan.spacing or spacing
    pixel = size[0] * size[1] if size else None
    counts = np.bincount(masks.ravel(), minlength=len(classes))
    thickness = scan.thickness
    return {
        name: Extent(
            pixels=int(counts[number]),
            area=int(counts[number]) * pixel if pixel and len(masks) == 1 else None,
            volume=int(counts[number]) * pixel * thickness if pixel and thickness else None,
        )
        for number, name in enumerate(classes)
        if number
    }


def _write_table(path: Path, records: Iterable[Record]) -> None:
    header = ("case", "class", "pixels", "area_mm2", "volume_mm3", "doubt", "note", "mask")
    with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        for each in records:
            for name, extent in each.extents.items():
                sizes = (extent.pixels, _short(extent.area), _short(extent.volume))
                note = "; ".join(each.reasons)
                table.writerow((each.case, name, *sizes, _short(each.doubt), note, each.mask))


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _write_page(to: Path, model: Model, records: Sequence[Record], failed: list[Failure]) -> None:
    with replacing(to / PAGE) as unfinished, unfinished.open("w") as file:
        doubtful_first = sorted(records, key=lambda each: -(each.doubt or 0.0))
        cases = ((each, _embedded(to / each.overlay)) for each in doubtful_first)
        page = streamed(
            "cases.html",
            facts=model.facts,
            cases=cases,
            count=len(records),
            doubtful=sum(bool(each.reasons) for each in records),
            failed=failed,
        )
        file.writelines(page)


def _embedded(path: Path) -> str:
    """A picture as a link that holds it, its longer side at most 360 pixels."""
    with Image.open(path) as picture:
        small = picture.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=85)
    return data_uri("image/jpeg", content.getvalue())
