"""Record receipts: the answers to every range of every lane, stored before the upstream advances.

Invariants, under the writer's transaction:
- The ranges of a lane are adjacent: each begins where the previous one ended. A range within the recorded one is a
  redelivery and changes nothing. A range after a gap is counted, and the gap is stored as a problem, unless a stream
  with another number of shards has recorded it. A range that overlaps cannot be split, so it is stored as a problem
  and not counted.
- Adjacent ranges are merged. A lane stores its first and last position and how many raw events it read. Each
  subscriber set of a stream stores how many raw events it was owed. `trigger_answers` has the counts of each trigger
  that did more than filter.
- A raw event that a receipt counts as spilled is in the backlog, or was settled there. Otherwise it is a problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from headrace.errors import Fenced
from headrace.store.control.jobs import require_running
from headrace.store.custody.backlog import chunks, count_settled, delete_rows
from headrace.store.custody.lanes import HOUR, Lane, find_shard_streams, get_or_create_lanes, recorded_by_other_shards
from headrace.store.custody.spills import position_key
from headrace.store.custody.subscriber_sets import (
    ANSWERS,
    NONE,
    SubscriberSetKey,
    add_reads,
    define,
    digest_bytes,
    known_subscriber_sets,
    streams_of,
    whole_subscriber_sets,
)
from headrace.store.db.database import Database
from headrace.store.dialects.statements import ResultRow, Upsert, ValuesQuery, in_list, rows_among
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import backlog, lanes, receipt_problems, recorded_streams, trigger_answers
from headrace.wire.custody.events import ReceiptStatus
from headrace.wire.custody.receipts import LaneOffset, LaneOffsets, Receipt, SubscriberSetDefined, SubscriberSetDefinition

BEFORE_ALL = b"p"  # sorts before the key of every position

_holders = select(triggers.c.id, triggers.c.job_id, triggers.c.epoch).where(in_list(triggers.c.id, "ids"))
_project = select(jobs.c.project).where(jobs.c.id == bindparam("job")).scalar_subquery()
_held_by = select(triggers.c.id).where(triggers.c.stream == bindparam("stream"), triggers.c.project == _project).limit(1)
_others = (_held_by.where(triggers.c.job_id < bindparam("job")), _held_by.where(triggers.c.job_id > bindparam("job")))
_any_row = select(backlog.c.number).limit(1)
_rows_in_ranges = ValuesQuery(
    {"range_number": "bigint", "lane_id": "bigint", "low": "bytea", "high": "bytea"},
    "SELECT given.range_number, b.number, b.trigger_id, b.answer FROM given CROSS JOIN backlog b"
    " WHERE b.lane_id = given.lane_id AND b.key > given.low AND b.key <= given.high AND NOT b.accounted ORDER BY b.number",
)
_count = update(backlog).where(in_list(backlog.c.number, "numbers")).values(accounted=True)
_move = (
    update(lanes)
    .where(lanes.c.id == bindparam("lane_id"))
    .values(after=bindparam("a"), last=bindparam("l"), read=bindparam("r"), moved=bindparam("m"))
)
_offsets = select(lanes.c.lane, lanes.c.last).where(
    lanes.c.stream == bindparam("of"), lanes.c.last.is_not(None), in_list(lanes.c.lane, "names")
)
_add_receipts = (
    update(recorded_streams)
    .where(recorded_streams.c.id == bindparam("of"))
    .values(receipts=recorded_streams.c.receipts + bindparam("more"))
)
_add_answers = Upsert(
    trigger_answers, ("stream_id", "trigger_id"), lambda new: {name: trigger_answers.c[name] + new[name] for name in ANSWERS}
)


class LaneRange(NamedTuple):
    """The range of a lane in one receipt, and how many of its raw events each trigger spilled."""

    lane: Lane
    recorded: int | None
    last: int
    spilled: Mapping[int, int]


class Receipts:
    """Define subscriber sets in one database, and read its recorded positions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def define(self, job_id: int, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        """Define a subscriber set whose digest receipts can then name. A repeated call changes nothing.

        Raises:
            Fenced: The job has ended, or another job holds a trigger that joins the set.
        """
        return self._database.write(lambda connection: _define(connection, job_id, subscriber_set))

    def recorded_offsets(self, job_id: int, stream: str, names: Sequence[str]) -> LaneOffsets:
        """Return the last recorded positions of these lanes. Lanes without one are omitted."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            rows = connection.execute(_offsets, {"of": stream, "names": list(names)}).all()
            return LaneOffsets.model_construct(offsets=[LaneOffset.model_construct(lane=row.lane, last=row.last) for row in rows])


class ReceiptBatch(NamedTuple):
    """The receipts of a running job, and the epochs under which it claims to hold the triggers."""

    job_id: int
    epochs: Mapping[int, int]
    receipts: Sequence[Receipt]


def record(connection: Connection, claims: Sequence[ReceiptBatch], now: int) -> list[list[ReceiptStatus]]:
    """Record receipts within a work of the writer. Return one status per receipt: `fenced` if the owner is no longer current."""
    receipts = [receipt for claim in claims for receipt in claim.receipts]
    if not receipts:
        return [[] for _ in claims]
    lost = _lost(connection, claims)
    writer = _ReceiptWriter(connection, receipts, now)
    statuses: list[list[ReceiptStatus]] = []
    for claim, taken in zip(claims, lost, strict=True):
        statuses.append(["fenced" if taken.has(receipt) else writer.add(receipt) for receipt in claim.receipts])
    writer.write()
    return statuses


def _define(connection: Connection, job_id: int, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
    require_running(connection, job_id)
    for row in rows_among(connection, _holders, "ids", subscriber_set.joined):
        if row.job_id not in {None, job_id}:
            raise Fenced(f"Job {job_id} does not hold trigger {row.id}.", status=409, problem="fenced")
    return SubscriberSetDefined(defined=define(connection, subscriber_set))


class _Lost(NamedTuple):
    """The triggers and streams that one job no longer holds.

    A receipt is fenced if it names one of these triggers, or is of one of these streams.
    """

    triggers: set[int]
    streams: set[str]

    def has(self, receipt: Receipt) -> bool:
        return receipt.stream in self.streams or not self.triggers.isdisjoint(_named(receipt))


def _lost(connection: Connection, claims: Sequence[ReceiptBatch]) -> list[_Lost]:
    """Return, for each batch, the triggers and streams that another job holds or acquired since.

    A trigger that is changed or removed, and therefore without a job, does not fence a receipt: its answers were
    valid. All triggers of a stream are leased together, so a receipt need not name all members of its subscriber set.
    Another job of the project holds the stream if it holds any of its triggers. The triggers that a receipt names may
    have changed to another stream: this job still holds them, but not the stream.
    """
    named = {trigger for claim in claims for receipt in claim.receipts for trigger in _named(receipt)}
    rows = rows_among(connection, _holders, "ids", named)
    losses: list[_Lost] = []
    for claim in claims:
        others = [row for row in rows if row.job_id != claim.job_id]
        lost_triggers = {row.id for row in others if row.job_id is not None or row.epoch > claim.epochs.get(row.id, row.epoch)}
        streams = {receipt.stream for receipt in claim.receipts}
        losses.append(_Lost(lost_triggers, {stream for stream in streams if _is_taken(connection, claim.job_id, stream)}))
    return losses


def _named(receipt: Receipt) -> Iterable[int]:
    return chain(receipt.owed, (answer.trigger_id for answer in receipt.answers))


def _is_taken(connection: Connection, job_id: int, stream: str) -> bool:
    """Return whether another job of the same project holds a trigger of the stream."""
    return any(connection.execute(query, {"job": job_id, "stream": stream}).first() is not None for query in _others)


@dataclass(slots=True)
class _ReceiptWriter:
    """Collect and write the changes of one transaction."""

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
    answered: list[int] = field(default_factory=list)
    ranges: list[LaneRange] = field(default_factory=list)
    _lanes: dict[tuple[str, str], Lane] = field(init=False)
    _streams: dict[str, int] = field(init=False)
    _subscriber_sets: dict[SubscriberSetKey, int] = field(init=False)

    def __post_init__(self) -> None:
        connection, receipts = self.connection, self.receipts
        self._lanes = get_or_create_lanes(connection, ((receipt.stream, receipt.lane) for receipt in receipts), self.now)
        self._streams = streams_of(connection, (receipt.stream for receipt in receipts))
        self._subscriber_sets = whole_subscriber_sets(
            connection, {self._set_key(receipt): receipt.owed for receipt in receipts if receipt.subscriber_set is None}
        )
        self._subscriber_sets |= known_subscriber_sets(
            connection, (self._set_key(receipt) for receipt in receipts if receipt.subscriber_set is not None)
        )

    def add(self, receipt: Receipt) -> ReceiptStatus:
        lane = self._lanes[receipt.stream, receipt.lane]
        recorded = lane.last
        if recorded is not None and receipt.last <= recorded:
            return "duplicate"
        subscriber_set = self._subscriber_sets.get(self._set_key(receipt))
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
            self.ranges.append(LaneRange(lane, recorded, receipt.last, {}))
            return "stored"
        elif begins > recorded and not self._is_recorded(receipt.stream, receipt.lane, begins):
            self._problem(lane, recorded, f"nothing is recorded after {recorded} up to {begins}")
        lane.read += receipt.read
        self.reads[subscriber_set] += receipt.read
        owed = None if receipt.subscriber_set is not None else set(receipt.owed)
        for answer in receipt.answers:
            answered = sum(getattr(answer, name) for name in ANSWERS)
            entitled = receipt.read if owed is None or answer.trigger_id in owed else 0
            if answered > entitled or not entitled:
                what = f"trigger {answer.trigger_id} answered {answered} raw events up to {receipt.last}, and owed {entitled}"
                self._problem(lane, recorded, what)
            self.answers[self._streams[receipt.stream], answer.trigger_id].update({name: getattr(answer, name) for name in ANSWERS})
        spilled = {answer.trigger_id: answer.spilled for answer in receipt.answers if answer.spilled}
        self.ranges.append(LaneRange(lane, recorded, receipt.last, spilled))
        return "stored"

    def _is_recorded(self, stream: str, lane: str, position: int) -> bool:
        """Return whether streams with another number of shards have recorded the lane up to a position."""
        last = recorded_by_other_shards(self.connection, stream, [lane], find_shard_streams(self.connection)).get(lane)
        return last is not None and last >= position

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
        answers = self.answers.items()
        _add_answers(connection, [{**NONE, **counts, "stream_id": stream, "trigger_id": trigger} for (stream, trigger), counts in answers])
        count_settled(connection, self.settled)
        for part in chunks(self.counted):
            connection.execute(_count, {"numbers": part})
        delete_rows(connection, self.answered)
        if self.problems:
            connection.execute(insert(receipt_problems), self.problems)

    def _reconcile(self) -> None:
        """Match the spills that receipts report with the rows of the backlog.

        Waiting rows are counted from now on, and rows that were settled before their receipt are counted now. Any
        further row was answered again after a redelivery. Its answer is the one that the writer has.
        """
        backlog_rows: dict[int, dict[int, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
        if self.ranges and self.connection.execute(_any_row).first() is not None:
            for row in _rows_in_ranges(self.connection, [_bounds(number, lane_range) for number, lane_range in enumerate(self.ranges)]):
                backlog_rows[row.range_number][row.trigger_id].append(row)
        for number, lane_range in enumerate(self.ranges):
            for trigger, rows in backlog_rows[number].items():
                self._count(lane_range, trigger, rows)
            for trigger, reported in lane_range.spilled.items():
                missing = reported - len(backlog_rows[number].get(trigger, ()))
                if missing > 0:
                    what = (
                        f"{missing} of {reported} raw events that trigger {trigger} spilled up to {lane_range.last} are not in its backlog"
                    )
                    self._problem(lane_range.lane, lane_range.recorded, what)

    def _count(self, lane_range: LaneRange, trigger: int, rows: list[ResultRow]) -> None:
        rows.sort(key=lambda row: row.answer is not None)
        spilled = rows[: lane_range.spilled.get(trigger, 0)]
        self.counted += [row.number for row in spilled if row.answer is None]
        self.settled += [(lane_range.lane.id, trigger, row.answer) for row in spilled if row.answer is not None]
        self.answered += [row.number for row in rows if row.answer is not None]

    def _set_key(self, receipt: Receipt) -> SubscriberSetKey:
        digest = digest_bytes(receipt.owed) if receipt.subscriber_set is None else bytes.fromhex(receipt.subscriber_set)
        return self._streams[receipt.stream], digest

    def _problem(self, lane: Lane, recorded: int | None, problem: str) -> None:
        self.problems.append({"lane_id": lane.id, "at": self.now, "recorded": recorded, "problem": problem})


def _bounds(number: int, lane_range: LaneRange) -> tuple[int, int, bytes, bytes]:
    low = BEFORE_ALL if lane_range.recorded is None else position_key(lane_range.recorded)
    return number, lane_range.lane.id, low, position_key(lane_range.last)
