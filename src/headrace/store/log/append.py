"""Append batches of events, dead letters, spills and receipts to the log: each event gets the next `seq`, each item a status.

The law, under the writer's transaction:
- An item is stored only if the sender holds all of its triggers at the given epochs. A trigger that was changed or removed counts as held
  by its last holder until another job acquires it. All other items are fenced and change nothing.
- The log has one event for each (source, id). A repeat adds its missing firings, as redeliveries, and nothing else. A repeat of a pruned
  event adds nothing. A repeat with another payload is counted for its triggers.
- `leader_seq` is the leader's `seq` if the log had the leader first, and -1 otherwise.
- The triggers' counters change in the same commit.
- Receipts are recorded last, because they account for the stored items.
- An event of a trigger that a task run waits for goes to the run, and not into the log.
- A batch that resumes more task runs than one transaction may is an `UnresolvedBatch` until the last of them has its event.
Batches that wait together are appended together, in the order of their arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter

from sqlalchemy import Connection, bindparam, case, select, update

from headrace.core.identity import EventKey, event_key
from headrace.core.values.moments import micros
from headrace.errors import Fenced
from headrace.store.custody.receipts import ReceiptBatch, record
from headrace.store.custody.spills import Spills
from headrace.store.db.meta import HEAD, last_pruned_seq
from headrace.store.dead_letters.dead_letters import DeadLetterInserts
from headrace.store.dialects.statements import BulkInsert, DriverStatement, in_list, rows_among
from headrace.store.dialects.validity import INT64, is_valid_event, is_valid_receipt
from headrace.store.log.conflicts import count_conflicts
from headrace.store.redeliveries import record_late_firings
from headrace.store.tables.base import meta
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.log import events, firings
from headrace.store.task_runs.deliveries import Delivery, RunDeliveries
from headrace.wire.custody.events import BatchStored, EventBatch, EventItem, ItemStatus, ReceiptStatus
from headrace.wire.event_schema import EVENT_COLUMNS
from headrace.wire.log import NO_LEADER_SEQ

MAX_PARAMETERS = 10_000
"""Values of one query."""

_SENT = tuple(column.name for column in EVENT_COLUMNS if column.sent)
_ROW = ("seq", "key", "leader_key", "leader_seq", "occurred", "received", *_SENT)
_PAYLOAD = _ROW.index("payload")
_sent_values = attrgetter(*_SENT)
_events = BulkInsert(events, _ROW)
_firings = BulkInsert(firings)

_running = select(jobs.c.id).where(jobs.c.state == "running", in_list(jobs.c.id, "ids"))
_leases = select(triggers.c.id, triggers.c.job_id, triggers.c.revoked_job_id, triggers.c.epoch, triggers.c.run_id).where(
    in_list(triggers.c.id, "ids")
)
_known = DriverStatement("SELECT key, seq FROM events WHERE key IN :keys", keys="bytea")
_pruned_event_keys = DriverStatement("SELECT key, seq FROM pruned_event_keys WHERE key IN :keys", keys="bytea")
_fired = select(firings.c.seq, firings.c.trigger_id).where(in_list(firings.c.seq, "seqs"))
_head = select(meta.c.value).where(meta.c.name == HEAD)
_move_head = update(meta).where(meta.c.name == HEAD).values(value=bindparam("head"))
# A trigger that fires has not failed. One that no job holds, or that is parked, keeps its state.
_state = case((triggers.c.job_id.is_not(None) & (triggers.c.state != "parked"), "running"), else_=triggers.c.state)
_count_fired = (
    update(triggers)
    .where(triggers.c.id == bindparam("trigger"))
    .values(fired=triggers.c.fired + bindparam("times"), last_fired=bindparam("now"), state=_state)
)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch with everything that needs no transaction. The key of an invalid event is missing (None)."""

    job_id: int
    batch: EventBatch
    keys: list[EventKey | None]
    leaders: list[EventKey | None]
    delivered: Set[int] = frozenset()
    """Triggers of task runs that fired in earlier transactions of this batch."""


@dataclass(frozen=True, slots=True)
class UnresolvedBatch:
    """The result of a batch of which only events for some task runs are stored so far. Append it again with `delivered`."""

    delivered: Set[int]


@dataclass(slots=True)
class _Append:
    """The rows that one transaction adds."""

    head: int
    now: int
    known: dict[bytes, int]
    pruned: set[int]
    rows: list[tuple[object, ...]] = field(default_factory=list)
    repeats: set[tuple[int, int]] = field(default_factory=set)
    repeated: list[tuple[int, EventItem]] = field(default_factory=list)
    fired: dict[tuple[int, int], None] = field(default_factory=dict)

    def add_batch(self, prepared: PreparedBatch, allowed_triggers: set[int], delivery: Delivery) -> list[ItemStatus]:
        """Add the events of a batch that have only `allowed_triggers`, except those for task runs. Return a status for each event."""
        statuses: list[ItemStatus] = []
        for item, key, leader in zip(prepared.batch.events, prepared.keys, prepared.leaders, strict=True):
            if key is None:
                statuses.append("invalid")
            elif allowed_triggers.issuperset(item.firings):
                statuses.append(delivery.status(item) or self.add(item, key, leader))
            else:
                statuses.append("fenced")
        return statuses

    def add(self, item: EventItem, key: EventKey, leader: EventKey | None) -> ItemStatus:
        seq = self.known.get(key)
        if seq is not None:
            for trigger in () if seq in self.pruned else item.firings:
                if (seq, trigger) not in self.fired:
                    self.repeats.add((seq, trigger))
            if seq not in self.pruned:
                self.repeated.append((seq, item))
            return "duplicate"
        self.head = seq = self.head + 1
        leader_seq = NO_LEADER_SEQ if leader is None else self.known.get(leader, NO_LEADER_SEQ)
        self.known[key] = seq
        occurred = self.now if item.occurred is None else micros(item.occurred)
        self.rows.append((seq, key, leader, leader_seq, occurred, self.now, *_sent_values(item)))  # as in _ROW
        for trigger in item.firings:
            self.fired[seq, trigger] = None
        return "stored"


