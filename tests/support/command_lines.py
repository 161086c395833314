"""Parses command lines of `headrace` as the command line would, without running them."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from headrace.cli.main import app

ROOT: Any = typer.main.get_command(app)


class UnknownCommand(Exception):
    """A group has no such command."""


def parse(words: list[str]) -> None:
    """Parse the words after `headrace`. Raises for an unknown command, option or value."""
    if {"--help", "-h"} & set(words):
        command_of([word for word in words if not word.startswith("-")])
        return
    command, rest, context = ROOT, words, None
    while True:
        context = command.make_context(command.name or "headrace", list(rest), parent=context)
        left = [*context._protected_args, *context.args] if isinstance(command, TyperGroup) else []
        if not left:
            return
        command, rest = _child(command, context, left[0]), left[1:]


def command_of(words: list[str]) -> str:
    """Return the command that the first of `words` name, as far as they do. Raises `UnknownCommand` if a group has none of that name."""
    command, named = ROOT, []
    context = ROOT.make_context("headrace", ["status"])
    for word in words:
        if not isinstance(command, TyperGroup):
            break
        command = _child(command, context, word)
        named.append(word)
    return " ".join(named)


def _child(group: TyperGroup, context: Any, name: str) -> Any:
    command = group.get_command(context, name)
    if command is None:
        raise UnknownCommand(f"'{group.name}' has no command '{name}'")
    return command
