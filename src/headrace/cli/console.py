"""What the command line prints, and how it looks."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from headrace.errors import HeadraceError

_PIPE_WIDTH = 200  # columns where nobody looks: tables in a log or a pipe should not be folded at 80

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


def fail(error: HeadraceError) -> None:
    """Say what is wrong and what to do about it."""
    err.print(f"[bold red]error:[/] {escape(str(error))}")
    if error.hint:
        err.print(f"[bold]hint:[/] {escape(error.hint)}")
