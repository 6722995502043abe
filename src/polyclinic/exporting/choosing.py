"""Which models of which runs: of a study's folder, of one run, or of a hospital's own folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polyclinic.config import Tables
from polyclinic.config.mistakes import did_you_mean
from polyclinic.config.node_file import NodeFile, load_node_file
from polyclinic.engine.run import Run, run_in
from polyclinic.runs import RunError, RunFolder, find_runs

SERVER = "server"
NODE = "node.toml"


@dataclass(frozen=True)
class Origin:
    """A model: the run it comes from, whose it is, and the hospital where the run lies, if any."""

    run: Run
    owner: str
    node: NodeFile | None = None

    @property
    def root(self) -> Path:
        """The folder that holds all studies' runs, or the hospital's state."""
        return self.node.state if self.node else self.run.folder.path.parents[2]


def origins(
    paths: Sequence[Path], tables: Tables, *, sites: Sequence[str] = (), server: bool = False
) -> list[Origin]:
    """The models of these owners in all runs that the paths are or contain.

    Without owners they are all sites whose models lie there; a RunError names all mistakes.
    """
    found, mistakes = [], []
    for path in paths:
        node = _node_of(path)
        for folder in _runs_at(path, node):
            run = _opened(RunFolder(folder), tables)
            there = [each.name for each in run.folder.about().sites if _has(run, each.name)]
            wanted = [*sites, *([SERVER] if server else [])] or there
            mistakes += [_lacking(run, owner, there) for owner in wanted if not _has(run, owner)]
            found += [Origin(run, owner, node or _node_of(folder)) for owner in wanted]
    if mistakes or not found:
        raise RunError("\n".join(mistakes) or f"no models in {', '.join(map(str, paths))}")
    return found


def _runs_at(path: Path, node: NodeFile | None) -> list[Path]:
    if node is None or not (path.suffix == ".toml" or (path / NODE).exists()):
        return find_runs([path])
    # Runs in progress have states here, and no models yet.
    finished = [file.parent for file in (node.state / "runs").glob("*/*/*/finished.json")]
    if not finished:
        raise RunError(f"site {node.name} has no models yet in {node.state / 'runs'}")
    return find_runs(sorted(finished))


def _node_of(path: Path) -> NodeFile | None:
    """The hospital's own file, where the path is it, or in the folder beside it."""
    place = path.resolve()
    if place.suffix == ".toml":
        return load_node_file(place)
    near = [folder / NODE for folder in (place, *place.parents[:6])]
    return next((load_node_file(file) for file in near if file.is_file()), None)


def _opened(folder: RunFolder, tables: Tables) -> Run:
    run = run_in(folder, tables)
    # What was in that file is in the weights now.
    network = run.study.network.model_copy(update={"pretrained": None})
    return replace(run, study=run.study.model_copy(update={"network": network}))


def _has(run: Run, owner: str) -> bool:
    return run.folder.weights_path(owner).exists()


def _lacking(run: Run, owner: str, there: Sequence[str]) -> str:
    known = [each.name for each in run.folder.about().sites]
    if owner in known:
        return f"{run.folder.path} lacks the model of {owner}: across hospitals it stays there"
    allowed = ", ".join([*there, *([SERVER] if _has(run, SERVER) else [])]) or "none"
    return f'{run.folder.path} has no model of "{owner}" (there are: {allowed})' + did_you_mean(
        owner, [*there, SERVER]
    )
