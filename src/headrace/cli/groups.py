"""Groups of commands, and the examples below their help."""

from __future__ import annotations

from typing import Any, Final

import typer
from rich.markup import escape
from typer.core import TyperGroup

INSPECT: Final = "Inspect and repair"
SECRETS: Final = "Secrets"


class ListGroup(TyperGroup):
    """A group that runs its command `list` if no command is named: `headrace events -n 5` is `headrace events list -n 5`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` before options, and if there are no arguments."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def examples(*commands: str | tuple[str, str]) -> str:
    """Return the epilog with example commands. A tuple is a command and what it is for."""
    texts = [
        f"[bold]{escape(one)}[/bold]" if isinstance(one, str) else f"[bold]{escape(one[0])}[/bold]   {escape(one[1])}" for one in commands
    ]
    return f"Example: {texts[0]}" if len(texts) == 1 else "\n\n".join(["Examples:", *texts])


def command_group(summary: str, example: str) -> typer.Typer:
    """Return a group that prints its help if no command is named."""
    return typer.Typer(help=summary, epilog=examples(example), no_args_is_help=True)


def list_group(summary: str, example: str) -> typer.Typer:
    """Return a group whose command `list` runs if no command is named."""
    return typer.Typer(cls=ListGroup, help=f"{summary} Without a command: list.", epilog=examples(example))
