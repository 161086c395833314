"""The ledger of custody: what became of every stretch of every lane, recorded before the upstream is advanced.

The law, under the writer's transaction:
- a lane's stretches meet: each begins where the one before ended. One that ends within what is recorded is a redelivery and changes
  nothing; one that leaves a gap is counted, and the gap is kept as a problem; one that overlaps cannot be split, so it is kept as a
  problem and not counted;
- adjacent stretches become one: a lane keeps where it began, how far it has come and how many it read; of each stream, each subscriber
set (the
  set of triggers that owed an answer) keeps how many it was owed, and each trigger that did more than filter its answers;
- what a receipt calls spilled is in the backlog, or was settled there: anything else is a problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from headrace.errors import Fenced
from headrace.store.control.jobs import require_running
from headrace.store.custody.backlog import chunks, count_settled, forget
from headrace.store.custody.lanes import HOUR, Lane, lanes_of
from headrace.store.custody.spills import place_key
from headrace.store.custody.subscriber_sets import (
    ANSWERS,
    NONE,
    Place,
    add_reads,
    define,
    digest_bytes,
    known_subscriber_sets,
    streams_of,
    whole_subscriber_sets,
)
from headrace.store.db.database import Database
from headrace.store.dialects.statements import Upsert, ValuesQuery, in_list, rows_among
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import backlog, custody, lanes, receipt_problems, recorded_streams
from headrace.wire.custody.events import ReceiptStatus
from headrace.wire.custody.receipts import LaneMark, LaneMarks, Receipt, SubscriberSetDefined, SubscriberSetDefinition

BEFORE_ALL = b"p"  # sorts before the key of every position

_holders = select(triggers.c.id, triggers.c.job_id, triggers.c.epoch).where(in_list(triggers.c.id, "ids"))
_project = select(jobs.c.project).where(jobs.c.id == bindparam("job")).scalar_subquery()
_held_by = select(triggers.c.id).where(triggers.c.stream == bindparam("stream"), triggers.c.project == _project).limit(1)
_others = (_held_by.where(triggers.c.job_id < bindparam("job")), _held_by.where(triggers.c.job_id > bindparam("job")))
_any_kept = select(backlog.c.number).limit(1)
_kept = ValuesQuery(
    {"stretch": "bigint", "lane_id": "bigint", "low": "bytea", "high": "bytea"},
    "SELECT given.stretch, b.number, b.trigger_id, b.answer FROM given CROSS JOIN backlog b"
    " WHERE b.lane_id = given.lane_id AND b.key > given.low AND b.key <= given.high AND NOT b.counted ORDER BY b.number",
)
_count = update(backlog).where(in_list(backlog.c.number, "numbers")).values(counted=True)
_move = (
    update(lanes)
    .where(lanes.c.id == bindparam("lane_id"))
    .values(after=bindparam("a"), last=bindparam("l"), read=bindparam("r"), moved=bindparam("m"))
)
_marks = select(lanes.c.lane, lanes.c.last).where(
    lanes.c.stream == bindparam("of"), lanes.c.last.is_not(None), in_list(lanes.c.lane, "names")
)
_add_receipts = (
    update(recorded_streams)
    .where(recorded_streams.c.id == bindparam("of"))
    .values(receipts=recorded_streams.c.receipts + bindparam("more"))
)
_add_answers = Upsert(custody, ("stream_id", "trigger_id"), lambda new: {name: custody.c[name] + new[name] for name in ANSWERS})

Found = Row[*tuple[Any, ...]]


class LaneRange(NamedTuple):
    """A stretch of a lane that a receipt told of, and how many each trigger is said to have spilled of it."""

    lane: Lane
    recorded: int | None
    last: int
    spilled: Mapping[int, int]


class Custody:
    """The ledger of custody of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def define(self, job_id: int, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        """Define a subscriber set, whose digest receipts may then name; doubled changes nothing.

        Raises:
            Fenced: The job has ended, or another holds a trigger that joins.
        """
        return self._database.write(lambda connection: _define(connection, job_id, subscriber_set))

    def marks(self, job_id: int, stream: str, names: Sequence[str]) -> LaneMarks:
        """Return the last recorded position of those of these lanes of the stream that have one."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            found = connection.execute(_marks, {"of": stream, "names": list(names)}).all()
            return LaneMarks.model_construct(marks=[LaneMark.model_construct(lane=row.lane, last=row.last) for row in found])


class ReceiptBatch(NamedTuple):
    """The receipts of a job that runs, and the epochs under which it says that it holds the triggers."""

    job_id: int
    epochs: Mapping[int, int]
    receipts: Sequence[Receipt]


def record(connection: Connection, claims: Sequence[ReceiptBatch], now: int) -> list[list[ReceiptStatus]]:
    """Record receipts within a work of the writer; return one status for each, `fenced` for those of an old owner."""
    given = [receipt for claim in claims for receipt in claim.receipts]
    if not given:
        return [[] for _ in claims]
    lost = _lost(connection, claims)
    books = _ReceiptWriter(connection, given, now)
    statuses: list[list[ReceiptStatus]] = []
    for claim, gone in zip(claims, lost, strict=True):
        statuses.append(["fenced" if gone.has(receipt) else books.add(receipt) for receipt in claim.receipts])
    books.write()
    return statuses


def _define(connection: Connection, job_id: int, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
    require_running(connection, job_id)
    for row in rows_among(connection, _holders, "ids", subscriber_set.joined):
        if row.job_id not in {None, job_id}:
            raise Fenced(f"Job {job_id} does not hold trigger {row.id}.", status=409, problem="fenced")
    return SubscriberSetDefined(defined=define(connection, subscriber_set))


class _Lost(NamedTuple):
    """What tells, of one claim, which of its receipts are lost.

    Those with a trigger, or by a subscriber set of a stream, that another job has.
    """

    triggers: set[int]
    streams: set[str]

    def has(self, receipt: Receipt) -> bool:
        return not self.triggers.isdisjoint(_named(receipt)) or (receipt.subscriber_set is not None and receipt.stream in self.streams)


def _lost(connection: Connection, claims: Sequence[ReceiptBatch]) -> list[_Lost]:
    """Return, for each claim, the triggers that another job holds, or has held since, and the streams that another job has.

    A trigger that no job holds now, because it changed or went, is no obstacle: its answers were true. All triggers of a stream go
    together, so a receipt need not name all members of its subscriber set: another job of the project has the stream if it holds any of
    them.
    """
    named = {trigger for claim in claims for receipt in claim.receipts for trigger in _named(receipt)}
    rows = rows_among(connection, _holders, "ids", named)
    found: list[_Lost] = []
    for claim in claims:
        others = [row for row in rows if row.job_id != claim.job_id]
        gone = {row.id for row in others if row.job_id is not None or row.epoch > claim.epochs.get(row.id, row.epoch)}
        by_subscriber_set = {receipt.stream for receipt in claim.receipts if receipt.subscriber_set is not None}
        found.append(_Lost(gone, {stream for stream in by_subscriber_set if _is_taken(connection, claim.job_id, stream)}))
    return found


def _named(receipt: Receipt) -> Iterable[int]:
    return chain(receipt.owed, (answer.trigger_id for answer in receipt.answers))


def _is_taken(connection: Connection, job_id: int, stream: str) -> bool:
    """Whether another job of the same project holds a trigger of the stream."""
    return any(connection.execute(query, {"job": job_id, "stream": stream}).first() is not None for query in _others)


@dataclass(slots=True)
class _ReceiptWriter:
    """What one transaction adds."""

    connection: Connection
    receipts: Sequence[Receipt]
    now: int
    moved: dict[int, Lane] = field(default_factory=dict)
    reads: Counter[int] = field(default_factory=Counter)
    answers: dict[tuple[int, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    problems: list[dict[str, object]] = field(default_factory=list)
    settled: list[tuple[int, int, str]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    stored: Counter[int] = field(default_factory=Counter)
    forgotten: list[int] = field(default_factory=list)
    stretches: list[LaneRange] = field(default_factory=list)
    _lanes: dict[tuple[str, str], Lane] = field(init=False)
    _streams: dict[str, int] = field(init=False)
    _subscriber_sets: dict[Place, int] = field(init=False)

    def __post_init__(self) -> None:
        connection, receipts = self.connection, self.receipts
        self._lanes = lanes_of(connection, ((receipt.stream, receipt.lane) for receipt in receipts), self.now)
        self._streams = streams_of(connection, (receipt.stream for receipt in receipts))
        self._subscriber_sets = whole_subscriber_sets(
            connection, {self._place(receipt): receipt.owed for receipt in receipts if receipt.subscriber_set is None}
        )
        self._subscriber_sets |= known_subscriber_sets(
            connection, (self._place(receipt) for receipt in receipts if receipt.subscriber_set is not None)
        )

    def add(self, receipt: Receipt) -> ReceiptStatus:
        lane = self._lanes[receipt.stream, receipt.lane]
        recorded = lane.last
        if recorded is not None and receipt.last <= recorded:
            return "duplicate"
        subscriber_set = self._subscriber_sets.get(self._place(receipt))
        if subscriber_set is None:
            return "unknown_subscriber_set"
        self.moved[lane.id] = lane
        self.stored[self._streams[receipt.stream]] += 1
        lane.last = receipt.last
        if self.now - lane.moved > HOUR:
            lane.moved = self.now
        begins = receipt.after
        if recorded is None:
            lane.after = begins
        elif begins is None or begins < recorded:
            since = "the lane's beginning" if begins is None else str(begins)
            self._problem(lane, recorded, f"the range after {since} up to {receipt.last} overlaps the receipts up to {recorded}")
            self.stretches.append(LaneRange(lane, recorded, receipt.last, {}))
            return "stored"
        elif begins > recorded:
            self._problem(lane, recorded, f"nothing is recorded after {recorded} up to {begins}")
        lane.read += receipt.read
        self.reads[subscriber_set] += receipt.read
        owed = None if receipt.subscriber_set is not None else set(receipt.owed)
        for answer in receipt.answers:
            given = sum(getattr(answer, name) for name in ANSWERS)
            entitled = receipt.read if owed is None or answer.trigger_id in owed else 0
            if given > entitled or not entitled:
                what = f"trigger {answer.trigger_id} answered {given} raw events up to {receipt.last}, and owed {entitled}"
                self._problem(lane, recorded, what)
            self.answers[self._streams[receipt.stream], answer.trigger_id].update({name: getattr(answer, name) for name in ANSWERS})
        spilled = {answer.trigger_id: answer.spilled for answer in receipt.answers if answer.spilled}
        self.stretches.append(LaneRange(lane, recorded, receipt.last, spilled))
        return "stored"

    def write(self) -> None:
        connection = self.connection
        self._reconcile()
        if self.moved:
            connection.execute(
                _move, [{"lane_id": one.id, "a": one.after, "l": one.last, "r": one.read, "m": one.moved} for one in self.moved.values()]
            )
        if self.stored:
            connection.execute(_add_receipts, [{"of": stream, "more": n} for stream, n in self.stored.items()])
        add_reads(connection, self.reads)
        kept = self.answers.items()
        _add_answers(connection, [{**NONE, **counts, "stream_id": stream, "trigger_id": trigger} for (stream, trigger), counts in kept])
        count_settled(connection, self.settled)
        for part in chunks(self.counted):
            connection.execute(_count, {"numbers": part})
        forget(connection, self.forgotten)
        if self.problems:
            connection.execute(insert(receipt_problems), self.problems)

    def _reconcile(self) -> None:
        """Find in the backlog what the receipts call spilled: what waits is counted from now on, what was settled early is counted now.

        What is there beyond that was answered again after a redelivery, and that answer is the one on the books.
        """
        found: dict[int, dict[int, list[Found]]] = defaultdict(lambda: defaultdict(list))
        if self.stretches and self.connection.execute(_any_kept).first() is not None:
            for row in _kept(self.connection, [_bounds(number, stretch) for number, stretch in enumerate(self.stretches)]):
                found[row.stretch][row.trigger_id].append(row)
        for number, stretch in enumerate(self.stretches):
            for trigger, rows in found[number].items():
                self._count(stretch, trigger, rows)
            for trigger, wanted in stretch.spilled.items():
                missing = wanted - len(found[number].get(trigger, ()))
                if missing > 0:
                    what = f"{missing} of {wanted} raw events that trigger {trigger} spilled up to {stretch.last} are not in its backlog"
                    self._problem(stretch.lane, stretch.recorded, what)

    def _count(self, stretch: LaneRange, trigger: int, rows: list[Found]) -> None:
        rows.sort(key=lambda row: row.answer is not None)
        spilled = rows[: stretch.spilled.get(trigger, 0)]
        self.counted += [row.number for row in spilled if row.answer is None]
        self.settled += [(stretch.lane.id, trigger, row.answer) for row in spilled if row.answer is not None]
        self.forgotten += [row.number for row in rows if row.answer is not None]

    def _place(self, receipt: Receipt) -> Place:
        digest = digest_bytes(receipt.owed) if receipt.subscriber_set is None else bytes.fromhex(receipt.subscriber_set)
        return self._streams[receipt.stream], digest

    def _problem(self, lane: Lane, recorded: int | None, problem: str) -> None:
        self.problems.append({"lane_id": lane.id, "at": self.now, "recorded": recorded, "problem": problem})


def _bounds(number: int, stretch: LaneRange) -> tuple[int, int, bytes, bytes]:
    low = BEFORE_ALL if stretch.recorded is None else place_key(stretch.recorded)
    return number, stretch.lane.id, low, place_key(stretch.last)
