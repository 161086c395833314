"""Output of the command line."""

from __future__ import annotations

import re
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from headrace.errors import HeadraceError

_PIPE_WIDTH = 200  # columns of a log or a pipe, where text should not wrap at 80

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    r"""Return `text` with control characters written out as in JSON (`\u001b`), so that names of others move no cursor."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Screen(Console):
    """A console that writes out control characters, so that a terminal does not execute them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like `Console.print`."""
        super().print(*(safe(one) if isinstance(one, str) else one for one in objects), **options)


out = Screen(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err = Screen(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


def fail(error: HeadraceError) -> None:
    """Print an error and its hint."""
    err.print(f"[bold red]error:[/] {escape(str(error))}")
    if error.hint:
        err.print(f"[bold]hint:[/] {escape(error.hint)}")
