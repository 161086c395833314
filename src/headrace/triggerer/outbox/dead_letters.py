"""Build dead letters that the API accepts, and a shorter form that it cannot refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from headrace.core.dead_letter_ids import dead_letter_id
from headrace.core.values.text import (
    MAX_INDEXED_NAME_BYTES,
    MAX_TEXT_CHARS,
    MAX_TRACEBACK_LINES,
    clean_text,
    cut_lines,
    cut_text,
    storable_id,
)
from headrace.triggerer.outbox.outbox import OutboxItem
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, DeadLetterKind, EventItem

MAX_RAW_BYTES: Final = MAX_BODY_BYTES - 1024 * 1024
"""Limit of a raw event's JSON up to which a dead letter stores it completely. With all other fields it fits into one request."""
_CUT_CHARS: Final = 64 * 1024
_SMALL_CHARS: Final = 1000
_MAX_ATTEMPTS: Final = 2**31
_INT64: Final = range(-(2**63), 2**63)


class StreamItem(Protocol):
    """An item with an origin in a shared stream. `message_id` is set only if lane and position do not identify it."""

    @property
    def key(self) -> str:
        """The stream."""
        ...

    @property
    def lane(self) -> str:
        """The lane."""
        ...

    @property
    def position(self) -> int | None:
        """The position in the lane."""
        ...

    @property
    def message_id(self) -> str | None:
        """The id of the message."""
        ...


def dead_letter(
    item: StreamItem,
    kind: DeadLetterKind,
    reason: str,
    raw: str,
    trigger_ids: Sequence[int],
    *,
    who: int | None = None,
    attempts: int = 1,
    traceback: Iterable[str] = (),
) -> DeadLetterItem:
    """Return a dead letter of a stream item.

    `who`: a trigger id that makes the dead letter's id unique. One raw event may have a dead letter for each trigger or
    each envelope.
    """
    parts = (kind,) if who is None else (kind, who)
    return storable_dead_letter(
        id=dead_letter_id(item.key, item.lane, item.position, item.message_id, *parts),
        kind=kind,
        reason=reason,
        stream=item.key,
        lane=item.lane,
        position=item.position,
        raw=raw,
        trigger_ids=trigger_ids,
        attempts=attempts,
        traceback=traceback,
    )


def storable_dead_letter(
    *,
    id: str,
    kind: DeadLetterKind,
    reason: str,
    stream: str,
    lane: str | None,
    position: int | None,
    raw: str,
    trigger_ids: Sequence[int],
    attempts: int = 1,
    traceback: Iterable[str] = (),
) -> DeadLetterItem:
    """Return a dead letter whose texts are cleaned and truncated."""
    return DeadLetterItem(
        id=storable_id(id),
        kind=kind,
        reason=cut_text(reason, MAX_TEXT_CHARS),
        stream=_name(stream),
        lane=None if lane is None else _name(lane),
        position=position if position is None or position in _INT64 else None,
        raw=_storable_raw(raw),
        triggers=list(trigger_ids),
        attempts=min(attempts, _MAX_ATTEMPTS),
        traceback=cut_lines(traceback, 2 * MAX_TRACEBACK_LINES),
    )


def shortened(dead_letter_item: DeadLetterItem) -> DeadLetterItem:
    """Return the short form of a dead letter, which the API always accepts: same triggers and origin, little text."""
    return storable_dead_letter(
        id=dead_letter_item.id,
        kind=dead_letter_item.kind,
        reason=cut_text(dead_letter_item.reason, _SMALL_CHARS),
        stream=dead_letter_item.stream,
        lane=dead_letter_item.lane,
        position=dead_letter_item.position,
        raw=cut_text(dead_letter_item.raw, _SMALL_CHARS),
        trigger_ids=dead_letter_item.triggers,
        attempts=dead_letter_item.attempts,
    )


def replacement_for(pending: OutboxItem, reason: str) -> DeadLetterItem | None:
    """Return the dead letter to store in place of an item that the API refused, or None if there is no shorter form."""
    item = pending.item
    kind: DeadLetterKind = "failed" if pending.has_raw else "unserialisable"
    if isinstance(item, EventItem):
        stream = item.stream or item.source
        # Watches with different envelopes may have events with the same id, and each is refused separately.
        id = dead_letter_id(stream, item.lane, item.position, None, "event", item.id, item.firings[0])
        raw, triggers = item.payload, item.firings
    elif isinstance(item, SpillItem):
        stream = item.stream
        id = dead_letter_id(stream, item.lane, item.position, None, "spill", item.triggers[0])
        raw, triggers = item.raw, item.triggers
    elif isinstance(item, DeadLetterItem):
        small = shortened(item)
        return None if small == item else small
    else:
        return None
    return storable_dead_letter(
        id=id, kind=kind, reason=reason, stream=stream, lane=item.lane, position=item.position, raw=raw, trigger_ids=triggers
    )


def shortest_replacement(pending: OutboxItem) -> DeadLetterItem | None:
    """Return the shortest form that `replacement_for` can return."""
    item = pending.item
    replacement = item if isinstance(item, DeadLetterItem) else replacement_for(pending, "The api failed to store it.")
    return None if replacement is None else shortened(replacement)


def _storable_raw(raw: str) -> str:
    """Return a raw event as clean text, truncated if it is too long."""
    if len(raw) > _CUT_CHARS and (len(raw) > MAX_RAW_BYTES or len(msgspec.json.encode(clean_text(raw))) > MAX_RAW_BYTES):
        return cut_text(raw, _CUT_CHARS)
    return clean_text(raw)


def _name(text: str) -> str:
    return storable_id(text, max_bytes=MAX_INDEXED_NAME_BYTES) if text else text
