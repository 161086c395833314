"""What the command line prints, and how it looks."""

from __future__ import annotations

import re
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from headrace.errors import HeadraceError

_PIPE_WIDTH = 200  # columns where nobody looks: tables in a log or a pipe should not be folded at 80

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    r"""Return `text` with control characters written out (`\u001b`, as JSON has them): what others named must not move a cursor."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Screen(Console):
    """Prints texts so that they cannot be mistaken for what a terminal obeys."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `Console.print` does."""
        super().print(*(safe(one) if isinstance(one, str) else one for one in objects), **options)


out = _Screen(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err = _Screen(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


def fail(error: HeadraceError) -> None:
    """Say what is wrong and what to do about it."""
    err.print(f"[bold red]error:[/] {escape(str(error))}")
    if error.hint:
        err.print(f"[bold]hint:[/] {escape(error.hint)}")
