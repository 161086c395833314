"""Read secrets from a flag, a pipe or a prompt. They are never printed."""

from __future__ import annotations

import sys

import typer

from headrace.errors import UsageError

MAX_CHARACTERS = 64 * 1024


def secret_text(value: str | None, what: str) -> str:
    """Return `value`, or the text of standard input, or on a terminal the text of a prompt that hides it.

    Raises:
        UsageError: The text is empty or too long.
    """
    if value is None and sys.stdin.isatty():
        value = str(typer.prompt(what, hide_input=True, err=True))
    elif value is None:
        value = sys.stdin.read(MAX_CHARACTERS + 1).removesuffix("\n")
    if not value:
        raise UsageError(f"There is no {what.lower()}.", hint="Type it, pipe it in, or pass it as a flag.")
    if len(value) > MAX_CHARACTERS:
        raise UsageError(f"The {what.lower()} is longer than {MAX_CHARACTERS:,} characters.")
    return value
