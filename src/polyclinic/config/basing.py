"""Reads a study that says only what it has otherwise than another one, its `base`."""

from pathlib import Path
from typing import Any

from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.overrides import Setting, leaves, shape
from polyclinic.config.printing import literal
from polyclinic.config.reading import read_toml
from polyclinic.config.tables import Tables


def read_with_base(file: Path, tables: Tables, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a study's file says, put into what its base says as `--set` would put it.

    A list, such as [[method]], takes the place of the base's. Names are never inherited.
    """
    own = read_toml(file)
    base = own.pop("base", None)
    if base is None:
        return {"name": file.stem} | own
    above = (*above, file.name)
    if problem := _problem(base, above):
        raise ConfigError(file, [Mistake("base", problem, literal(base))])
    study = read_with_base(file.with_name(base), tables, above) | {"name": file.stem}
    mistakes: list[Mistake] = []
    shape(study)
    for key, value in leaves("", own):
        setting = Setting(key, value, tables)
        setting.put(study, "", key)
        mistakes += setting.mistakes
        shape(study)
    if mistakes:
        raise ConfigError(file, mistakes)
    return study


def _problem(base: Any, above: tuple[str, ...]) -> str:
    if not isinstance(base, str) or not base or base != Path(base).name:
        return "must be the name of a file in the same folder"
    return f"is its own base: {' → '.join((*above, base))}" if base in above else ""
