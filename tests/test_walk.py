"""The walk: its page names functions that exist, and only one engine imports Flower."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import polyclinic

SOURCE = Path(polyclinic.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "walk.md").read_text()
STEPS = re.findall(r"^\d+\. \*\*`([\w.]+)`\*\* · `([\w/]+)\.py`", PAGE, re.M)
FOLDERS = {file.parent.name for file in SOURCE.glob("*/__init__.py")}
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_only_its_engine_imports_flower_and_only_what_is_public():
    users = {
        file: {name for name in imports(file) if name.split(".")[0] == "flwr"}
        for file in SOURCE.rglob("*.py")
    }
    users = {file.relative_to(SOURCE): names for file, names in users.items() if names}
    assert users
    assert all(file.is_relative_to("engine/flower") for file in users), users
    assert set().union(*users.values()) <= PUBLIC


def functions(file):
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_walk_names_at_most_twelve_functions_and_each_exists():
    assert 0 < len(STEPS) <= 12
    for name, file in STEPS:
        found = importlib.import_module(f"polyclinic.{file.replace('/', '.')}")
        for step in name.split("."):
            found = getattr(found, step)
        assert inspect.isfunction(found), name
        assert inspect.unwrap(found).__module__ == f"polyclinic.{file.replace('/', '.')}", name


def test_the_walk_names_no_other_function():
    known = set().union(*map(functions, SOURCE.rglob("*.py")))
    named = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\(.*?\))?`", PAGE))
    assert (named & known) - FOLDERS <= {name.rpartition(".")[2] for name, _ in STEPS}


def test_the_walk_lists_every_folder():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == FOLDERS
