"""Each setting names the processes that read it, in agreement with their code."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from headrace import settings, wiring
from headrace.settings import PROCESSES, Settings

WIRING = Path(wiring.__path__[0])
MODULES = {
    "api": ["api"],
    "triggerer": ["triggerer", "runner", "common", "project"],
    "pipeline": ["pipeline", "common", "project"],
    "worker": ["worker", "common", "project"],
    "receiver": ["receiver", "project"],
}


def attributes(tree: ast.AST, owner: str) -> set[str]:
    """Return the names that are read from a variable, such as `settings`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
    }


def fields_of(names: set[str]) -> set[str]:
    """Return the settings among the names, and those that the properties among them read."""
    names = {name.removeprefix("with_") for name in names}
    fields = names & set(Settings.model_fields)
    for name in names - fields:
        member = inspect.getattr_static(Settings, name, None)
        if isinstance(member, property) and member.fget is not None:
            source = ast.parse(inspect.getsource(member.fget).replace("\n    ", "\n").strip())
            fields |= fields_of(attributes(source, "self"))
    return fields


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_has_a_description_and_its_readers(name: str) -> None:
    field = Settings.model_fields[name]
    assert field.description
    assert not field.description.endswith(".")
    assert isinstance(field.json_schema_extra, dict)
    readers = readers_by_setting()[name]
    assert readers
    assert set(readers) <= set(PROCESSES)


@pytest.mark.parametrize("process", MODULES)
def test_the_readers_of_a_setting_are_the_processes_that_use_it(process: str) -> None:
    used: set[str] = set()
    for module in MODULES[process]:
        used |= fields_of(attributes(ast.parse((WIRING / f"{module}.py").read_text()), "settings"))
    assert len(used) >= 5
    listed = {name for name, extra in readers_by_setting().items() if process in extra}
    assert used <= listed, f"{process} also uses {used - listed}"
    assert listed - used <= {"log_level", "log_format", "debug", "home", "project"}, "read outside of the wiring, or not at all"


def readers_by_setting() -> dict[str, list[str]]:
    return {name: field.json_schema_extra["read_by"] for name, field in Settings.model_fields.items()}  # type: ignore[index,misc]


def test_a_default_is_shown_as_users_write_it() -> None:
    shown = {name: settings.default_of(name) for name in ("host", "lookback", "max_triggers", "debug", "home", "token", "spark_conf")}
    assert shown == {
        "host": "`127.0.0.1`",
        "lookback": "`900`",
        "max_triggers": "`20000`",
        "debug": "`false`",
        "home": "`$XDG_DATA_HOME/headrace`, or `~/.local/share/headrace`",
        "token": "",
        "spark_conf": "`{}`",
    }
