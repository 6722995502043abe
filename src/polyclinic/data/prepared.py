"""A site's tensors, made once of its volumes and mapped into memory from then on."""

import json
import secrets
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyclinic.data.aside import Aside
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.site_files import SPLITS


def keep_site(site: SiteData, folder: Path, aside: Aside) -> SiteData:
    """A site whose tensors lie aside, as `kept_site` will give it; written whole or not at all."""
    unfinished = folder.with_name(f".{secrets.token_hex(8)}")
    unfinished.mkdir(parents=True)
    about: dict[str, Any] = {"site": _plain(site), **{name: {} for name in SPLITS}}
    for split in SPLITS:
        cases = getattr(site, split)
        about[split] = _plain(cases)
        for name, tensor in _tensors(cases).items():
            array = tensor.numpy()
            with (unfinished / f"{split}-{name}.npy").open("wb") as file:  # as np.save does
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(file, header)
                aside.write(array, array.dtype, file)
    (unfinished / "about.json").write_text(json.dumps(about))
    try:
        unfinished.rename(folder)
    except OSError:  # another study was faster
        shutil.rmtree(unfinished)
    kept = kept_site(folder)
    assert kept is not None
    return kept


def kept_site(folder: Path) -> SiteData | None:
    """The site that was kept there; its images, masks and labels stay on disk until they are used.

    Changes to the tensors are seen by this process only.
    """
    about = folder / "about.json"
    if not about.is_file():
        return None
    said = json.loads(about.read_text())
    splits: dict[str, Any] = {
        split: Cases(**_tuples(said[split]), **_mapped(folder, split)) for split in SPLITS
    }
    return SiteData(**_tuples(said["site"]), **splits)


def _plain(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: value for name, value in values.items() if not isinstance(value, torch.Tensor | Cases)
    }


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in values.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _tensors(cases: Cases) -> dict[str, torch.Tensor]:
    values = {field.name: getattr(cases, field.name) for field in fields(cases)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _mapped(folder: Path, split: str) -> dict[str, Any]:
    tensors = {}
    for file in folder.glob(f"{split}-*.npy"):
        array = np.load(file, mmap_mode="c")
        tensors[file.stem.removeprefix(f"{split}-")] = torch.from_numpy(array)
    return tensors
