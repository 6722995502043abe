"""Texts from somewhere else, made safe to show in a terminal and to keep in a file."""

LONGEST = 2000  # characters


def plain(text: str) -> str:
    """The text without control characters, such as those that command a terminal."""
    kept = (_kept(letter) for letter in text[:LONGEST])
    return "".join(kept).strip()


def _kept(letter: str) -> str:
    if letter.isprintable() or letter == "\n":
        return letter
    return " " if letter.isspace() else ""
