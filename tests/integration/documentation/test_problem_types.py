"""Every problem type that the source names is declared with its HTTP statuses, and no other status is declared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace
from headrace.wire.problem import PROBLEM_TYPES

ERRORS = {"Fenced", "ApiRefused", "ApiError"}


def test_declared_types_and_statuses_are_those_of_the_source() -> None:
    found = set(_raised())
    declared = {(name, status) for name, kind in PROBLEM_TYPES.items() for status in kind.statuses}
    framework = {("not-allowed", 405), ("invalid", 400)}  # Starlette's own: a method that no route has, a body that is cut off
    assert declared == found | framework


def _raised() -> Iterator[tuple[str, int]]:
    """Yield each problem type and status that a call in the source names."""
    for path in Path(headrace.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield from _of_call(node.func.id, node)


def _of_call(name: str, call: ast.Call) -> Iterator[tuple[str, int]]:
    values = [value.value for value in call.args[:2] if isinstance(value, ast.Constant)]
    if name in {"Refusal", "RequestRejected", "problem"} and len(values) == 2 and isinstance(values[0], int):
        yield str(values[1]), values[0]
    named = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
    if name in ERRORS and isinstance(named.get("status"), int) and named.get("problem") is not None:
        yield str(named["problem"]), int(named["status"])  # type: ignore[arg-type]
