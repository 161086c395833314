"""What the command line prints, and how it looks."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from headrace.errors import HeadraceError

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def fail(error: HeadraceError) -> None:
    """Say what is wrong and what to do about it."""
    err.print(f"[bold red]error:[/] {escape(str(error))}")
    if error.hint:
        err.print(f"[bold]hint:[/] {escape(error.hint)}")