def prepare(job_id: int, batch: EventBatch) -> PreparedBatch:
    """Compute the keys of a batch, and find its invalid events."""
    keys = [event_key(item.source, item.id) if is_valid_event(item) else None for item in batch.events]
    leaders = [_leader(item) if key is not None else None for item, key in zip(batch.events, keys, strict=True)]
    return PreparedBatch(job_id, batch, keys, leaders)


def append(
    connection: Connection, batches: Sequence[PreparedBatch], now: int, delivered: Callable[[], None]
) -> list[BatchStored | Fenced | UnresolvedBatch]:
    """Append the batches in one transaction. The result of a batch is `Fenced` if its job has ended.

    `delivered` is called if a task run got an event.
    """
    allowed, waits = _allowed(connection, batches)
    deliveries = RunDeliveries(connection, waits, now)
    head = connection.execute(_head).scalar_one()
    log = _Append(head, now, *_lookup(connection, batches))
    dead_letters = DeadLetterInserts(connection, [item for prepared in batches for item in prepared.batch.dead_letters], now)
    spills = Spills(connection, [item for prepared in batches for item in prepared.batch.spills], now)
    answers: list[BatchStored | Fenced | UnresolvedBatch] = []
    claims: list[ReceiptBatch] = []
    recorded: list[tuple[list[bool], list[ReceiptStatus]]] = []
    for prepared, allowed_triggers in zip(batches, allowed, strict=True):
        if allowed_triggers is None:
            answers.append(Fenced(f"Job {prepared.job_id} has ended.", hint="Register a new job.", status=409, problem="fenced"))
            continue
        delivery = deliveries.deliver(_deliverable(prepared, allowed_triggers), prepared.delivered)
        if not delivery.finished:
            answers.append(UnresolvedBatch(delivery.fired))
            continue
        receipts = prepared.batch.receipts
        valid = [is_valid_receipt(receipt) for receipt in receipts]
        claims.append(ReceiptBatch(prepared.job_id, prepared.batch.epochs, list(compress(receipts, valid))))
        recorded.append((valid, []))
        answers.append(
            BatchStored.model_construct(
                events=log.add_batch(prepared, allowed_triggers, delivery),
                dead_letters=dead_letters.add(prepared.batch.dead_letters, allowed_triggers),
                spills=spills.add(prepared.batch.spills, allowed_triggers),
                receipts=recorded[-1][1],
            )
        )
    _write(connection, log, head)
    if deliveries:
        delivered()
    dead_letters.write(connection)
    spills.write(connection)
    for (valid, statuses), known in zip(recorded, record(connection, claims, now), strict=True):
        answered = iter(known)
        statuses.extend(next(answered) if fits else "invalid" for fits in valid)
    return answers


def _deliverable(prepared: PreparedBatch, allowed_triggers: set[int]) -> Iterator[EventItem]:
    """Yield the valid events of a batch that have only `allowed_triggers`."""
    for item, key in zip(prepared.batch.events, prepared.keys, strict=True):
        if key is not None and allowed_triggers.issuperset(item.firings):
            yield item


def _leader(item: EventItem) -> EventKey | None:
    return None if item.follows is None or item.follows == item.id else event_key(item.source, item.follows)


def _allowed(connection: Connection, batches: Sequence[PreparedBatch]) -> tuple[list[set[int] | None], dict[int, str]]:
    """Return, for each batch, the triggers that it may use (None if its job has ended); and the task runs that wait, by trigger."""
    running = {row.id for row in rows_among(connection, _running, "ids", {prepared.job_id for prepared in batches})}
    named = {trigger for prepared in batches for trigger in prepared.batch.epochs if trigger in INT64}
    # The last holder of a changed or removed trigger may still store its results until another job acquires the trigger.
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
    """Return the `seq` of each event that a batch repeats or follows, and the seqs of the pruned ones."""
    keys = list({key for prepared in batches for key in (*prepared.keys, *prepared.leaders) if key is not None})
    seqs_by_key: dict[bytes, int] = {}
    for start in range(0, len(keys), MAX_PARAMETERS):
        seqs_by_key.update((row[0], row[1]) for row in _known(connection, keys=keys[start : start + MAX_PARAMETERS]).all())
    pruned: dict[bytes, int] = {}
    if last_pruned_seq(connection):
        others = [key for key in keys if key not in seqs_by_key]
        for start in range(0, len(others), MAX_PARAMETERS):
            page = others[start : start + MAX_PARAMETERS]
            pruned.update((row[0], row[1]) for row in _pruned_event_keys(connection, keys=page).all())
    return seqs_by_key | pruned, set(pruned.values())


def _write(connection: Connection, log: _Append, head: int) -> None:
    repeats = [pair for pair in log.repeats if pair not in log.fired]
    seqs = list({seq for seq, _ in repeats if seq <= head})
    there: set[tuple[int, int]] = set()
    for start in range(0, len(seqs), MAX_PARAMETERS):
        there.update((row[0], row[1]) for row in connection.execute(_fired, {"seqs": seqs[start : start + MAX_PARAMETERS]}))
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
