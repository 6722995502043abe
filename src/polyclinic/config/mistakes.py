"""Mistakes in a study, told to people: the key, its value, what is allowed, what was meant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Mistake:
    """One mistake: the dotted key, what is wrong, the value as TOML, allowed names, the nearest."""

    key: str
    problem: str
    value: str = ""
    allowed: tuple[str, ...] = ()
    meant: str = ""

    def __str__(self) -> str:
        given = f" = {_shortened(self.value)}" if self.value else ""
        meant = f"; did you mean {self.meant}?" if self.meant else ""
        heading = " Allowed: " if meant else "; allowed: "
        allowed = heading + ", ".join(self.allowed) if self.allowed else ""
        return f"{self.key}{given}: {self.problem}{meant}{allowed}"


class ConfigError(ValueError):
    """Every mistake of a study at once, with the file or whatever else they are in."""

    def __init__(
        self, source: Path | str, mistakes: Sequence[Mistake], overridden: Iterable[str] = ()
    ) -> None:
        self.source = source
        self.mistakes = tuple(mistakes)
        self.overridden = frozenset(overridden)
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        lines = (f"  {mistake}{self._origin(mistake)}" for mistake in mistakes)
        super().__init__("\n".join([f"{count} in {source}:", *lines]))

    def _origin(self, mistake: Mistake) -> str:
        at = mistake.key
        from_command_line = any(
            at.startswith(key) and at[len(key) :][:1] in ("", ".", "#") for key in self.overridden
        )
        return " (given by --set)" if from_command_line else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.mistakes, self.overridden)


def unknown(key: str, problem: str, value: str, wrong: Any, allowed: Iterable[str]) -> Mistake:
    """The mistake of a name that does not exist, with those that do and the nearest of them."""
    names = tuple(allowed)
    return Mistake(key, problem, value, names, nearest(wrong, names))


def nearest(wrong: Any, allowed: Iterable[str]) -> str:
    """The allowed name most like the wrong one, whatever the case; empty if none is like it."""
    by_lower = {name.lower(): name for name in reversed(list(allowed))}
    found = get_close_matches(str(wrong).lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""


def did_you_mean(wrong: Any, allowed: Iterable[str]) -> str:
    """A question to end an error with: `; did you mean "rim"?`, or nothing where none is near."""
    near = nearest(wrong, allowed)
    return f'; did you mean "{near}"?' if near else ""


def multiples_near(size: int, divisor: int) -> str:
    """The multiples of a number on both sides of a size, for sentences."""
    below = size // divisor * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"
