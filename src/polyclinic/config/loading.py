"""Reads a study from its TOML file: every mistake is found before any is reported."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

from polyclinic.config.checking import addresses, check
from polyclinic.config.choices import ChoiceReader, fitting
from polyclinic.config.data_settings import NO_FOLDER
from polyclinic.config.mistakes import ConfigError, Mistake, nearest
from polyclinic.config.overrides import Setting, apply_overrides, leaves, shape
from polyclinic.config.printing import literal
from polyclinic.config.reading import read_toml
from polyclinic.config.study import Conditions, FederationSettings, Study
from polyclinic.config.sweeping import (
    Sweep,
    Swept,
    combinations,
    of_the_sweep,
    put_values,
    read_sweep,
    shared_folders,
    with_values,
)
from polyclinic.config.tables import Tables, file_of
from polyclinic.config.task_entry import SUFFIX, chosen_task
from polyclinic.config.weak_settings import WeakSettings

_CHOICES = ("task", "network", "method", "sweep")


def load_study(path: str | Path, overrides: Sequence[str], tables: Tables) -> Study:
    """The study of a TOML file with overrides (key=value) applied; ConfigError lists all mistakes.

    Paths in the file are relative to the file, paths in an override to the working directory.
    """
    file = Path(path)
    content = read_with_base(file, tables)
    return read_study(content, tables, source=file, beside=file.parent, overrides=overrides)


def read_with_base(file: Path, tables: Tables, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a study's file says, put into what its base says as `--set` would put it.

    A list, such as [[method]], takes the place of the base's. Names are never inherited.
    """
    own = read_toml(file)
    base = own.pop("base", None)
    if base is None:
        return {"name": file.stem} | own
    above = (*above, file.name)
    if problem := _problem_of_base(base, above):
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


def read_study(
    study: dict[str, Any],
    tables: Tables,
    *,
    source: Path | str,
    beside: Path,
    overrides: Sequence[str] = (),
) -> Study:
    """The study of a table as TOML would give it, which is changed on the way.

    Errors name its source; paths are relative to the folder that it is beside.
    """
    mistakes: list[Mistake] = []
    shape(study)
    _find_code(study, beside)
    changed = apply_overrides(study, overrides, tables, mistakes)
    _find_code(study, Path())
    _find_source(study)
    _find_folders(study, beside, changed, mistakes)
    sweep = read_sweep(study.get("sweep", {}), mistakes)
    read = _resolved(study, tables, mistakes)
    swept = list(_swept(study, sweep, tables, beside, mistakes))
    if not mistakes:
        mistakes += shared_folders(choice for each in swept for choice in each.method)
    if mistakes or read is None:
        raise ConfigError(source, mistakes, changed)
    return read.model_copy(update={"sweep": sweep, "swept": tuple(swept)})


def _swept(
    study: dict[str, Any], sweep: Sweep, tables: Tables, beside: Path, mistakes: list[Mistake]
) -> Iterator[Study]:
    """The study with each combination of swept values, its methods titled by them."""
    found: list[Mistake] = []
    for values in combinations(sweep):
        own = deepcopy(study)
        of_methods = put_values(own, values, tables, found)
        _find_code(own, beside)
        _find_folders(own, beside, set(), found)
        read = _resolved(own, tables, found, of_methods)
        if read is not None:
            yield read.model_copy(update={"method": tuple(map(with_values, read.method))})
    mistakes += of_the_sweep(found, mistakes)


