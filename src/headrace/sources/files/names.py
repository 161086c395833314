r"""File names as text that can be stored, sent and printed: bytes that are not UTF-8, and control characters, as `\xNN`."""

from __future__ import annotations

import os
import re
import secrets
from typing import Final

MAX_NAME_BYTES: Final = 255
MAX_LANE_TEXT: Final = 200
_ESCAPED: Final = re.compile(rb"\\(?:x([0-9a-f]{2})|(\\))")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {ord("\\"): "\\\\"}


def text_of(name: str) -> str:
    """Return the text for a file name as the `os` module gives it; `name_of` gives the name back."""
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    # Surrogates stand for the bytes that are not UTF-8. Backslashes of the name itself are doubled before these
    # bytes become \xNN.
    return os.fsencode(name.translate(_CONTROL)).decode("utf-8", "backslashreplace")


def name_of(text: str) -> str:
    """Return the file name that `text_of` wrote."""
    if "\\" not in text:
        return text
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\", text.encode()))


def new_lane(name: str) -> str:
    """Return the name of a new lane for a file of that name. Invariant: no other lane ever has the same name, in
    any folder or file.
    """
    text = text_of(name)
    if len(text) > MAX_LANE_TEXT:
        text = text[: MAX_LANE_TEXT - 1] + "…"
    return f"{text}@{secrets.token_hex(6)}"


def file_of(lane: str) -> str:
    """Return the file's name, as the text in a lane's name from `new_lane`."""
    return lane.rpartition("@")[0]


def with_suffix(name: str, suffix: str) -> str:
    """Return the name with `suffix` at its end, truncated to the length that file systems accept."""
    data = os.fsencode(name)[: MAX_NAME_BYTES - len(suffix)]
    return os.fsdecode(data) + suffix
