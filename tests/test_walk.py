"""What import contracts cannot say: who may import Flower, and what of it."""

import ast
from pathlib import Path

import polyclinic

SOURCE = Path(polyclinic.__file__).parent
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