def _resolved(
    study: dict[str, Any], tables: Tables, mistakes: list[Mistake], swept: Swept | None = None
) -> Study | None:
    """The study of a table with whole paths; None after adding what is wrong with it."""
    before = len(mistakes)
    conditions = {key: value for key, value in study.items() if key not in _CHOICES}
    checked = check(Conditions, conditions, "", mistakes, context=tables, keys_of=Study)
    _refuse_repeated_sites(study["site"], mistakes)
    reader = ChoiceReader(tables, mistakes)
    task = chosen_task(study.get("task"), tables, mistakes)
    network = reader.network(study.get("network"))
    weak = checked.training.weak if checked else WeakSettings()
    federation = checked.federation if checked else FederationSettings()
    methods = reader.methods(study["method"], weak, federation, swept or {})
    if task and network:
        fitting(task, network, mistakes)
    if len(mistakes) > before or checked is None or task is None or network is None:
        return None
    metrics = reader.plain("metric", checked.evaluation.metrics)
    losses = reader.plain("loss", {checked.training.loss} - {"auto"})
    return Study(
        **dict(checked),
        task=task,
        network=network,
        method=methods,
        loss=losses[0] if losses else None,
        metric=metrics,
    )


def _find_code(study: dict[str, Any], beside: Path) -> None:
    """Makes the files of names such as mine.py:FedMine absolute, in place."""

    def absolute(name: Any) -> Any:
        if isinstance(name, list):
            return [absolute(each) for each in name]
        file = file_of(name) if isinstance(name, str) else None
        found = file and (beside / file.expanduser()).resolve()
        return f"{found}:{name.rpartition(':')[2]}" if found else name

    steps = [entry.get("then", []) for entry in study["method"] if isinstance(entry, dict)]
    named = [study.get("task"), study.get("network"), *study["method"], *chain(*steps)]
    places = [("name", entry) for entry in named]
    places += [("loss", study.get("training")), ("metrics", study.get("evaluation"))]
    for key, table in places:
        if isinstance(table, dict) and key in table:
            table[key] = absolute(table[key])


def _find_source(study: dict[str, Any]) -> None:
    """No source, where none is named and every site has a folder of its own."""
    own = [isinstance(site, dict) and "folder" in site for site in study["site"]]
    data = study.setdefault("data", {}) if own and all(own) else None
    if isinstance(data, dict):
        data.setdefault("source", "none")


def _find_folders(
    study: dict[str, Any], beside: Path, changed: set[str], mistakes: list[Mistake]
) -> None:
    """Makes the folders of the data and the sites and all files absolute, in place."""
    task = study.get("task")
    if isinstance(task, dict) and str(task.get("name", "")).endswith(SUFFIX):
        task.setdefault("file", task.pop("name"))
    tables: list[tuple[str, str, Any]] = [
        ("data", "source", study.get("data")),
        ("task", "file", task),
        ("network", "pretrained", study.get("network")),
    ]
    for address, site in zip(addresses(study["site"]), study["site"], strict=True):
        tables.append((f"site{address}", "folder", site))
    for key, name, table in tables:
        folder = table.get(name) if isinstance(table, dict) else None
        if folder == "":
            mistakes.append(Mistake(f"{key}.{name}", "must not be empty", literal(folder)))
        elif isinstance(folder, str) and not (name == "source" and folder in NO_FOLDER):
            found = _absolute(folder, beside, f"{key}.{name}" in changed)
            table[name] = str(found)
            if name == "source" and nearest(folder, ["synthetic"]) and not found.exists():
                table[name] = "synthetic"
                problem = "is neither a folder nor synthetic sites"
                mistakes.append(Mistake("data.source", problem, literal(folder), (), "synthetic"))


def _absolute(folder: str, beside: Path, here: bool) -> Path:
    path = Path(folder).expanduser() if folder.startswith("~/") else Path(folder)
    return (path if here else beside / path).resolve()


def _refuse_repeated_sites(sites: list[Any], mistakes: list[Mistake]) -> None:
    names = [site.get("name") for site in sites if isinstance(site, dict)]
    repeated = {name for name in names if isinstance(name, str) and names.count(name) > 1}
    for name in sorted(repeated):
        problem = "is the name of more than one site; names must differ"
        mistakes.append(Mistake(f"site.{name}.name", problem, literal(name)))


def _problem_of_base(base: Any, above: tuple[str, ...]) -> str:
    if not isinstance(base, str) or not base or base != Path(base).name:
        return "must be the name of a file in the same folder"
    return f"is its own base: {' → '.join((*above, base))}" if base in above else ""
