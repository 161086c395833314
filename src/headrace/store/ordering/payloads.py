"""Test the payloads of events of the log by an event pattern, in parts of limited size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from headrace.core.matching.payloads import Payload, PayloadPattern
from headrace.store.dialects.statements import byte_length, in_list
from headrace.store.tables.log import events

MAX_PART_BYTES: Final = 4 * 1024 * 1024
"""Maximum of payloads that one statement reads. A larger payload is read alone."""
PART_EVENTS: Final = 500
"""Maximum of events whose payloads one statement reads."""
MAX_TESTED_BYTES: Final = 32 * 1024 * 1024
"""Payloads that one page of the log tests."""
MAX_TESTED_SECONDS: Final = 1.0
"""Time in which one page of the log is tested."""

_sizes = select(events.c.seq, byte_length(events.c.payload).label("bytes")).where(in_list(events.c.seq, "seqs"))
_payloads = select(events.c.seq, events.c.payload).where(in_list(events.c.seq, "seqs"))


class StoredPayload(NamedTuple):
    """The payload of an event. `bytes` is its size in UTF-8."""

    seq: int
    bytes: int
    payload: Payload


def stored_payloads(connection: Connection, seqs: Sequence[int]) -> Iterator[StoredPayload]:
    """Yield the payloads of events in the order of `seqs`. A pruned event has an empty text."""
    for start in range(0, len(seqs), PART_EVENTS):
        part = seqs[start : start + PART_EVENTS]
        sizes = {row.seq: row.bytes for row in connection.execute(_sizes, {"seqs": list(part)})}
        while part:
            count, size = 1, sizes.get(part[0], 0)
            while count < len(part) and size + sizes.get(part[count], 0) <= MAX_PART_BYTES:
                size += sizes.get(part[count], 0)
                count += 1
            texts = {row.seq: row.payload for row in connection.execute(_payloads, {"seqs": list(part[:count])})}
            for seq in part[:count]:
                yield StoredPayload(seq, sizes.get(seq, 0), Payload(texts.pop(seq, "")))
            part = part[count:]


class PayloadBudget:
    """The payloads that one page or transaction may still test. The payload that exceeds the budget is the last."""

    def __init__(self, max_bytes: int = MAX_TESTED_BYTES) -> None:
        self._bytes = max_bytes
        self._deadline = monotonic() + MAX_TESTED_SECONDS

    def spend(self, size: int) -> bool:
        """Count a payload of `size` bytes that was tested. Return whether another one may be."""
        self._bytes -= size
        return self._bytes > 0 and monotonic() < self._deadline


def payload_matches(
    connection: Connection, pattern: PayloadPattern, seqs: Sequence[int], budget: PayloadBudget | None = None
) -> Iterator[tuple[int, bool]]:
    """Yield whether the payload of each event matches, in the order of `seqs`, as far as the budget reaches."""
    for seq, size, payload in stored_payloads(connection, seqs):
        yield seq, pattern.matches(payload)
        if budget is not None and not budget.spend(size):
            return
