"""Weights from a file: what fits by name and shape is taken up, and all else is told."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polyclinic.config.mistakes import did_you_mean, nearest
from polyclinic.data.errors import listed
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.pvt import halve_keys_and_values

SHOWN = 4  # names in a list of them


class PretrainedError(ValueError):
    """A file that holds no weights for the network."""


@dataclass(frozen=True)
class Match:
    """What of a file a network, or its encoder alone, took up, and what not."""

    file: Path
    place: str  # "network" or "encoder"
    loaded: tuple[str, ...]
    missing: tuple[str, ...]  # wanted and not in the file
    shapes: tuple[str, ...]  # in the file with another shape, which is told
    unused: tuple[str, ...]  # in the file and not wanted

    def __str__(self) -> str:
        wanted = len(self.loaded) + len(self.missing) + len(self.shapes)
        told = [f"{self.file.name}: {len(self.loaded)} of {wanted} tensors of the {self.place}"]
        rest = {
            "not in the file": self.missing,
            "of another shape": self.shapes,
            "not used": self.unused,
        }
        told += [f"{what}: {listed(names, SHOWN)}" for what, names in rest.items() if names]
        return "; ".join(told)


def fingerprint(file: Path) -> str:
    """What a file of weights is called where its content counts, whatever its name."""
    with file.open("rb") as content:
        return f"sha256-{hashlib.file_digest(content, 'sha256').hexdigest()}"


def load_pretrained(net: Segmenter, file: Path) -> Match:
    """Overwrite the weights that a file has for the whole network or for its encoder.

    Names may stand behind a common prefix such as `module.` or `backbone.`.
    """
    tensors = _read(file)
    halve_keys_and_values(tensors)
    places = {"network": net, "encoder": net.encoder}
    tried = [
        (_match(file, place, module.state_dict(), named), named)
        for named in _without_prefixes(tensors)
        for place, module in places.items()
    ]
    match, named = max(tried, key=lambda each: len(each[0].loaded))
    if not match.loaded:
        raise PretrainedError(_why_nothing(net, file, tensors, [match for match, _ in tried]))
    state = places[match.place].state_dict()
    for name in match.loaded:
        state[name].copy_(named[name])
    return match


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        hint = did_you_mean(file.name, [other.name for other in file.parent.glob("*")])
        raise PretrainedError(f"there is no file of weights {file}{hint}")
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise PretrainedError(
            f"{file} is not a .safetensors file, the only kind that is read; of a file of torch, "
            "save the tensors with safetensors.torch.save_file"
        ) from error
    odd = [name for name, each in tensors.items() if not _plain(each)]
    if odd:
        raise PretrainedError(f"{file}: {odd[0]} is not made of finite real numbers")
    return tensors


def _plain(tensor: Tensor) -> bool:
    counter = tensor.dtype == torch.int64  # of batches, which nobody reads
    return counter or (tensor.is_floating_point() and bool(tensor.isfinite().all()))


def _without_prefixes(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The tensors as they are named, and those behind each first word without that word."""
    firsts = dict.fromkeys(_first_word(name) for name in tensors)
    return [dict(tensors)] + [
        {name.removeprefix(first): each for name, each in tensors.items() if name.startswith(first)}
        for first in firsts
        if first
    ]


def _first_word(name: str) -> str:
    # Runs name their tensors weights/… and memory/…, everybody else with dots.
    ends = [place for place in (name.find("."), name.find("/")) if place >= 0]
    return name[: min(ends) + 1] if ends else ""


def _match(
    file: Path, place: str, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> Match:
    named = [name for name in wanted if name in found]
    alike = [name for name in named if wanted[name].shape == found[name].shape]
    return Match(
        file=file,
        place=place,
        loaded=tuple(alike),
        missing=tuple(name for name in wanted if name not in found),
        shapes=tuple(
            f"{name} ({_shape(found[name])} in the file, {_shape(wanted[name])} here)"
            for name in named
            if name not in alike
        ),
        unused=tuple(
            name
            for name in found
            if name not in wanted and not name.endswith("num_batches_tracked")
        ),
    )


def _why_nothing(
    net: nn.Module, file: Path, tensors: Mapping[str, Tensor], matches: Sequence[Match]
) -> str:
    problem = f"nothing in {file} fits network '{getattr(net, 'name', '')}'"
    if not tensors:
        return f"{problem}: it holds no named tensors"
    shapes = max((match.shapes for match in matches), key=len)
    if shapes:
        return f"{problem}: all shapes differ, such as {shapes[0]}; is the width another?"
    wanted = [name for match in matches[:2] for name in match.missing]
    for name in tensors:
        if near := nearest(name, wanted):
            return f"{problem}: it names {name}, and the nearest name here is {near}"
    return f"{problem}: it names {next(iter(tensors))}, and the names here are like {wanted[-1]}"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
