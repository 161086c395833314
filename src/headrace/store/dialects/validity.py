"""Check that every database stores items unchanged: their texts, numbers, times and JSON depth. Others are `invalid`."""

from __future__ import annotations

from operator import attrgetter

import msgspec

from headrace.core.values.limits import is_too_deep
from headrace.core.values.moments import in_range
from headrace.core.values.text import MAX_INDEXED_NAME_BYTES, is_id, is_storable
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, EventItem
from headrace.wire.custody.receipts import Receipt
from headrace.wire.event_schema import EVENT_COLUMNS

INT64 = range(-(2**63), 2**63)
_json = msgspec.json.Decoder(msgspec.Raw)
_event_texts = attrgetter(*(column.name for column in EVENT_COLUMNS if column.sent and column.type == "text" and column.name != "payload"))


def is_valid_event(item: EventItem) -> bool:
    """Return whether the payload is JSON that every reader can parse, and the other fields can be stored.

    The JSON is only scanned, not parsed.
    """
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
    return all(text is None or is_storable(text) for text in _event_texts(item))


def is_valid_dead_letter(item: DeadLetterItem) -> bool:
    """Return whether id, origin and attempts can be stored. The other texts are cleaned before they are stored."""
    return is_id(item.id) and item.attempts in INT64 and _is_origin(item.stream, item.lane, item.position)


def is_valid_spill(item: SpillItem) -> bool:
    """Return whether origin and text can be stored unchanged."""
    return _is_origin(item.stream, item.lane, item.position) and is_storable(item.raw)


def is_valid_receipt(item: Receipt) -> bool:
    """Return whether origin and counts can be stored."""
    counts = (count for answers in item.answers for _, count in answers)
    numbers = (item.last, item.read, *(() if item.after is None else (item.after,)))
    return _is_origin(item.stream, item.lane, None) and all(number in INT64 for number in (*numbers, *item.owed, *counts))


def _is_origin(stream: str, lane: str | None, position: int | None) -> bool:
    lane = lane or ""
    if not (is_storable(stream) and is_storable(lane)) or (position is not None and position not in INT64):
        return False
    return len(stream.encode()) + len(lane.encode()) <= 2 * MAX_INDEXED_NAME_BYTES
