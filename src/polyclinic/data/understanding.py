"""What a folder of files in no particular order holds, as far as names and headers say it.

Files are sorted into a passing site folder of links, so that everything else reads, matches and
checks them as it does any site.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from polyclinic.config.printing import literal
from polyclinic.data.case_files import parts_of
from polyclinic.data.code_tables import Codes
from polyclinic.data.errors import DataError, UnreadableError, listed
from polyclinic.data.folder import SiteFolder, read_site
from polyclinic.data.formats.instances import is_dicom
from polyclinic.data.formats.nifti import is_nifti, stem
from polyclinic.data.formats.reading import Left, files_below, read_instances_of
from polyclinic.data.import_choices import Choices, codes_of, of_site_toml, refuse_idle
from polyclinic.data.nnunet import is_nnunet
from polyclinic.data.readers import SUFFIXES as PICTURES

MASK_WORDS = (
    *("mask", "masks", "label", "labels", "gt", "groundtruth", "truth", "manual", "manual1"),
    *("annotation", "annotations", "seg", "segmentation", "segmentations"),
)
IMAGE_WORDS = ("image", "images", "img", "imgs", "photo", "photos", "scan", "training")
OWN_FILES = ("site.toml", "cases.csv", "splits.csv", "dataset.json", "readme.md", "readme.txt")


@dataclass(frozen=True)
class Understood:
    """The sites that were found, in which layout, and each file that belongs to none, with why."""

    source: Path
    sites: tuple[SiteFolder, ...]
    layout: str
    left: tuple[Left, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)  # a link's place → its file's

    def told(self, line: str) -> str:
        """A line about a site that names the file as the source has it."""
        found = re.match(r"(site .*?, )(.+?)((?: and \d+ more)?: )", line)
        if not found or found[2] not in self.origins:
            return line
        return f"{found[1]}{self.origins[found[2]]}{line[found.start(3) :]}"

    def left_out(self) -> list[str]:
        """A line for each reason for which files are no part of a site, with the first of them."""
        reasons: dict[str, list[str]] = {}
        for file, reason in self.left:
            reasons.setdefault(reason, []).append(str(file.relative_to(self.source)))
        return [f"{listed(files, most=3)}: {reason}" for reason, files in reasons.items()]


class Unclear(DataError):
    """Something that only a person can say, and the option that says it."""

    def __init__(self, option: str, question: str) -> None:
        self.option, self.question = option, question
        super().__init__([f"{question}: say it by --{option}"])


@contextmanager
def understanding(
    source: Path, choices: Choices, volumes: Path | None = None
) -> Iterator[Understood]:
    """What the source holds; it is only read, and its links last as long as the block."""
    if not source.is_dir():
        raise DataError([f"there is no folder {source}"])
    folders = _site_folders(source)
    codes = codes_of(choices)
    if folders and not (choices.masks or choices.images):
        refuse_idle(choices, len(folders))
        sites = tuple(_coded(read_site(each, choices.name, volumes), codes) for each in folders)
        others = [path for path in _inside(source) if path not in folders and source not in folders]
        left = tuple((path, "holds no site: neither images/ nor imagesTr/") for path in others)
        yield Understood(source, sites, _layout(folders[0]), left)
        return
    with TemporaryDirectory(prefix="polyclinic-import-") as passing:
        name = choices.name or source.resolve().name
        folder = Path(passing, name)
        left = tuple(_sort(source, folder, choices))
        site = _coded(read_site(folder, name, volumes), codes)
        yield Understood(source, (site,), "files", left, _origins(folder, source))


def _coded(site: SiteFolder, codes: Codes) -> SiteFolder:
    if not (codes.values or codes.colours):
        return site
    return replace(site, toml=replace(site.toml, masks=codes))


def _origins(folder: Path, source: Path) -> dict[str, str]:
    """Where the files lie in the source to which the links of the passing folder lead.

    A message about a series names its folder, so folders that lie there alike are told, too.
    """
    root = source.resolve()
    origins = {}
    for link in files_below(folder):
        if link.is_symlink() and link.resolve().is_relative_to(root):
            origin = link.resolve().relative_to(root)
            origins[str(link.relative_to(folder))] = str(origin)
            if link.name == origin.name:
                origins[str(link.parent.relative_to(folder))] = str(origin.parent)
    return origins


def _site_folders(source: Path) -> list[Path]:
    """The folders that are sites as they stand: the source, or folders in it."""
    if _is_site(source):
        return [source]
    return [path for path in _inside(source) if path.is_dir() and _is_site(path)]


def _inside(source: Path) -> list[Path]:
    return [path for path in sorted(source.iterdir()) if not path.name.startswith((".", "_"))]


def _is_site(folder: Path) -> bool:
    """Whether images and something that is said of them lie where a site has them."""
    return any(
        part.nnunet or part.masks.is_dir() or part.labels or list(part.images.glob("*.h5"))
        for part in parts_of(folder)
    )


def _layout(folder: Path) -> str:
    if is_nnunet(folder):
        return "nnU-Net"
    return "site folders" if (folder / "images").is_dir() else "train and test folders"


def _sort(source: Path, folder: Path, choices: Choices) -> list[Left]:
    """Link every file into `images/` or `masks/`; what is left out is given with the reason."""
    try:
        files = [each for each in files_below(source) if each.name.lower() not in OWN_FILES]
    except UnreadableError as error:
        raise DataError([f"{source} {error}"]) from error
    simple = [file for file in files if is_nifti(file) or file.suffix.lower() in PICTURES]
    instances, others = read_instances_of(sorted(set(files) - set(simple)))
    left = [
        (file, why if is_dicom(file) else "is no image that can be read") for file, why in others
    ]
    for each in instances:
        part = "masks" if each.segmentation else "images"
        _link(each.file, folder / part / each.file.relative_to(source))
    verdicts = {file: _is_mask(file.relative_to(source).as_posix(), choices) for file in simple}
    images = [file for file in simple if verdicts[file] is False]
    masks = [file for file in simple if verdicts[file]]
    neither = "is named by neither --images nor --masks"
    left += [(file, neither) for file in simple if verdicts[file] is None]
    if (images or instances) and not masks and not any(each.segmentation for each in instances):
        kinds = Counter(str(file.parent.relative_to(source)) for file in files)
        told = ", ".join(f"{name}/ ({count})" for name, count in kinds.most_common(8))
        raise Unclear(
            "masks", f'which files are masks (a pattern such as "manual/*")? found {told}'
        )
    left += _link_named(images, folder / "images") + _link_named(masks, folder / "masks")
    _write_toml(source / "site.toml", folder / "site.toml", choices)
    return left


def _write_toml(own: Path, place: Path, choices: Choices) -> None:
    """What the source says of itself, and what was chosen instead."""
    chosen = of_site_toml(choices)
    if not own.is_file() and not chosen:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    text = own.read_text(encoding="utf-8") if own.is_file() else ""
    lines = [line for line in text.splitlines() if line.split("=")[0].strip() not in chosen]
    said = (f"{key} = {literal(value)}" for key, value in chosen.items())
    place.write_text("\n".join((*said, *lines)), encoding="utf-8")


def _is_mask(place: str, choices: Choices) -> bool | None:
    """Whether a file is a mask, an image (False) or neither (None)."""
    if choices.masks and fnmatch(place, choices.masks):
        return True
    if choices.images:
        return False if fnmatch(place, choices.images) else None
    words = {word.lower() for part in place.split("/") for word in _words(part)}
    return not choices.masks and bool(words & set(MASK_WORDS))


def _link_named(files: Sequence[Path], folder: Path) -> list[Left]:
    """Link files by what their names have besides words such as "mask" or "image"."""
    left: list[Left] = []
    linked: dict[str, Path] = {}
    for file in files:
        name = stem(file) if is_nifti(file) else file.stem
        plain = [word for word in _words(name) if word.lower() not in (*MASK_WORDS, *IMAGE_WORDS)]
        key = "_".join(plain) or name
        if key in linked:
            left.append((file, f"is a second file of case {key}, as {linked[key].name}"))
            continue
        linked[key] = file
        ending = file.name[len(name) :]
        _link(file, folder / f"{key}{ending}")
    return left


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[_\-. ]+", name) if word]


def _link(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(file.resolve())
