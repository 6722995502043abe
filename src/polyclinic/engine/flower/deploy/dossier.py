"""The dossier for a data-protection officer: what the files of a hospital or coordinator say."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markdown_it import MarkdownIt

from polyclinic.config import Study, Tables, load_study
from polyclinic.config.coordinator_file import CoordinatorFile, load_coordinator_file
from polyclinic.config.node_file import NodeFile, load_node_file
from polyclinic.config.reading import read_toml
from polyclinic.engine.flower.approval import Approvals
from polyclinic.engine.flower.deploy.dossier_words import (
    flows,
    permissions,
    seen_by,
    spent,
    study_facts,
)
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.ledger_words import in_words
from polyclinic.engine.flower.witness import Countersignatures
from polyclinic.predict.pages import data_uri, templates
from polyclinic.runs import RunError, find_runs, slug, write_atomic

AUDIT = "audit"


@dataclass(frozen=True)
class Audited:
    """The audit of a run that lies here: what it found, and its figure."""

    facts: dict[str, Any]
    figure: bytes
    file: str  # of the figure, beside the dossier


def write_dossier(
    file: Path, to: Path, tables: Tables, *, study: Path | None = None, runs: Path | None = None
) -> Path:
    """Write dossier.md, dossier.html and the figures of audits; gives the page.

    The file is a node.toml or a coordinator.toml. The study is by default that of the runs which
    lie at the hospital, or the study.toml beside the coordinator's file.
    """
    table = read_toml(file)
    if "server" in table or "data" in table:
        node = load_node_file(file, tables.kind)
        facts = _hospital(node, study, runs or node.state / "runs", tables)
    else:
        own = load_coordinator_file(file)
        facts = _coordinator(own, study or file.parent / "study.toml", runs, tables)
    text = _environment().get_template("dossier.md").render(facts)
    audits: list[Audited] = facts["audits"]
    for each in audits:
        write_atomic(to / each.file, each.figure)
    write_atomic(to / "dossier.md", text)
    write_atomic(to / "dossier.html", _page(text, audits))
    return to / "dossier.html"


def _hospital(node: NodeFile, study: Path | None, runs: Path, tables: Tables) -> dict[str, Any]:
    folders = _runs_in(runs)
    files = [study] if study else [folder / "study.toml" for folder in folders]
    studies = {each.name: each for each in (load_study(file, [], tables) for file in files)}
    if not studies:
        raise RunError(f"{runs} holds no run yet; name the study's file with --study")
    ledger = Ledger(node.state / "ledger.jsonl")
    ledger.refuse_broken()
    approvals = Approvals(node.state, node.allow.studies)
    countersigned = Countersignatures(node.state, node.name, None)
    return {
        "node": node,
        "coordinator": None,
        "studies": [(each, study_facts(each)) for each in studies.values()],
        "described": [
            (each, standing, approvals.description(each).read_text())
            for each, standing in approvals.seen().items()
        ],
        "permissions": permissions(node),
        "flows": list(flows(node)),
        "seen": list(seen_by(node)),
        "spent": list(spent(node, ledger)),
        "ledger": {"lines": len(ledger.lines()), "head": ledger.head()},
        "left": "\n".join(in_words(ledger)),
        "amiss": countersigned.mistakes(ledger),
        "countersigned": countersigned.file.exists(),
        "heads": {},
        "audits": list(_audits(folders, studies)),
    }


def _coordinator(
    own: CoordinatorFile, study: Path, runs: Path | None, tables: Tables
) -> dict[str, Any]:
    settings = load_study(study, [], tables)
    folder = (runs or Path("runs")) / slug(settings.name)
    noted = folder / "ledgers.json"
    return {
        "node": None,
        "coordinator": own,
        "studies": [(settings, study_facts(settings))],
        "heads": json.loads(noted.read_text())["sites"] if noted.exists() else {},
        "audits": list(_audits(_runs_in(folder), {settings.name: settings})),
    }


def _runs_in(folder: Path) -> list[Path]:
    places = [folder, *sorted(folder.glob("*/"))] if folder.is_dir() else []
    found: dict[Path, None] = {}
    for place in places:
        try:
            found.update(dict.fromkeys(find_runs([place])))
        except RunError:
            continue  # a folder of something else
    return list(found)


def _audits(folders: Sequence[Path], studies: dict[str, Study]) -> Iterator[Audited]:
    number = 0
    for folder in folders:
        file = folder / f"{AUDIT}.json"
        if not file.exists():
            continue
        facts = json.loads(file.read_text())
        if facts["study"] in studies:
            number += 1
            yield Audited(facts, (folder / f"{AUDIT}.svg").read_bytes(), f"{AUDIT}-{number}.svg")


def _page(text: str, audits: Sequence[Audited]) -> str:
    """The same as a page that needs nothing beside itself; HTML in it is shown, not obeyed."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for each in audits:
        address = data_uri("image/svg+xml", each.figure)
        body = body.replace(f'src="{each.file}"', f'src="{address}"')
    return str(_environment().get_template("dossier.html").render(body=_Whole(body)))


class _Whole(str):
    """Text that goes into a template as it is."""

    __slots__ = ()


def _plain(value: object) -> object:
    """A fact as Markdown shows it: nothing in it is a mark, a link, a cell or a new line."""
    if isinstance(value, _Whole):
        return value
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())
    return re.sub(r"([\\`*\[\]<>|]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)


def _quoted(text: str) -> _Whole:
    """Lines as they are, as a block in which nothing is a mark."""
    kept = ("".join(c if c.isprintable() else " " for c in line) for line in text.splitlines())
    return _Whole("\n".join(f"    {line}" for line in kept))


def _environment() -> Environment:
    # It is Markdown, and _plain escapes for that.
    environment = templates(
        "polyclinic.engine.flower.deploy", finalize=_plain, keep_trailing_newline=True
    )
    environment.filters["quoted"] = _quoted
    return environment
