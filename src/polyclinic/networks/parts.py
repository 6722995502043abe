"""Selections of a network's weights by module path or type, as sets of state-dict names."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from torch import nn

from polyclinic.config.mistakes import did_you_mean

if TYPE_CHECKING:
    from polyclinic.networks.contract import Segmenter

Names = frozenset[str]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class EmptySelection(ValueError):
    """A selection holds nothing although its user cannot do without."""


class PartError(ValueError):
    """No part or module of the network has this name."""


def everything(net: nn.Module) -> Names:
    """Give all floating point names of the state dict; counters stay at home."""
    return frozenset(name for name, value in net.state_dict().items() if value.is_floating_point())


def parameters(net: nn.Module) -> Names:
    """Give the names of everything trainable, frozen or not."""
    return frozenset(name for name, _ in net.named_parameters(remove_duplicate=False))


def under(net: nn.Module, *paths: str) -> Names:
    """Give all names inside the modules at exactly these dotted paths."""
    known = [path for path, _ in net.named_modules(remove_duplicate=False) if path]
    for path in paths:
        if path not in known:
            raise PartError(f"{_title(net)} has no module '{path}'{_nearest(path, known)}")
    return _inside(net, paths)


def of_type(net: nn.Module, *types: type[nn.Module]) -> Names:
    """Give all names inside modules of these types or of types derived from them."""
    found = net.named_modules(remove_duplicate=False)
    return _inside(net, (path for path, module in found if isinstance(module, types)))


def norms(net: nn.Module) -> Names:
    """Give scales, offsets and running statistics of all BatchNorm layers."""
    return of_type(net, *BATCH_NORMS)


def statistics(net: nn.Module) -> Names:
    """Give the running means and variances of all BatchNorm layers."""
    return norms(net) - parameters(net)


def part(net: "Segmenter", name: str) -> Names:
    """Give the part that the network publishes under this name."""
    parts = net.parts()
    if name not in parts:
        raise PartError(f"{_title(net)} has no part '{name}'{_nearest(name, parts)}")
    return parts[name]


def nonempty(names: Names, net: nn.Module, reason: str, instead: str = "") -> Names:
    """Give the selection back, or say why it may not be empty and what to do `instead`.

    Both are half a sentence.
    """
    if not names:
        advice = f"; {instead}" if instead else ""
        raise EmptySelection(f"{reason}, but {_title(net)} has none{advice}")
    return names


def _inside(net: nn.Module, paths: Iterable[str]) -> Names:
    # The dot keeps 'conv.1' from capturing 'conv.10'; the empty path is the network itself.
    prefixes = tuple(f"{path}." if path else "" for path in paths)
    return frozenset(name for name in everything(net) if name.startswith(prefixes))


def _title(net: nn.Module) -> str:
    return f"network '{getattr(net, 'name', type(net).__name__)}'"


def _nearest(name: str, known: Collection[str]) -> str:
    there_are = f"; it has {', '.join(sorted(known))}" if len(known) <= 12 else ""
    return did_you_mean(name, known) or there_are
