"""The page of all settings, from the fields of `headrace.settings.Settings`."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le

from headrace.settings import ENV_PREFIX, MAX_DAYS, MAX_SECONDS, PROCESSES, Settings, default_of

PAGE = "settings.md"
TYPES = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", Path: "path", dict: "table"}

INTRODUCTION = f"""# Settings

A setting comes from one of three sources. Each source overrides the ones before it:

1. `headrace.toml` in the current folder, or the file that `{ENV_PREFIX}CONFIG` names,
2. an environment variable,
3. a flag of the [command](cli.md), for settings that have one.

An unknown name in `headrace.toml` is an error. An unknown variable `{ENV_PREFIX}…` is an error if it resembles a setting, and a warning
otherwise. Variables that begin with `{ENV_PREFIX}CONNECTION_` or `{ENV_PREFIX}VARIABLE_` are [secrets](../guides/secrets.md).

`headrace standalone` passes its settings to all processes that it starts. *Read by* names the processes that use a setting.
*commands* are all commands that are not processes, such as `headrace status`.
"""


def render() -> str:
    """Return the page."""
    lines = [
        INTRODUCTION,
        "| setting | environment variable | type | default | meaning | read by |",
        "|---|---|---|---|---|---|",
        *(_row(name) for name in Settings.model_fields),
    ]
    return "\n".join(lines)


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    readers = "all" if set(extra["read_by"]) == set(PROCESSES) else ", ".join(extra["read_by"])
    kind = ", ".join([_type(field.annotation), *_bounds(field.metadata)])
    return f"| `{name}` | `{ENV_PREFIX}{name.upper()}` | {kind} | {default_of(name) or '-'} | {field.description}. | {readers} |"


def _type(annotation: object) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return _type(next(one for one in get_args(annotation) if one is not type(None)))
    return TYPES[origin or annotation]  # type: ignore[index]


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for bound in metadata:
        if isinstance(bound, Gt):
            yield f"above {bound.gt}"
        elif isinstance(bound, Ge):
            yield f"at least {bound.ge}"
        elif isinstance(bound, Le) and bound.le not in (MAX_DAYS, MAX_SECONDS):
            yield f"at most {bound.le}"
