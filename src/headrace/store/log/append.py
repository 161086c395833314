"""Appending to the log: batches of events, dead letters, spills and receipts in, a contiguous `seq` and one status for each item out.

The law, under the writer's transaction:
- an item counts only where every trigger it names is held by the sender at the epoch it says, or was last, before it changed or went,
  and by nobody since; otherwise it is fenced and leaves nothing;
- an event is in the log once for each (source, id); a repeat adds the firings that are missing, as redeliveries, and nothing else, and to
  an event that the log has forgotten not even those; one with another payload is counted for its triggers;
- `leader_seq` is the leader's place in the log if it was there first, and -1 if it was not;
- the triggers' counters move in the same commit;
- receipts are recorded last, since they account for what was stored;
- what fires a trigger that a task run waits for goes to the run, and not into the log;
- a batch for more task runs than one transaction lets continue is `UnresolvedBatch` until the last of them has its event.
Batches that wait together are appended together, in the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress

from sqlalchemy import Connection, bindparam, case, select, update

from headrace.core.identity import EventKey, event_key
from headrace.core.values.moments import micros
from headrace.errors import Fenced
from headrace.store.custody.receipts import ReceiptBatch, record
from headrace.store.custody.spills import Spills
from headrace.store.db.meta import HEAD, last_pruned_seq
from headrace.store.dead_letters.dead_letters import DeadLetterInserts
from headrace.store.dialects.statements import BulkInsert, in_list, rows_among
from headrace.store.dialects.validity import INT64, is_valid_event, is_valid_receipt
from headrace.store.log.conflicts import count_conflicts
from headrace.store.redeliveries import record_late_firings
from headrace.store.tables.base import meta
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.log import events, firings, pruned_event_keys
from headrace.store.task_runs.deliveries import Delivery, RunDeliveries
from headrace.wire.custody.events import BatchStored, EventBatch, EventItem, ItemStatus, ReceiptStatus
from headrace.wire.log import NO_LEADER_SEQ

MOST_PARAMETERS = 10_000

_events = BulkInsert(events)
_PAYLOAD = list(events.c.keys()).index("payload")
_firings = BulkInsert(firings)

_running = select(jobs.c.id).where(jobs.c.state == "running", in_list(jobs.c.id, "ids"))
_leases = select(triggers.c.id, triggers.c.job_id, triggers.c.revoked_job_id, triggers.c.epoch, triggers.c.run_id).where(
    in_list(triggers.c.id, "ids")
)
_known = select(events.c.key, events.c.seq).where(in_list(events.c.key, "keys"))
_pruned_event_keys = select(pruned_event_keys.c.key, pruned_event_keys.c.seq).where(in_list(pruned_event_keys.c.key, "keys"))
_fired = select(firings.c.seq, firings.c.trigger_id).where(in_list(firings.c.seq, "seqs"))
_head = select(meta.c.value).where(meta.c.name == HEAD)
_move_head = update(meta).where(meta.c.name == HEAD).values(value=bindparam("head"))
# One that fires has not failed; one that no job holds, or that is parked, stays what it is.
_state = case((triggers.c.job_id.is_not(None) & (triggers.c.state != "parked"), "running"), else_=triggers.c.state)
_count_fired = (
    update(triggers)
    .where(triggers.c.id == bindparam("trigger"))
    .values(fired=triggers.c.fired + bindparam("times"), last_fired=bindparam("now"), state=_state)
)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch with all that can be worked out before the writer's turn. `keys` is None where an event is invalid."""

    job_id: int
    batch: EventBatch
    keys: list[EventKey | None]
    leaders: list[EventKey | None]
    delivered: Set[int] = frozenset()
    """Triggers of task runs that fired in earlier transactions of this batch."""


@dataclass(frozen=True, slots=True)
class UnresolvedBatch:
    """The answer to a batch of which nothing is stored but what some task runs wait for: append it again, with `delivered`."""

    delivered: Set[int]


