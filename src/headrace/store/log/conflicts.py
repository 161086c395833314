"""Events that came again with another payload: the first stays, and each other one is counted for the triggers that fired it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy import Connection, bindparam, select, update

from headrace.store.dialects.statements import in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events
from headrace.wire.custody.events import EventItem

MAX_AT_ONCE = 500
"""Payloads that are read at once to be compared."""

_payloads = select(events.c.seq, events.c.payload).where(in_list(events.c.seq, "seqs"))
_count = update(triggers).where(triggers.c.id == bindparam("trigger")).values(conflicts=triggers.c.conflicts + bindparam("times"))

log = structlog.get_logger(__name__)


def count_conflicts(connection: Connection, repeated: Sequence[tuple[int, EventItem]], added: Mapping[int, str]) -> None:
    """Count the repeats whose payload is not that of the event; `repeated` has its seq, `added` the payloads that are not stored yet."""
    times: Counter[int] = Counter()
    example: EventItem | None = None
    for start in range(0, len(repeated), MAX_AT_ONCE):
        part = repeated[start : start + MAX_AT_ONCE]
        known = {row[0]: row[1] for row in connection.execute(_payloads, {"seqs": list({seq for seq, _ in part} - added.keys())})}
        for seq, item in part:
            if item.payload != (known[seq] if seq in known else added.get(seq, item.payload)):
                times.update(item.firings)
                example = example or item
    if example is not None:
        log.warning("events dropped: their ids are known with other payloads", events=times.total(), id=example.id, source=example.source)
        connection.execute(_count, [{"trigger": trigger, "times": n} for trigger, n in times.items()])
