"""Secrets that are typed, piped or given: never shown, and never requested without a terminal."""

from __future__ import annotations

import sys

import typer

from headrace.errors import UsageError

LONGEST = 64 * 1024


def secret_text(given: str | None, what: str) -> str:
    """Return `given`, or what comes from standard input, or what a person types without its being shown.

    Raises:
        UsageError: There is nothing, or too much.
    """
    if given is None and sys.stdin.isatty():
        given = str(typer.prompt(what, hide_input=True, err=True))
    elif given is None:
        given = sys.stdin.read(LONGEST + 1).removesuffix("\n")
    if not given:
        raise UsageError(f"There is no {what.lower()}.", hint="Type it, pipe it in, or give it as a flag.")
    if len(given) > LONGEST:
        raise UsageError(f"The {what.lower()} is longer than {LONGEST:,} characters.")
    return given
