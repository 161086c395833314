"""One line of a log: an object in JSON, without a character that could steer a terminal or begin another line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.core.values.text import type_name

LONGEST: Final = 64 * 1024
"""Bytes of a line; what is logged in more is cut."""

FIRST: Final = ("timestamp", "level", "event", "logger")
_UNSAFE: Final = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")


def encode(fields: Mapping[str, Any]) -> str:
    """Return the fields as one line, without its end. What is not JSON goes in as its `repr`."""
    text = _dump({name: fields[name] for name in FIRST if name in fields} | dict(fields))
    if len(text.encode()) <= LONGEST:
        return text
    cut = {name: value if _short(value) else str(value)[:1000] + " … (cut)" for name, value in list(fields.items())[:50]}
    cut["event"] = str(fields.get("event", ""))[:8000] + " … (cut)"
    return _dump(cut)


def decode(line: str | bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None: it is not one of ours."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "event" in found else None


def printable(text: str) -> str:
    """Return the text with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode() for one in text)


def _dump(fields: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(fields, default=_told, ensure_ascii=False, skipkeys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # a value that contains itself
        text = json.dumps({str(name): _told(value) for name, value in fields.items()}, ensure_ascii=False)
    return _UNSAFE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def _told(value: object) -> str:
    try:
        return repr(value)
    except BaseException as error:  # a user's `__repr__` may raise anything; its log line is worth more
        return f"<{type_name(value)}, whose repr raised {type_name(error)}>"


def _short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 1000)
