"""The file of a model: a zip with a list of its contents and their hashes; nothing is unpickled.

The hashes show damage and mistakes. They are no signature: who can change the file can also change
the list, so compare the content's hash with the one its maker tells you.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from polyclinic.predict.facts import FORMAT, PackageFacts
from polyclinic.runs import replacing

FACTS, LIST, GRAPH = "model.json", "contents.json", "model.onnx"
CARD, PAGE = "card.md", "card.html"
LARGEST = 4 * 2**30  # bytes of one file in a package
EPOCH = (1980, 1, 1, 0, 0, 0)  # zips know no time before it; the same content is the same file


class PackageError(ValueError):
    """A file that is no model, or one that cannot be used here, and why."""


@dataclass(frozen=True)
class Package:
    """A model's file: what it says of itself, and its contents by name."""

    facts: PackageFacts
    contents: Mapping[str, bytes]

    @property
    def content_hash(self) -> str:
        """The SHA-256 of the list of contents: equal for equal packages."""
        return hashlib.sha256(_listing(self._files())).hexdigest()

    def write(self, path: Path) -> None:
        """Write the package; whoever reads it sees all of it or nothing."""
        files = self._files()
        with replacing(path) as unfinished, zipfile.ZipFile(unfinished, "w") as archive:
            for name, content in {LIST: _listing(files), **files}.items():
                about = zipfile.ZipInfo(name, EPOCH)
                about.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(about, content, compresslevel=6)

    def _files(self) -> dict[str, bytes]:
        return {FACTS: self.facts.model_dump_json(indent=2).encode() + b"\n", **self.contents}


def read_package(path: Path, task: str | None = None) -> Package:
    """The package in a file; PackageError where it is damaged, too new or another task's."""
    files = _files(path)
    facts = _facts(path, files.pop(FACTS))
    if task is not None and facts.task.name != task:
        raise PackageError(f"{path} is a model for the task {facts.task.name}, not for {task}")
    if GRAPH not in files:
        raise PackageError(f"{path} is no whole model: it lacks {GRAPH}")
    return Package(facts, files)


def _files(path: Path) -> dict[str, bytes]:
    """The contents of the archive, each with the hash that the list says."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if LIST not in names:
                raise PackageError(f"{path} is a zip, but no model package: it lacks {LIST}")
            hashes: dict[str, str] = json.loads(_content(archive, LIST))
            surplus = sorted({*names} ^ {*hashes, LIST})
            if surplus or len(names) != len(set(names)):
                raise PackageError(f"{path} is damaged: its list differs in {', '.join(surplus)}")
            files = {name: _content(archive, name) for name in hashes}
    except FileNotFoundError:
        raise PackageError(f"there is no file {path}") from None
    # What zipfile and json raise between them for broken files.
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, AttributeError) as error:
        raise PackageError(f"{path} is no model package: {error}") from error
    except json.JSONDecodeError as error:
        raise PackageError(f"{path} is damaged: {LIST} is no JSON: {error}") from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != hashes[name]:
            raise PackageError(f"{path} is damaged: {name} is not as it was written")
    if FACTS not in files:
        raise PackageError(f"{path} is no model package: it lacks {FACTS}")
    return files


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > LARGEST:
        raise PackageError(f"{archive.filename}: {name} is larger than a model can be")
    return archive.read(name)


def _facts(path: Path, content: bytes) -> PackageFacts:
    try:
        table = json.loads(content)
        number, versions = table.get("format", 0), table.get("versions", {})
        if number > FORMAT:
            maker = versions.get("polyclinic", "a newer version")
            raise PackageError(
                f"{path} was written by Polyclinic {maker} in format {number}; this one reads up "
                f"to {FORMAT}: install the newer version"
            )
        return PackageFacts.model_validate(table)
    except (json.JSONDecodeError, AttributeError) as error:
        raise PackageError(f"{path} is damaged: {FACTS} is no JSON: {error}") from error
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise PackageError(f"{path}: {FACTS} cannot be read: {told}") from error


def _listing(files: Mapping[str, bytes]) -> bytes:
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    return json.dumps(hashes, indent=2).encode() + b"\n"
