"""The ledger of custody: what became of every stretch of every lane, recorded before the upstream is advanced.

The law, under the writer's transaction:
- a lane's stretches meet: each begins where the one before ended. One that ends within what is recorded is a redelivery and changes
  nothing; one that leaves a gap is counted, and the gap is kept as a problem; one that overlaps cannot be split, so it is kept as a
  problem and not counted;
- adjacent stretches become one: a lane keeps where it began, how far it has come and how many it read; each crew (the set of triggers
  that owed an answer) how many it was owed; each trigger that did more than filter its answers;
- what a receipt calls spilled is in the backlog, or was settled there: anything else is a problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from headrace.errors import Fenced
from headrace.store.backlog import chunks, count_settled, forget
from headrace.store.database import Database
from headrace.store.dialects import Given, Upsert, among, rows_among
from headrace.store.jobs import require_running
from headrace.store.lanes import Lane, lanes_of
from headrace.store.spilling import place_key
from headrace.store.tables import backlog, crew_reads, crews, custody, custody_problems, lanes, triggers
from headrace.wire.backlog import Answer
from headrace.wire.custody import LaneMark, LaneMarks, Receipt, Receipts
from headrace.wire.events import ItemStatus

ANSWERS = ("fired", "rejected", "spilled", "dead_lettered", "failed")
SETTLED = ("settled_fired", "settled_filtered", "settled_rejected", "settled_dead_lettered")
NONE = dict.fromkeys((*ANSWERS, *SETTLED, "redriven"), 0)
BEFORE_ALL = b"p"  # sorts before the key of every position

_holders = select(triggers.c.id, triggers.c.job_id, triggers.c.epoch).where(among(triggers.c.id, "ids"))
_crew = select(crews.c.id, crews.c.digest).where(among(crews.c.digest, "digests"))
_any_kept = select(backlog.c.number).limit(1)
_kept = Given(
    {"stretch": "bigint", "lane_id": "bigint", "low": "bytea", "high": "bytea"},
    "SELECT given.stretch, b.number, b.trigger_id, b.answer FROM given CROSS JOIN backlog b"
    " WHERE b.lane_id = given.lane_id AND b.key > given.low AND b.key <= given.high AND NOT b.counted ORDER BY b.number",
)
_count = update(backlog).where(among(backlog.c.number, "numbers")).values(counted=True)
_move = update(lanes).where(lanes.c.id == bindparam("lane_id")).values(after=bindparam("a"), last=bindparam("l"), read=bindparam("r"))
_add_reads = Upsert(crew_reads, ("lane_id", "crew_id"), lambda new: {"read": crew_reads.c.read + new["read"]})
_add_answers = Upsert(custody, ("lane_id", "trigger_id"), lambda new: {name: custody.c[name] + new[name] for name in ANSWERS})

Found = Row[*tuple[Any, ...]]


class Stretch(NamedTuple):
    """A stretch of a lane that a receipt told of, and how many each trigger is said to have spilled of it."""

    lane: Lane
    recorded: int | None
    last: int
    spilled: Mapping[int, int]


class Custody:
    """The ledger of custody of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, job_id: int, receipts: Receipts) -> None:
        """Record stretches that are about to be advanced, in one durable commit.

        Raises:
            Fenced: The job has ended, or another holds a trigger that had to answer.
        """
        self.record_later(job_id, receipts).result()

    def record_later(self, job_id: int, receipts: Receipts) -> Future[None]:
        """Queue receipts; the future is done once they are durable, together with what waits beside them."""
        return self._database.submit(lambda connection: _record(connection, job_id, receipts, self._database.now()))

    def marks(self, job_id: int, stream: str) -> LaneMarks:
        """Return how far each lane of the stream is recorded."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            found = connection.execute(select(lanes.c.lane, lanes.c.last).where(lanes.c.stream == stream, lanes.c.last.is_not(None)))
            return LaneMarks.model_construct(marks=[LaneMark.model_construct(lane=row.lane, last=row.last) for row in found])


class Claim(NamedTuple):
    """The receipts of a job that runs, and the epochs under which it says that it holds the triggers."""

    job_id: int
    epochs: Mapping[int, int]
    receipts: Sequence[Receipt]


def record(connection: Connection, claims: Sequence[Claim], now: int) -> list[list[ItemStatus]]:
    """Record receipts within a work of the writer; return one status for each, `fenced` for those of an old owner."""
    given = [receipt for claim in claims for receipt in claim.receipts]
    if not given:
        return [[] for _ in claims]
    lost = _lost(connection, claims)
    books = _Books(connection, given, now)
    statuses: list[list[ItemStatus]] = []
    for claim, gone in zip(claims, lost, strict=True):
        statuses.append(["fenced" if gone.intersection(receipt.owed) else books.add(receipt) for receipt in claim.receipts])
    books.write()
    return statuses


def _record(connection: Connection, job_id: int, receipts: Receipts, now: int) -> None:
    require_running(connection, job_id)
    (statuses,) = record(connection, [Claim(job_id, receipts.epochs, receipts.receipts)], now)
    if "fenced" in statuses:
        # raised within the transaction, which is undone: of this call all is recorded, or nothing
        raise Fenced(f"Job {job_id} no longer holds all of the triggers that had to answer.", status=409, problem="fenced")


def _lost(connection: Connection, claims: Sequence[Claim]) -> list[set[int]]:
    """Return, for each claim, the triggers that another job holds, or has held since.

    A trigger that nobody holds now, because it changed or went, is no obstacle: its answers were true.
    """
    named = {trigger for claim in claims for receipt in claim.receipts for trigger in receipt.owed}
    rows = rows_among(connection, _holders, "ids", named)
    return [
        {
            row.id
            for row in rows
            if row.job_id != claim.job_id and (row.job_id is not None or row.epoch > claim.epochs.get(row.id, row.epoch))
        }
        for claim in claims
    ]


@dataclass(slots=True)
class _Books:
    """What one transaction adds."""

    connection: Connection
    receipts: Sequence[Receipt]
    now: int
    moved: dict[int, Lane] = field(default_factory=dict)
    reads: Counter[tuple[int, int]] = field(default_factory=Counter)
    answers: dict[tuple[int, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    problems: list[dict[str, object]] = field(default_factory=list)
    settled: list[tuple[int, int, Answer]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    _lanes: dict[tuple[str, str], Lane] = field(init=False)
    _crews: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._lanes = lanes_of(self.connection, ((receipt.stream, receipt.lane) for receipt in self.receipts))
        self._crews = _crews(self.connection, {_crew_text(receipt.owed) for receipt in self.receipts})

    def add(self, receipt: Receipt) -> ItemStatus:
        lane = self._lanes[receipt.stream, receipt.lane]
        recorded = lane.last
        if recorded is not None and receipt.last <= recorded:
            return "duplicate"
        self.moved[lane.id] = lane
        lane.last = receipt.last
        begins = receipt.after
        if recorded is None:
            lane.after = begins
        elif begins is None or begins < recorded:
            since = "the lane's beginning" if begins is None else str(begins)
            self._problem(lane, recorded, f"the stretch after {since} up to {receipt.last} overlaps what is recorded up to {recorded}")
            self.stretches.append(Stretch(lane, recorded, receipt.last, {}))
            return "stored"
        elif begins > recorded:
            self._problem(lane, recorded, f"nothing is recorded after {recorded} up to {begins}")
        lane.read += receipt.read
        self.reads[lane.id, self._crews[_crew_text(receipt.owed)]] += receipt.read
        owed = set(receipt.owed)
        for answer in receipt.answers:
            given = sum(getattr(answer, name) for name in ANSWERS)
            if answer.trigger_id not in owed or given > receipt.read:
                entitled = receipt.read if answer.trigger_id in owed else 0
                what = f"trigger {answer.trigger_id} answered {given} raw events up to {receipt.last}, and owed {entitled}"
                self._problem(lane, recorded, what)
            self.answers[lane.id, answer.trigger_id].update({name: getattr(answer, name) for name in ANSWERS})
        spilled = {answer.trigger_id: answer.spilled for answer in receipt.answers if answer.spilled}
        self.stretches.append(Stretch(lane, recorded, receipt.last, spilled))
        return "stored"

    def write(self) -> None:
        connection = self.connection
        self._reconcile()
        if self.moved:
            connection.execute(_move, [{"lane_id": one.id, "a": one.after, "l": one.last, "r": one.read} for one in self.moved.values()])
        _add_reads(connection, [{"lane_id": lane, "crew_id": crew, "read": n} for (lane, crew), n in self.reads.items()])
        kept = self.answers.items()
        _add_answers(connection, [{**NONE, **counts, "lane_id": lane, "trigger_id": trigger} for (lane, trigger), counts in kept])
        count_settled(connection, self.settled)
        for part in chunks(self.counted):
            connection.execute(_count, {"numbers": part})
        forget(connection, self.forgotten)
        if self.problems:
            connection.execute(insert(custody_problems), self.problems)

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

    def _count(self, stretch: Stretch, trigger: int, rows: list[Found]) -> None:
        rows.sort(key=lambda row: row.answer is not None)
        spilled = rows[: stretch.spilled.get(trigger, 0)]
        self.counted += [row.number for row in spilled if row.answer is None]
        self.settled += [(stretch.lane.id, trigger, row.answer) for row in spilled if row.answer is not None]
        self.forgotten += [row.number for row in rows if row.answer is not None]

    def _problem(self, lane: Lane, recorded: int | None, problem: str) -> None:
        self.problems.append({"lane_id": lane.id, "at": self.now, "recorded": recorded, "problem": problem})


def _bounds(number: int, stretch: Stretch) -> tuple[int, int, bytes, bytes]:
    low = BEFORE_ALL if stretch.recorded is None else place_key(stretch.recorded)
    return number, stretch.lane.id, low, place_key(stretch.last)


def _crew_text(owed: Sequence[int]) -> str:
    return msgspec.json.encode(sorted(set(owed))).decode()


def _crews(connection: Connection, sets: set[str]) -> dict[str, int]:
    """Return the crews by their triggers, making those that are new."""
    digests = {blake2b(text.encode(), digest_size=16).digest(): text for text in sets}
    found = {digests[row.digest]: row.id for row in connection.execute(_crew, {"digests": list(digests)})}
    new = {digest: text for digest, text in digests.items() if text not in found}
    if new:
        connection.execute(insert(crews), [{"triggers": text, "digest": digest} for digest, text in new.items()])
        found |= {digests[row.digest]: row.id for row in connection.execute(_crew, {"digests": list(new)})}
    return found
