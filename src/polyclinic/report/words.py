"""Numbers and names as people read them."""

from polyclinic.evaluation.statistics import OVERALL

_BYTES = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes with a decimal prefix and three digits."""
    unit = 0
    while count >= 999.5 and unit < len(_BYTES) - 1:
        count, unit = count / 1000, unit + 1
    digits = 0 if unit == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f} {_BYTES[unit]}"


def duration(seconds: float) -> str:
    """Seconds below a minute, then minutes and seconds, then hours and minutes."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: int) -> str:
    """A whole number with thin spaces between its thousands."""
    return f"{number:,}".replace(",", "\u2009")


def amount(number: int, thing: str) -> str:
    """A number of things, in the plural where it needs one."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def enumeration(names: list[str]) -> str:
    """Names joined by commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def region_title(region: str) -> str:
    """A region as a heading."""
    return "all regions" if region == OVERALL else region
