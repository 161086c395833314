"""Every reference `path.py::Name.method` of the design pages names code that exists, so that the walk of a message cannot drift."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent
PAGES = Path(__file__).parents[3] / "docs" / "design"
REFERENCE = re.compile(r"`((?:[\w]+/)*\w+\.py)(?:::([\w.]+))?`")


def references() -> list[tuple[str, str, str]]:
    """Return each (page, path, dotted name) of the design pages; paths outside `src/headrace` are left out."""
    found = {
        (page.name, path, name)
        for page in PAGES.glob("*.md")
        for path, name in REFERENCE.findall(page.read_text("utf-8"))
        if not path.startswith(("tests/", "scripts/", "bench/", "examples/"))
    }
    return sorted(found)


def test_walk_names_each_part_of_the_path() -> None:
    named = {path.partition("/")[0] for page, path, _ in references() if page == "one-message.md"}
    assert {"sources", "streams", "core", "triggerer", "client", "api", "store", "pipeline"} <= named


@pytest.mark.parametrize(("page", "path", "name"), references())
def test_reference_names_existing_code(page: str, path: str, name: str) -> None:
    file = SOURCE / path
    assert file.exists(), f"{page} names {path}, which does not exist"
    if name:
        assert name in names_of(file), f"{page} names {path}::{name}, which does not exist"


@cache
def names_of(file: Path) -> frozenset[str]:
    """Return the functions, classes, methods and constants of a module, as `Name` or `Class.name`."""
    return frozenset(_names(ast.parse(file.read_text("utf-8")), ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> list[str]:
    names: list[str] = []
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(prefix + child.name)
        if isinstance(child, ast.ClassDef):
            names += _names(child, f"{prefix}{child.name}.")
        targets = child.targets if isinstance(child, ast.Assign) else [child.target] if isinstance(child, ast.AnnAssign) else []
        names += [prefix + target.id for target in targets if isinstance(target, ast.Name)]
    return names
