"""`headrace match`: try an event pattern on events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from headrace.cli.console import out
from headrace.cli.groups import examples
from headrace.cli.rendering import count
from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.parser import EventPattern, parse_pattern
from headrace.core.values.limits import MAX_JSON_DEPTH, is_too_deep
from headrace.core.values.text import describe_error
from headrace.errors import UsageError

EPILOG: Final = examples(
    """headrace match '{"carrier": ["UA"]}' '{"carrier": "DL"}'""",
    ("headrace match @pattern.json @events.jsonl", "a file: one event in each line"),
    """tail -f events.jsonl | headrace match '{"delay": [{"numeric": [">", 60]}]}' -""",
)


class _Event(NamedTuple):
    """One event, and its name in the output; empty if it is the only one."""

    name: str
    value: Any


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("match", rich_help_panel="Events in and out", epilog=EPILOG)(match)


def match(
    pattern: Annotated[
        str, typer.Argument(help="The pattern, as in match= of a watch: JSON, or @FILE.", metavar="PATTERN", show_default=False)
    ],
    event: Annotated[
        str,
        typer.Argument(
            help="The event: JSON. @FILE or - (standard input): JSON lines, one event in each.", metavar="EVENT", show_default=False
        ),
    ],
) -> None:
    """Say whether an event matches a pattern, or the first field that fails and its value.

    The exit code is 0 if all events match, else 1.
    """
    parsed = parse_pattern(_decoded(_text(pattern), "The pattern"), "the pattern")
    matched = total = 0
    for one in _events(event):
        total += 1
        matched += _report(parsed, one)
    if event.startswith("@") or event == "-":
        out.print(f"{matched:,} of {count(total, 'event')} match.", markup=False)
    if matched < total:
        raise typer.Exit(1)


def _report(pattern: EventPattern, event: _Event) -> bool:
    mismatches = explain(pattern, event.value)
    if not mismatches:
        out.print(f"{event.name}yes", markup=False)
        return True
    others = len(mismatches) - 1
    more = f" ({count(others, 'other alternative')} of the pattern {'fails' if others == 1 else 'fail'} too)" if others else ""
    out.print(f"{event.name}no: {mismatches[0].reason}.{more}", markup=False)
    return False


def _events(argument: str) -> Iterator[_Event]:
    if argument != "-" and not argument.startswith("@"):
        yield _Event("", _decoded(argument.encode(), "The event"))
        return
    lines = sys.stdin.buffer if argument == "-" else _text(argument).splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _Event(f"line {number:,}: ", _decoded(line, f"The event in line {number:,}"))


def _text(argument: str) -> bytes:
    if not argument.startswith("@"):
        return argument.encode()
    try:
        return Path(argument[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"The file {argument[1:]} cannot be read: {error.strerror}.", hint="Name a file after @.") from error


def _decoded(text: bytes, what: str) -> Any:
    if is_too_deep(text):
        raise UsageError(f"{what} is nested too deep.", hint=f"At most {MAX_JSON_DEPTH} levels are read.")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "Quote it for the shell, or put it into a file: @FILE."
        raise UsageError(f"{what} is not JSON: {describe_error(error)}.", hint=hint) from error
