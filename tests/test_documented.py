"""Everything that a page shows as TOML, Python or a command is loaded, executed or run."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer

from polyclinic.catalog import BUILT_IN, installed, things_in
from polyclinic.cli import app, main
from polyclinic.config import load_study, read_task
from polyclinic.config.coordinator_file import load_coordinator_file
from polyclinic.config.node_file import load_node_file
from polyclinic.data.site_files import read_site_toml
from tests.data.folders import write_site

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LONG = ("python", "own-method", "use", "runs")  # pages whose blocks the slow tests run
FENCE = re.compile(r'^( *)```(toml|python|sh)(?: title="([^"]+)")?\n(.*?)^\1```', re.M | re.S)
TINY = [
    "seeds=[0]",
    "task.resolution=32",
    "network.width=2",
    "training.iterations=1",
    "training.batch=4",
    "federation.rounds=1",
    "evaluation.pictures=false",
    'evaluation.metrics=["dice"]',
    "engine.threads=1",
]
ONLY_PARSED = {"server", "site", "approve", "deploy check", "ledger verify", "ledger show"}
ONLY_PARSED |= {"unseen", "audit", "serve"}
"""Commands that need other machines or what only a long run leaves, or that never end."""


@dataclass(frozen=True)
class Block:
    """What a fence of a page holds, and the file that it shows."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, title, text) for _, language, title, text in FENCE.findall(page.read_text())
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what pages take for granted, in which their commands are run."""
    for place in ("clinics/north", "clinics/south", "data"):
        write_site(tmp_path / place)
    for part in ("train", "test"):
        write_site(tmp_path / "published" / "east", part=part)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONG else [])
        for page in PAGES
        if blocks(page)
    ],
    ids=lambda page: page.stem,
)
def test_what_a_page_shows_works(page, folder, monkeypatch):
    names: dict = {}
    for block in blocks(page):
        file = folder / (block.title or "untitled")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
        if block.language == "toml":
            load(file)
        elif block.language == "python":
            execute(block, names, folder)
        else:
            for line in block.text.splitlines():
                type_in(shlex.split(line, comments=True), folder, monkeypatch)


def test_every_fence_says_what_it_is():
    for page in PAGES:
        openings = re.findall(r"^ *```(.*)$", page.read_text(), re.M)[::2]
        assert all(openings), f"{page} has a fence without a language; plain text is ```text"


def load(file: Path) -> None:
    """Read a TOML file as the program would, by its name."""
    if file.name == "site.toml":
        told, errors = read_site_toml(file)
        assert not errors
        assert any(vars(told).values())
    elif file.name.endswith(".task.toml"):
        assert read_task(file).classes
    elif file.name == "node.toml":
        assert load_node_file(file, BUILT_IN.kind).allow
    elif file.name == "coordinator.toml":
        assert load_coordinator_file(file).host
    else:
        assert load_study(file, [], installed()).method


def execute(block: Block, names: dict, folder: Path) -> None:
    """Execute a script, or the tests in a file; other files are there for studies to name."""
    if not block.title:
        exec(block.text, names)
    elif block.title.startswith("test_"):
        exec(block.text, module := {})
        tests = {name: each for name, each in module.items() if name.startswith("test_")}
        assert tests
        for name, test in tests.items():
            test(folder / name)
    else:
        assert list(things_in(folder / block.title))


def type_in(words: list[str], folder: Path, monkeypatch) -> None:
    """Run a command with small settings, or see that it could be run."""
    match words:
        case ["polyclinic", *words]:
            path, given = parse(words)
            if path == "run":
                run(words, given["study"], given["overrides"], monkeypatch)
            elif path not in ONLY_PARSED and all(
                Path(each).exists() for each in given.get("paths", ())
            ):
                polyclinic(words, monkeypatch)
        case ["make", target]:
            assert f"\n{target}: " in (ROOT / "Makefile").read_text()
        case [".venv/bin/python", "-m", "pytest", file, *_]:
            assert (ROOT / file).exists() or (folder / file).exists()
        case [".venv/bin/python", "-m", "bench", *modules]:
            assert all((ROOT / "bench" / f"{name}.py").exists() for name in modules)
        case ["pip", *_, "polyclinic[flower]"] | ["git" | "source" | "systemctl", *_] | []:
            pass
        case _:
            pytest.fail(f"no page should show what no test knows: {shlex.join(words)}")


def run(words: list[str], study: str, overrides: list[str], monkeypatch) -> None:
    """Run a study the first time that a page does; afterwards see that its changes are allowed."""
    settings = load_study(study, overrides, installed())
    done = Path(study).with_suffix(".done")
    if not done.exists():
        done.touch()
        changes = [*TINY, "data.size=0.1"] if settings.data.source == "synthetic" else TINY
        options = [word for change in changes for word in ("--set", change)]
        polyclinic([*words, *options], monkeypatch)
        if "--plan" in words:  # which leaves nothing behind
            done.unlink()
        assert (Path("runs") / settings.name / "report.html").exists() == done.exists()


def parse(words: list[str]) -> tuple[str, dict]:
    """The command that the words name, and all that they give it; an error where it takes less."""
    command: click.Command = typer.main.get_command(app)
    path = []
    while isinstance(command, click.Group):
        path.append(words[len(path)])
        command = command.commands[path[-1]]
    return " ".join(path), command.make_context(path[-1], words[len(path) :]).params


def polyclinic(words: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["polyclinic", *words])
    code = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    assert not code, words
