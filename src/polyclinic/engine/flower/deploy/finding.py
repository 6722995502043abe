"""One line of a check."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was looked at and found; one with advice on what to do is an error."""

    about: str
    text: str
    advice: str = ""

    @property
    def good(self) -> bool:
        """Whether training may begin as far as this goes."""
        return not self.advice

    def __str__(self) -> str:
        mark, advice = ("✓", "") if self.good else ("✗", f"\n    → {self.advice}")
        return f"{mark} {self.about}: {self.text}{advice}"