@dataclass(slots=True)
class _Append:
    """What one transaction adds."""

    head: int
    now: int
    known: dict[bytes, int]
    gone: set[int]
    rows: list[tuple[object, ...]] = field(default_factory=list)
    repeats: set[tuple[int, int]] = field(default_factory=set)
    repeated: list[tuple[int, EventItem]] = field(default_factory=list)
    fired: dict[tuple[int, int], None] = field(default_factory=dict)

    def add_batch(self, prepared: PreparedBatch, mine: set[int], delivery: Delivery) -> list[ItemStatus]:
        """Add the events of a batch whose triggers are `mine`, but for those of task runs; return a status for each."""
        statuses: list[ItemStatus] = []
        for item, key, leader in zip(prepared.batch.events, prepared.keys, prepared.leaders, strict=True):
            if key is None:
                statuses.append("invalid")
            elif mine.issuperset(item.firings):
                statuses.append(delivery.status(item) or self.add(item, key, leader))
            else:
                statuses.append("fenced")
        return statuses

    def add(self, item: EventItem, key: EventKey, leader: EventKey | None) -> ItemStatus:
        seq = self.known.get(key)
        if seq is not None:
            for trigger in () if seq in self.gone else item.firings:
                if (seq, trigger) not in self.fired:
                    self.repeats.add((seq, trigger))
            if seq not in self.gone:
                self.repeated.append((seq, item))
            return "duplicate"
        self.head = seq = self.head + 1
        leader_seq = NO_LEADER_SEQ if leader is None else self.known.get(leader, NO_LEADER_SEQ)
        self.known[key] = seq
        self.rows.append(_row(item, seq, key, leader, leader_seq, self.now))
        for trigger in item.firings:
            self.fired[seq, trigger] = None
        return "stored"


def prepare(job_id: int, batch: EventBatch) -> PreparedBatch:
    """Work out the keys of a batch, and which of its events cannot be stored at all."""
    keys = [event_key(item.source, item.id) if is_valid_event(item) else None for item in batch.events]
    leaders = [_leader(item) if key is not None else None for item, key in zip(batch.events, keys, strict=True)]
    return PreparedBatch(job_id, batch, keys, leaders)


def append(
    connection: Connection, batches: Sequence[PreparedBatch], now: int, delivered: Callable[[], None]
) -> list[BatchStored | Fenced | UnresolvedBatch]:
    """Append the batches in one transaction; a batch whose job has ended answers `Fenced`. `delivered`: a task run got an event."""
    allowed, waits = _allowed(connection, batches)
    deliveries = RunDeliveries(connection, waits, now)
    head = connection.execute(_head).scalar_one()
    log = _Append(head, now, *_lookup(connection, batches))
    letters = DeadLetterInserts(connection, [item for prepared in batches for item in prepared.batch.dead_letters], now)
    spills = Spills(connection, [item for prepared in batches for item in prepared.batch.spills], now)
    answers: list[BatchStored | Fenced | UnresolvedBatch] = []
    claims: list[ReceiptBatch] = []
    recorded: list[tuple[list[bool], list[ReceiptStatus]]] = []
    for prepared, mine in zip(batches, allowed, strict=True):
        if mine is None:
            answers.append(Fenced(f"Job {prepared.job_id} has ended.", hint="Register a new job.", status=409, problem="fenced"))
            continue
        delivery = deliveries.deliver(_deliverable(prepared, mine), prepared.delivered)
        if not delivery.finished:
            answers.append(UnresolvedBatch(delivery.fired))
            continue
        receipts = prepared.batch.receipts
        valid = [is_valid_receipt(receipt) for receipt in receipts]
        claims.append(ReceiptBatch(prepared.job_id, prepared.batch.epochs, list(compress(receipts, valid))))
        recorded.append((valid, []))
        answers.append(
            BatchStored.model_construct(
                events=log.add_batch(prepared, mine, delivery),
                dead_letters=letters.add(prepared.batch.dead_letters, mine),
                spills=spills.add(prepared.batch.spills, mine),
                receipts=recorded[-1][1],
            )
        )
    _write(connection, log, head)
    if deliveries:
        delivered()
    letters.write(connection)
    spills.write(connection)
    for (valid, told), known in zip(recorded, record(connection, claims, now), strict=True):
        answered = iter(known)
        told.extend(next(answered) if fits else "invalid" for fits in valid)
    return answers


