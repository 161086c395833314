"""The identity of an event: its (source, id), and the 16-byte key derived from it."""

from __future__ import annotations

from hashlib import blake2b
from typing import NewType

EventKey = NewType("EventKey", bytes)
"""16 bytes that identify one (source, id), in the log, in the ordering state and in Spark."""

KEY_BYTES = 16


def event_key(source: str, id: str) -> EventKey:
    """Return the key of the event `id` of `source`: equal for equal pairs, and otherwise distinct for all practical purposes.

    The source's length is hashed too, so that ("a", "bc") and ("ab", "c") differ.
    """
    head = source.encode()
    return EventKey(blake2b(b"%d:%b%b" % (len(head), head, id.encode()), digest_size=KEY_BYTES).digest())
