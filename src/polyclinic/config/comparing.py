"""What is set otherwise than when a run was begun."""

from collections.abc import Iterator
from typing import Any

from polyclinic.config.printing import literal

FREE = frozenset(
    f"engine.{key}" for key in ("jobs", "workers", "quorum", "deadline", "patience", "at_once")
)
"""How a run is carried out; it may go on with others, since its weights do not depend on them."""


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What a run begun with the first settings cannot go on with: `training.batch was 12, is 8`."""
    old, new = dict(_leaves("", before)), dict(_leaves("", now))
    return [
        f"{key} was {_shown(old, key)}, is {_shown(new, key)}"
        for key in dict.fromkeys([*old, *new])
        if key not in FREE and (key not in old or key not in new or old[key] != new[key])
    ]


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for number, entry in enumerate(value):
            yield from _leaves(f"{path}[{number}]", entry)
    else:
        yield path, value


def _shown(leaves: dict[str, Any], key: str) -> str:
    return literal(leaves[key]) if key in leaves else "not set"
