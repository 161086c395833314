"""Ids of entries, and the positions of raw events that are made of them. Pure.

An id is the time in milliseconds and a sequence number: `1763900000000-0`. A position has 63 bits: 43 of the time, which end in the year
2248, and 20 of the sequence number. Positions rise as ids do.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import UpstreamError

SEQUENCE_BITS: Final = 20
TIME_BITS: Final = 43
MAX_SEQUENCE: Final = (1 << SEQUENCE_BITS) - 1
MAX_TIME_MS: Final = (1 << TIME_BITS) - 1
NO_ID: Final = "0-0"
"""The id before the first entry."""
_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


def parse_id(text: str) -> tuple[int, int]:
    """Return the time and the sequence number of an id. Raises `ValueError`."""
    parts = _ID.fullmatch(text)
    if parts is None:
        raise ValueError(f"not an id: {text!r}")
    return int(parts[1]), int(parts[2] or 0)


def position_of(id: str) -> int:
    """Return the position of an id. Raises `UpstreamError` if it does not fit."""
    time_ms, sequence = parse_id(id)
    if time_ms > MAX_TIME_MS or sequence > MAX_SEQUENCE:
        raise UpstreamError(
            f"Entry {id} cannot be read: its id is too large for a position.",
            hint=f"A time has up to {TIME_BITS} bits ({MAX_TIME_MS}), a sequence number up to {SEQUENCE_BITS} bits ({MAX_SEQUENCE}). "
            "Add entries with ids of the server: XADD key * …",
        )
    return time_ms << SEQUENCE_BITS | sequence


def limited_position(id: str) -> int:
    """Return the position of an id, or the highest position if it does not fit."""
    time_ms, sequence = parse_id(id)
    return min(time_ms << SEQUENCE_BITS | min(sequence, MAX_SEQUENCE), MAX_TIME_MS << SEQUENCE_BITS | MAX_SEQUENCE)


def id_of(position: int) -> str:
    """Return the id of a position."""
    return f"{position >> SEQUENCE_BITS}-{position & MAX_SEQUENCE}"


def time_of(position: int) -> int:
    """Return the time of a position in milliseconds since 1970."""
    return position >> SEQUENCE_BITS
