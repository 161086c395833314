"""The page of all exceptions and problem types, from `headrace.errors` and the problem types of the API."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from headrace import errors
from headrace.errors import HeadraceError
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, PROBLEM_TYPES

PAGE = "errors.md"


def render() -> str:
    """Return the page."""
    lines = [
        "# Errors",
        "",
        "Every exception that Headrace raises on purpose is a `HeadraceError`. Its `hint` says what to do in the case at hand.",
        "Import exceptions from `headrace.errors`.",
        "",
        "| exception | base | meaning | what to do |",
        "|---|---|---|---|",
        *_exceptions(HeadraceError),
        "",
        "## Problem types of the API",
        "",
        f"The API answers an error with `{PROBLEM_JSON}` (RFC 9457): `title`, `status`, `detail` (what is wrong in this request),",
        f"`hint` (what to do), and `type`, which is `{PROBLEM_PREFIX}` and one of these names:",
        "",
        "| type | status | title | what to do |",
        "|---|---|---|---|",
        *_problem_types(),
    ]
    return "\n".join(lines)


def _problem_types() -> Iterator[str]:
    for name, kind in PROBLEM_TYPES.items():
        yield f"| `{name}` | {', '.join(map(str, kind.statuses))} | {kind.title} | {kind.advice} |"


def _exceptions(base: type[HeadraceError]) -> Iterator[str]:
    if base is HeadraceError:
        yield _row(base)
    for error in base.__subclasses__():
        if error.__module__ == errors.__name__:
            yield _row(error)
            yield from _exceptions(error)


def _row(error: type[HeadraceError]) -> str:
    meaning, advice = (part.replace("\n", " ") for part in (inspect.getdoc(error) or "").split("\n\n"))
    return f"| `{error.__name__}` | `{error.__mro__[1].__name__}` | {meaning} | {advice} |"
