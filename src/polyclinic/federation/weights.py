"""Named weights side by side in one flat buffer, so that copying and mixing are one pass."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from polyclinic.networks.parts import Names

LARGEST = 1e6  # of any weight that is taken from elsewhere; a running variance is a square


@dataclass(frozen=True)
class Slot:
    """Where a tensor lies in the flat buffer; four-dimensional ones lie there channels last."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The first position after the tensor."""
        return self.start + torch.Size(self.shape).numel()

    def view(self, flat: Tensor) -> Tensor:
        """The tensor itself: a view of the buffer in the tensor's own shape."""
        piece = flat[self.start : self.stop]
        if len(self.shape) != 4:
            return piece.view(self.shape)
        rows, channels, height, width = self.shape
        return piece.view(rows, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Layout:
    """The order and shapes of named tensors in a flat buffer."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """Each name's place in the buffer."""
        slots, start = {}, 0
        for name, shape in self.shapes:
            slots[name] = Slot(start, shape)
            start = slots[name].stop
        return slots

    @cached_property
    def names(self) -> Names:
        """All names as a set."""
        return frozenset(self.slots)

    @cached_property
    def size(self) -> int:
        """The number of values in the buffer."""
        return max((slot.stop for slot in self.slots.values()), default=0)


class Weights(Mapping[str, Tensor]):
    """A mapping from names to tensors that are views of one flat buffer."""

    def __init__(self, layout: Layout, flat: Tensor) -> None:
        assert flat.numel() == layout.size, "the buffer does not fit its layout"
        self.layout = layout
        self.flat = flat

    @classmethod
    def pack(cls, tensors: Mapping[str, Tensor]) -> "Weights":
        """Copies of these tensors, side by side."""
        layout = Layout(tuple((name, tuple(tensor.shape)) for name, tensor in tensors.items()))
        first = next(iter(tensors.values()), torch.empty(0))
        packed = cls(layout, torch.empty(layout.size, dtype=first.dtype, device=first.device))
        for name, tensor in tensors.items():
            packed[name].copy_(tensor)
        return packed

    def __getitem__(self, name: str) -> Tensor:
        return self.layout.slots[name].view(self.flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.slots)

    def __len__(self) -> int:
        return len(self.layout.slots)

    @property
    def names(self) -> Names:
        """All names as a set."""
        return self.layout.names

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes."""
        return self.flat.numel() * self.flat.element_size()

    def copy(self) -> "Weights":
        """The same weights in a buffer of their own."""
        return Weights(self.layout, self.flat.clone())

    def pick(self, names: Names) -> "Weights":
        """A copy of the weights with these names, in the order they have here."""
        if names == self.names:
            return self.copy()
        layout, runs = _selection(self.layout, names)
        pieces = [self.flat[start:stop] for start, stop in runs]
        return Weights(layout, torch.cat(pieces) if pieces else self.flat[:0].clone())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the weights with these names in place; unknown names are an error."""
        if isinstance(tensors, Weights) and tensors.layout == self.layout:
            self.flat.copy_(tensors.flat)
            return
        refuse_unknown(tensors, self.names)
        if isinstance(tensors, Weights):
            layout, runs = _selection(self.layout, tensors.names)
            if layout == tensors.layout:
                position = 0
                for start, stop in runs:
                    piece = tensors.flat[position : position + stop - start]
                    self.flat[start:stop].copy_(piece)
                    position += stop - start
                return
        for name, tensor in tensors.items():
            self[name].copy_(tensor)


def nested(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Several groups of tensors as one, each name with its group in front."""
    return {f"{g}/{name}": tensor for g, group in groups.items() for name, tensor in group.items()}


def group(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one group, under their own names again."""
    prefix = f"{name}/"
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def absurd(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those with a value that no training gives."""
    real = {name: t for name, t in tensors.items() if t.is_floating_point() and t.numel()}
    return [name for name, t in real.items() if float(t.abs().max()) > _largest(name)]


def _largest(name: str) -> float:
    return LARGEST**2 if name.endswith(".running_var") else LARGEST


def refuse_unknown(names: Iterable[str], known: Names) -> None:
    """Raise a ValueError that lists the names which are not known."""
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(f"the network has no weights named {', '.join(unknown[:5])}")


@lru_cache(maxsize=256)
def _selection(layout: Layout, names: Names) -> tuple[Layout, tuple[tuple[int, int], ...]]:
    """The layout of a part and the unbroken runs of the buffer that hold it."""
    refuse_unknown(names, layout.names)
    runs: list[tuple[int, int]] = []
    for name, slot in layout.slots.items():
        if name not in names:
            continue
        if runs and runs[-1][1] == slot.start:
            runs[-1] = (runs[-1][0], slot.stop)
        else:
            runs.append((slot.start, slot.stop))
    part = Layout(tuple(entry for entry in layout.shapes if entry[0] in names))
    return part, tuple(runs)


def flatten(net: nn.Module) -> Weights:
    """Move all floating point tensors of a network into one buffer and give them as live weights.

    Parameters and buffers become views: training changes these weights, loading them changes the
    network. Call it once, after the network is on its device.
    """
    state = {
        name: tensor for name, tensor in net.state_dict().items() if tensor.is_floating_point()
    }
    weights = Weights.pack(state)
    parameters = dict(net.named_parameters())
    for name in weights:
        if name in parameters:
            parameters[name].data = weights[name]
        else:
            path, _, leaf = name.rpartition(".")
            net.get_submodule(path)._buffers[leaf] = weights[name]
    return weights
