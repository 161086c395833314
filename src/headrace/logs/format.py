"""Format of log lines: JSON objects without control characters, and their rendering for terminals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.core.values.text import type_name

MAX_LINE_BYTES: Final = 64 * 1024
"""Maximum size of a line; longer ones are truncated."""

FIRST: Final = ("timestamp", "level", "event", "logger")
_UNSAFE: Final = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")

_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_BLOCKS: Final = ("exception", "stack")


def encode(fields: Mapping[str, Any]) -> str:
    """Return the fields as one line, without its newline. Values that are not JSON become their `repr`."""
    text = _dump({name: fields[name] for name in FIRST if name in fields} | dict(fields))
    if len(text.encode()) <= MAX_LINE_BYTES:
        return text
    cut = {name: value if _short(value) else str(value)[:1000] + " … (cut)" for name, value in list(fields.items())[:50]}
    cut["event"] = str(fields.get("event", ""))[:8000] + " … (cut)"
    return _dump(cut)


def decode(line: str | bytes) -> dict[str, Any] | None:
    """Return the fields of a line, or None if it is not a log line of Headrace."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None


def printable(text: str) -> str:
    """Return the text with each unprintable character as an escape."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode() for one in text)


def render(line: str, *, colours: bool = False) -> str:
    """Return a log line for a terminal. A line in another format is returned with its unprintable characters escaped."""
    fields = decode(line)
    return printable(line.rstrip("\n")) if fields is None else render_fields(fields, colours=colours)


def render_fields(fields: Mapping[str, Any], *, colours: bool = False) -> str:
    """Return the fields of a line for a terminal: time, level, event, other fields, and a traceback below if there is one."""
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


def _dump(fields: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(fields, default=_safe_repr, ensure_ascii=False, skipkeys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # a value that contains itself
        text = json.dumps({str(name): _safe_repr(value) for name, value in fields.items()}, ensure_ascii=False)
    return _UNSAFE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException as error:  # a user's `__repr__` may raise anything, and the log line must be written
        return f"<{type_name(value)}, whose repr raised {type_name(error)}>"


def _short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 1000)


def _value(value: object) -> str:
    text = str(value)
    return repr(text) if isinstance(value, str) and (not text or " " in text or not text.isprintable()) else printable(text)


def _paint(text: str, code: str, colours: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colours and text.strip() else text
