"""Conflicts: events that came again with another payload. The first one stays, and the others are counted for their triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy import Connection, bindparam, select, update

from headrace.store.dialects.statements import in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events
from headrace.wire.custody.events import EventItem

MAX_PAYLOADS = 500
"""Payloads of one query."""

_payloads = select(events.c.seq, events.c.payload).where(in_list(events.c.seq, "seqs"))
_count = update(triggers).where(triggers.c.id == bindparam("trigger")).values(conflicts=triggers.c.conflicts + bindparam("times"))

log = structlog.get_logger(__name__)


def count_conflicts(connection: Connection, repeated: Sequence[tuple[int, EventItem]], added: Mapping[int, str]) -> None:
    """Count repeats with another payload than their event. `repeated` has the event's seq, `added` the payloads of this transaction."""
    times: Counter[int] = Counter()
    example: EventItem | None = None
    for start in range(0, len(repeated), MAX_PAYLOADS):
        part = repeated[start : start + MAX_PAYLOADS]
        known = {row[0]: row[1] for row in connection.execute(_payloads, {"seqs": list({seq for seq, _ in part} - added.keys())})}
        for seq, item in part:
            if item.payload != (known[seq] if seq in known else added.get(seq, item.payload)):
                times.update(item.firings)
                example = example or item
    if example is not None:
        log.warning("events dropped: their ids are known with other payloads", events=times.total(), id=example.id, source=example.source)
        connection.execute(_count, [{"trigger": trigger, "times": n} for trigger, n in times.items()])
