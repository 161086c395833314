"""`headrace match`: try an event pattern on events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import typer

from headrace.cli.console import out
from headrace.cli.groups import examples
from headrace.cli.json_arguments import decode_argument, read_argument
from headrace.cli.rendering import count
from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.parser import EventPattern, parse_pattern

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
    parsed = parse_pattern(decode_argument(read_argument(pattern), "The pattern"), "the pattern")
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
        yield _Event("", decode_argument(argument.encode(), "The event"))
        return
    lines = sys.stdin.buffer if argument == "-" else read_argument(argument).splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _Event(f"line {number:,}: ", decode_argument(line, f"The event in line {number:,}"))
