"""Arguments of commands that are JSON, or @FILE with JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headrace.core.matching.payloads import pattern_text
from headrace.core.values.limits import MAX_JSON_DEPTH, is_too_deep
from headrace.core.values.text import describe_error
from headrace.errors import UsageError


def read_argument(argument: str) -> bytes:
    """Return the text of an argument, or of the file that it names after @. Raises `UsageError`."""
    if not argument.startswith("@"):
        return argument.encode(errors="surrogateescape")
    try:
        return Path(argument[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"The file {argument[1:]} cannot be read: {error.strerror}.", hint="Name a file after @.") from error


def decode_argument(text: bytes, what: str) -> Any:
    """Return the value of a JSON text. `what` names it in the `UsageError`."""
    if is_too_deep(text):
        raise UsageError(f"{what} is nested too deep.", hint=f"At most {MAX_JSON_DEPTH} levels are read.")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "Quote it for the shell, or put it into a file: @FILE."
        raise UsageError(f"{what} is not JSON: {describe_error(error)}.", hint=hint) from error


def read_match(argument: str) -> dict[str, Any]:
    """Return the event pattern of the option --match. Raises `UsageError`, or `ProjectError`, which names the path of the error."""
    pattern: dict[str, Any] = decode_argument(read_argument(argument), "The pattern of --match")
    pattern_text(pattern, "--match")
    return pattern
