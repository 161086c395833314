"""A log line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.logs.line import FIRST, decode, printable

_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_BLOCKS: Final = ("exception", "stack")


def render(line: str, *, colours: bool = False) -> str:
    """Return a line of a log as people read it; one that is not ours comes as it is, but printable."""
    fields = decode(line)
    return printable(line.rstrip("\n")) if fields is None else render_fields(fields, colours=colours)


def render_fields(fields: Mapping[str, Any], *, colours: bool = False) -> str:
    """Return the fields of a line as people read them: time, level, what happened, the rest, and below it a traceback if there is one."""
    level = str(fields.get("level", ""))
    head = [
        _paint(printable(str(fields.get("timestamp", ""))), "2", colours),
        _paint(f"{printable(level):<8}", _COLOURS.get(level, "0"), colours),
        _paint(printable(str(fields.get("event", ""))), "1", colours),
    ]
    rest = [f"{printable(str(name))}={_value(value)}" for name, value in fields.items() if name not in (*FIRST, *_BLOCKS)]
    logger = fields.get("logger")
    if logger:
        rest.append(_paint(f"[{printable(str(logger))}]", "2", colours))
    blocks = [f"  {printable(part)}" for name in _BLOCKS if name in fields for part in str(fields[name]).splitlines()]
    return "\n".join([" ".join([*head, *rest]).rstrip(), *blocks])


def _value(value: object) -> str:
    text = str(value)
    return repr(text) if isinstance(value, str) and (not text or " " in text or not text.isprintable()) else printable(text)


def _paint(text: str, code: str, colours: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colours and text.strip() else text
