"""Which items every database takes as they are: texts, numbers, moments and the depth of JSON. What is none of these is `invalid`."""

from __future__ import annotations

import msgspec

from headrace.core.values.limits import is_too_deep
from headrace.core.values.moments import in_range
from headrace.core.values.text import MAX_PLACE_NAME_BYTES, is_id, is_storable
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, EventItem
from headrace.wire.custody.receipts import Receipt

INT64 = range(-(2**63), 2**63)
_json = msgspec.json.Decoder(msgspec.Raw)


def is_valid_event(item: EventItem) -> bool:
    """Return whether the payload is JSON (scanned, not built) that every reader can parse, and all else fits."""
    try:
        payload = item.payload.encode()
        if is_too_deep(payload):
            return False
        _json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    if item.position is not None and item.position not in INT64:
        return False
    if item.occurred is not None and not in_range(item.occurred):
        return False
    texts = (item.id, item.source, item.type, item.subject, item.follows, item.stream, item.lane, item.trace)
    return all(text is None or is_storable(text) for text in texts)


def is_valid_letter(item: DeadLetterItem) -> bool:
    """Return whether id, place and attempts fit; what else it says is cleaned as it is stored."""
    return is_id(item.id) and item.attempts in INT64 and _is_place(item.stream, item.lane, item.position)


def is_valid_spill(item: SpillItem) -> bool:
    """Return whether place and text fit: the text comes back as it is, or not at all."""
    return _is_place(item.stream, item.lane, item.position) and is_storable(item.raw)


def is_valid_receipt(item: Receipt) -> bool:
    """Return whether place and counts fit."""
    counts = (count for answers in item.answers for _, count in answers)
    numbers = (item.last, item.read, *(() if item.after is None else (item.after,)))
    return _is_place(item.stream, item.lane, None) and all(number in INT64 for number in (*numbers, *item.owed, *counts))


def _is_place(stream: str, lane: str | None, position: int | None) -> bool:
    lane = lane or ""
    if not (is_storable(stream) and is_storable(lane)) or (position is not None and position not in INT64):
        return False
    return len(stream.encode()) + len(lane.encode()) <= 2 * MAX_PLACE_NAME_BYTES
