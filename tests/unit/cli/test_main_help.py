"""Every command has help, help for each option, and an example."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from rich.markup import render

from headrace.cli.main import app


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every command and group that users see, with its path."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield f"{path} {name}", command
            if hasattr(command, "commands"):
                yield from commands(command, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app), "headrace"))


@pytest.mark.parametrize("path", ALL)
def test_the_help_of_a_command_has_an_example(path: str) -> None:
    examples = re.findall(r"\[bold\](.+?)\[/bold\]", ALL[path].epilog or "")
    assert any(f"{path} " in f"{example} " for example in examples), ALL[path].epilog


@pytest.mark.parametrize("path", ALL)
def test_the_help_of_commands_and_options_is_sentences_without_markup(path: str) -> None:
    command = ALL[path]
    for text in [command.help, *(parameter.help for parameter in command.params)]:
        assert text
        assert re.match(r"[A-Z0-9'-]", text), text
        assert re.search(r"[.\]]\Z", text.strip()), text
        assert not render(text).spans, f"the terminal takes part of this for markup: {text}"


def test_the_command_line_starts_without_large_libraries() -> None:
    script = "import sys, headrace.cli.main; print(*{'numpy', 'pandas', 'pyarrow', 'pyspark', 'sqlalchemy', 'fastapi'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == ""
