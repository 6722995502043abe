"""What a person can say of files that are brought in, where names and headers do not."""

from dataclasses import dataclass

from polyclinic.data.code_tables import Codes, read_codes
from polyclinic.data.errors import refuse

EXAMPLES = {"values": "0=background,255=vessel", "colours": "#000000=background,#ff0000=rim+cup"}


@dataclass(frozen=True)
class Choices:
    """What names and headers cannot say; patterns are such as `manual/*.png`."""

    masks: str | None = None  # the pattern of files that are masks
    images: str | None = None  # the pattern of files that are images; default: all others
    name: str | None = None  # the site's
    axis: str | None = None  # along which slices follow each other
    modality: str | None = None  # of DICOM, where there are several
    values: str | None = None  # what values of masks stand for: 0=background,255=vessel
    colours: str | None = None  # what colours stand for: #ff0000=rim+cup


def codes_of(choices: Choices) -> Codes:
    """What the options say that values or colours of masks stand for."""
    tables: dict[str, dict[str, list[str]]] = {}
    for key, told in (("values", choices.values), ("colours", choices.colours)):
        pairs = [pair.partition("=") for pair in (told or "").split(",") if pair.strip()]
        if not all(equals and names.strip() for _, equals, names in pairs):
            refuse([f"--{key}: {told!r} is no list of names, such as {EXAMPLES[key]}"])
        tables[key] = {
            code.strip(): [name.strip() for name in names.split("+")] for code, _, names in pairs
        }
    errors: list[str] = []
    codes = read_codes(tables, "", errors)
    refuse([f"--{text.split()[0]}: {text}" for text in errors])
    return codes


def refuse_idle(choices: Choices, sites: int) -> None:
    """Options that site folders leave nothing to choose for."""
    mistakes: list[str] = []
    mistakes += [
        f"--{key}: site folders say it themselves, before or after, in site.toml"
        for key in of_site_toml(choices)
    ]
    if choices.name and sites > 1:
        mistakes.append(f"--name: there are {sites} sites, and each has a name of its own")
    refuse(mistakes)


def of_site_toml(choices: Choices) -> dict[str, str]:
    """The choices that stand in a site.toml, too."""
    told = {"axis": choices.axis, "modality": choices.modality}
    return {key: value for key, value in told.items() if value}