def _deliverable(prepared: PreparedBatch, mine: set[int]) -> Iterator[EventItem]:
    """Yield the valid events of a batch whose triggers are all `mine`."""
    for item, key in zip(prepared.batch.events, prepared.keys, strict=True):
        if key is not None and mine.issuperset(item.firings):
            yield item


def _leader(item: EventItem) -> EventKey | None:
    return None if item.follows is None or item.follows == item.id else event_key(item.source, item.follows)


def _allowed(connection: Connection, batches: Sequence[PreparedBatch]) -> tuple[list[set[int] | None], dict[int, str]]:
    """Return, for each batch, the triggers whose lease it may use (None where its job has ended), and which task run waits for which."""
    running = {row.id for row in rows_among(connection, _running, "ids", {prepared.job_id for prepared in batches})}
    named = {trigger for prepared in batches for trigger in prepared.batch.epochs if trigger in INT64}
    # Of a trigger that changed or went and that no job has claimed since, what its last holder still has to say was true.
    rows = rows_among(connection, _leases, "ids", named)
    held = {(row.id, row.revoked_job_id if row.job_id is None else row.job_id, row.epoch) for row in rows}
    allowed = [
        {trigger for trigger, epoch in prepared.batch.epochs.items() if (trigger, prepared.job_id, epoch) in held}
        if prepared.job_id in running
        else None
        for prepared in batches
    ]
    return allowed, {row.id: row.run_id for row in rows if row.run_id is not None}


def _lookup(connection: Connection, batches: Sequence[PreparedBatch]) -> tuple[dict[bytes, int], set[int]]:
    """Return the `seq` of each event that a batch repeats or follows, and which of them the log has forgotten."""
    keys = list({key for prepared in batches for key in (*prepared.keys, *prepared.leaders) if key is not None})
    found: dict[bytes, int] = {}
    for start in range(0, len(keys), MOST_PARAMETERS):
        found.update((row[0], row[1]) for row in connection.execute(_known, {"keys": keys[start : start + MOST_PARAMETERS]}))
    gone: dict[bytes, int] = {}
    if last_pruned_seq(connection):
        others = [key for key in keys if key not in found]
        for start in range(0, len(others), MOST_PARAMETERS):
            some = others[start : start + MOST_PARAMETERS]
            gone.update((row[0], row[1]) for row in connection.execute(_pruned_event_keys, {"keys": some}))
    return found | gone, set(gone.values())


def _row(item: EventItem, seq: int, key: EventKey, leader: EventKey | None, leader_seq: int, now: int) -> tuple[object, ...]:
    return (
        seq,
        key,
        leader,
        leader_seq,
        item.source,
        item.id,
        item.type,
        item.subject,
        now if item.occurred is None else micros(item.occurred),
        now,
        item.follows,
        item.trace,
        item.payload,
        item.stream,
        item.lane,
        item.position,
    )


def _write(connection: Connection, log: _Append, head: int) -> None:
    repeats = [pair for pair in log.repeats if pair not in log.fired]
    seqs = list({seq for seq, _ in repeats if seq <= head})
    there: set[tuple[int, int]] = set()
    for start in range(0, len(seqs), MOST_PARAMETERS):
        there.update((row[0], row[1]) for row in connection.execute(_fired, {"seqs": seqs[start : start + MOST_PARAMETERS]}))
    later = [pair for pair in repeats if pair not in there]
    fired = [*log.fired, *later]
    _events(connection, log.rows)
    _firings(connection, fired)
    record_late_firings(connection, sorted(pair for pair in later if pair[0] <= head))
    if log.head != head:
        connection.execute(_move_head, {"head": log.head})
    added = {head + number: str(row[_PAYLOAD]) for number, row in enumerate(log.rows, 1)} if log.repeated else {}
    count_conflicts(connection, log.repeated, added)
    times = Counter(trigger for _, trigger in fired)
    if times:
        connection.execute(_count_fired, [{"trigger": trigger, "times": n, "now": log.now} for trigger, n in times.items()])
