"""One run's folder: the writers that the engine uses and the readers of everybody else."""

import shutil
import tomllib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from polyclinic.runs.files import RunError, append_lines, clear_errors, csv_text
from polyclinic.runs.lock import locked
from polyclinic.runs.reading import parsed, records, whole_lines, whole_text
from polyclinic.runs.records import (
    About,
    AttentionPicture,
    Finished,
    MapKind,
    Picture,
    Rank,
    RoundLine,
    RoundTable,
    Score,
    ScoredModel,
    Split,
)
from polyclinic.runs.scores import HEADER, HEADERS, read_score
from polyclinic.runs.sums import note, write_noted

RANKS: Final[tuple[Rank, ...]] = ("best", "median", "worst", "unscored")
SIZES: Final[tuple[Rank, ...]] = ("small", "middle", "large")  # of what is true: for every method
MAP_KINDS: Final[tuple[MapKind, ...]] = ("attention", "classes", "context", "models")
# Seen on red fundus, pink mucosa and grey slices alike, and told apart by colour-blind readers.
CONTOUR_COLOURS: Final = {"true": "#00eb46", "predicted": "#ff00d2"}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run (one method, one seed); reading never changes them."""

    path: Path

    def lock(self) -> AbstractContextManager[None]:
        """Keep every other process out of this folder for as long as the block lasts."""
        return locked(self.path / "lock")

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "about.json").exists() or (self.path / "study.toml").exists()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: the last file is there."""
        return (self.path / "finished.json").exists()

    def create(self, settings: str, about: About) -> None:
        """Begin a run with its resolved settings (TOML); a folder that holds a run is refused."""
        if self.exists:
            raise RunError(f"{self.path} already holds a run; resume it or start it afresh")
        self.write_settings(settings)
        self.write_about(about)

    def write_about(self, about: About) -> None:
        """Write what was run, where and with which versions."""
        self.write_atomic("about.json", about.model_dump_json(indent=2) + "\n")

    def write_settings(self, settings: str) -> None:
        """Write the resolved settings (TOML)."""
        self.write_atomic("study.toml", settings)

    def clear(self) -> None:
        """Remove everything but the lock."""
        with clear_errors(self.path, "empty"):
            for entry in self.path.iterdir() if self.path.exists() else ():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != "lock":
                    entry.unlink()

    def write_atomic(self, name: str, content: str | bytes) -> Path:
        """Write a file of this folder as a whole, note what it holds, and give its path."""
        write_noted(self.path / name, content)
        return self.path / name

    def append(
        self,
        lines: Iterable[RoundLine] = (),
        scores: Iterable[Score] = (),
        tables: Iterable[RoundTable] = (),
    ) -> None:
        """Add what sites did, scores of cases and the server's tables; on disk when this returns.

        A file begins with the first that it has to hold.
        """
        texts = {
            "rounds.jsonl": _json_lines(lines),
            "tables.jsonl": _json_lines(tables),
            "scores.csv": csv_text(scores),
        }
        longer = [name for name, text in texts.items() if text]
        for name in longer:
            header = HEADER + "\n" if name == "scores.csv" else ""
            append_lines(self.path / name, texts[name], header=header)
        if longer:
            note(self.path, *longer)

    def forget_after(self, round: int) -> None:  # noqa: A002
        """Drop what was written after a checkpoint: later rounds, and all that is final.

        Test scores are the last thing that a run writes, whichever round it chose.
        """
        rounds = [line for line in self.rounds() if line.round <= round]
        tables = [each for each in self.tables() if each.round <= round and not each.final]
        for name, kept in (("rounds", rounds), ("tables", tables)):
            if (self.path / f"{name}.jsonl").exists():
                self.write_atomic(f"{name}.jsonl", _json_lines(kept))
        rows = self.scores(model=None)
        self.rewrite_scores(row for row in rows if row.round <= round and row.split != "test")
        with clear_errors(self.path / "finished.json"):
            (self.path / "finished.json").unlink(missing_ok=True)
        note(self.path, "finished.json")

    def rewrite_scores(self, rows: Iterable[Score]) -> None:
        """Have these scores and no others."""
        self.write_atomic("scores.csv", HEADER + "\n" + csv_text(rows))

    def finish(self, finished: Finished) -> None:
        """Mark the run as complete: the last thing written."""
        self.write_atomic("finished.json", finished.model_dump_json(indent=2) + "\n")

    def settings(self) -> dict[str, Any]:
        """The resolved settings of the run, as read from its TOML."""
        try:
            return tomllib.loads(self.settings_text())
        except tomllib.TOMLDecodeError as error:
            raise RunError(f"{self.path / 'study.toml'} is not TOML: {error}") from error

    def settings_text(self) -> str:
        """The resolved settings of the run, as they were written."""
        return whole_text(self.path / "study.toml")

    def about(self) -> About:
        """What was run, where and with which versions."""
        return parsed(About, self.path / "about.json")

    def end(self) -> Finished | None:
        """How the run ended, or None while it has not."""
        return parsed(Finished, self.path / "finished.json") if self.finished else None

    def rounds(self) -> list[RoundLine]:
        """All lines of all rounds, in the order in which they were written."""
        return records(RoundLine, self.path / "rounds.jsonl")

    def tables(self) -> list[RoundTable]:
        """All tables of all rounds, in the order in which they were written."""
        return records(RoundTable, self.path / "tables.jsonl")

    def scores(
        self, split: Split | None = None, model: ScoredModel | None = "shared"
    ) -> list[Score]:
        """The scores of one split, or of both, in the order in which they were written.

        They are of the models in use, of those before the last average ("trained"), or of all.
        """
        lines = whole_lines(self.path / "scores.csv", read_score, but=HEADERS)
        return [row for row in lines if split in (None, row.split) and model in (None, row.model)]

    def weights_path(self, owner: str) -> Path:
        """Where the weights of a site, or of the "server", are kept."""
        return self.path / "weights" / f"{_file_name(owner)}.safetensors"

    def picture_path(self, site: str, rank: Rank, case: str) -> Path:
        """Where the picture of a site's best, median or worst test case is kept."""
        return self.path / "pictures" / _file_name(site) / f"{rank}-{_file_name(case)}.png"

    def pictures(self, site: str) -> list[Picture]:
        """The pictures of a site, rank by rank, as far as they were drawn."""
        folder = self.path / "pictures" / _file_name(site)
        return [
            Picture(site, rank, path.stem.removeprefix(f"{rank}-"), path)
            for rank in (*RANKS, *SIZES)
            for path in sorted(folder.glob(f"{rank}-*.png"))
        ]

    def features_path(self, site: str) -> Path:
        """Where what the encoder makes of a site's images is kept, a row for each image."""
        return self.path / "features" / f"{_file_name(site)}.csv"

    def embeddings_path(self, site: str) -> Path:
        """Where the embeddings of some of a site's pixels are kept."""
        return self.path / "embeddings" / f"{_file_name(site)}.csv"

    def attention_path(self, site: str, name: str, case: str, shows: MapKind = "attention") -> Path:
        """Where the picture of one map over one of a site's test cases is kept."""
        folder = self.path / "attention" / _file_name(site) / _file_name(case)
        return folder / f"{shows}-{_file_name(name)}.png"

    def attention_pictures(self, site: str) -> list[AttentionPicture]:
        """The pictures of such maps of a site, case by case."""
        paths = sorted((self.path / "attention" / _file_name(site)).glob("*/*.png"))
        return [_attention(path) for path in paths]


def _attention(path: Path) -> AttentionPicture:
    for kind in MAP_KINDS:
        if path.stem.startswith(f"{kind}-"):
            return AttentionPicture(path.stem[len(kind) + 1 :], path.parent.name, path, kind)
    return AttentionPicture(path.stem, path.parent.name, path)  # of a run before there were kinds


def _json_lines(records: Iterable[BaseModel]) -> str:
    return "".join(record.model_dump_json() + "\n" for record in records)


def _file_name(name: str) -> str:
    """A name that cannot leave its folder."""
    return name.replace("/", "-").replace("\\", "-").lstrip(".") or "-"
