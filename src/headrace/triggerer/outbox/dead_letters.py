"""Dead letters as they are sent: one form for each, that the api takes whatever it tells of, and a smaller one that it cannot refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from headrace.core.dead_letter_ids import letter_id
from headrace.core.values.text import (
    MAX_PLACE_NAME_BYTES,
    MAX_TEXT_CHARS,
    MAX_TRACEBACK_LINES,
    clean_text,
    cut_lines,
    cut_text,
    storable_id,
)
from headrace.triggerer.outbox.outbox import Item
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, DeadLetterKind, EventItem

MAX_RAW_BYTES: Final = MAX_BODY_BYTES - 1024 * 1024
"""A letter keeps a raw event whole that as JSON has at most so many bytes: with all else it says it fits into one request."""
_CUT_CHARS: Final = 64 * 1024
_SMALL_CHARS: Final = 1000
_MAX_ATTEMPTS: Final = 2**31
_INT64: Final = range(-(2**63), 2**63)


class Placed(Protocol):
    """What has a place in a shared stream; where the upstream gives no position, `delivery_id` tells it from its equals."""

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
    def delivery_id(self) -> str | None:
        """The stream's own name of this delivery."""
        ...


def dead_letter(
    what: Placed,
    kind: DeadLetterKind,
    reason: str,
    raw: str,
    trigger_ids: Sequence[int],
    *,
    who: int | None = None,
    attempts: int = 1,
    traceback: Iterable[str] = (),
) -> DeadLetterItem:
    """Return a dead letter of what has a place. `who`: one raw event may have a letter for each trigger, or for each watch's envelope."""
    parts = (kind,) if who is None else (kind, who)
    return safe_letter(
        id=letter_id(what.key, what.lane, what.position, what.delivery_id, *parts),
        kind=kind,
        reason=reason,
        stream=what.key,
        lane=what.lane,
        position=what.position,
        raw=raw,
        trigger_ids=trigger_ids,
        attempts=attempts,
        traceback=traceback,
    )


def safe_letter(
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
    """Return a dead letter with its texts cleaned and cut."""
    return DeadLetterItem(
        id=storable_id(id),
        kind=kind,
        reason=cut_text(reason, MAX_TEXT_CHARS),
        stream=_name(stream),
        lane=None if lane is None else _name(lane),
        position=position if position is None or position in _INT64 else None,
        raw=_kept(raw),
        triggers=list(trigger_ids),
        attempts=min(attempts, _MAX_ATTEMPTS),
        traceback=cut_lines(traceback, 2 * MAX_TRACEBACK_LINES),
    )


def smaller(letter: DeadLetterItem) -> DeadLetterItem:
    """Return the form of a dead letter that the api takes whatever else it refuses: same triggers and place, little text."""
    return safe_letter(
        id=letter.id,
        kind=letter.kind,
        reason=cut_text(letter.reason, _SMALL_CHARS),
        stream=letter.stream,
        lane=letter.lane,
        position=letter.position,
        raw=cut_text(letter.raw, _SMALL_CHARS),
        trigger_ids=letter.triggers,
        attempts=letter.attempts,
    )


def instead_of(item: Item, reason: str) -> DeadLetterItem | None:
    """Return the dead letter to store instead of an item that the api refused, or None if there is no smaller form."""
    if isinstance(item, EventItem):
        stream = item.stream or item.source
        # Watches with other envelopes may have events of the same id, and each is refused by itself.
        id = letter_id(stream, item.lane, item.position, None, "event", item.id, item.firings[0])
        raw, triggers = item.payload, item.firings
    elif isinstance(item, SpillItem):
        stream = item.stream
        id = letter_id(stream, item.lane, item.position, item.delivery_id, "spill", item.triggers[0])
        raw, triggers = item.raw, item.triggers
    elif isinstance(item, DeadLetterItem):
        small = smaller(item)
        return None if small == item else small
    else:
        return None
    return safe_letter(
        id=id, kind="failed", reason=reason, stream=stream, lane=item.lane, position=item.position, raw=raw, trigger_ids=triggers
    )


def smallest(item: Item) -> DeadLetterItem | None:
    """Return the last of the forms that `instead_of` gives."""
    letter = item if isinstance(item, DeadLetterItem) else instead_of(item, "The api failed to store it.")
    return None if letter is None else smaller(letter)


def _kept(raw: str) -> str:
    """Return a raw event, clean; of one that is too long its beginning."""
    if len(raw) > _CUT_CHARS and (len(raw) > MAX_RAW_BYTES or len(msgspec.json.encode(clean_text(raw))) > MAX_RAW_BYTES):
        return cut_text(raw, _CUT_CHARS)
    return clean_text(raw)


def _name(text: str) -> str:
    return storable_id(text, max_bytes=MAX_PLACE_NAME_BYTES) if text else text
