"""The ledger as plainly as it can be written: every obligation is one row, and every question looks at all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.core.ledger.obligations import Subscriber
from headrace.core.ledger.outcome import AdvanceOutcome


@dataclass
class Duty:
    """One reader's or one claim's obligation to one entry.

    `state`: queued, held, open, waiting (for the confirmation of `seqs`), done. `kind` is how it ends: filtered, fired, rejected, spilled,
    dead_lettered, failed, dropped.
    """

    who: Subscriber | None
    ids: tuple[int, ...]
    state: str
    kind: str = "filtered"
    seqs: set[int] = field(default_factory=set)

    @property
    def done(self) -> bool:
        return self.state == "done"


@dataclass
class Row:
    number: object
    lane: str
    published: float
    bystanders: int = 0
    owed: tuple[int, ...] = ()
    is_kept: bool = False
    kept: int | None = None
    duties: list[Duty] = field(default_factory=list)
    derived: bool = False
    taken: bool = False
    advanced: bool = False

    @property
    def resolved(self) -> bool:
        return all(duty.done for duty in self.duties)

    def total(self, *kinds: str) -> int:
        return sum(len(duty.ids) for duty in self.duties if duty.kind in kinds)

    @property
    def outcome(self) -> AdvanceOutcome:
        return AdvanceOutcome(
            self.total("filtered", "fired") + self.bystanders,
            self.total("failed"),
            self.total("rejected", "dead_lettered"),
            self.total("spilled"),
        )

    @property
    def answers(self) -> list[tuple[str, int]]:
        """How the triggers answered that did more than filter."""
        return sorted((duty.kind, one) for duty in self.duties if duty.kind not in ("filtered", "dropped") for one in duty.ids)


class Model:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.rows: list[Row] = []
        self.mode: dict[Subscriber, str] = {}  # those who owe what is published: offline, catching_up, live
        self.place: dict[Subscriber, tuple[Row, Duty]] = {}  # what a reader is at, answered or not
        self.begun: dict[Subscriber, float] = {}
        self.declared: tuple[int, ...] = ()
        self.moved: dict[Subscriber, Row] = {}  # what a reader was at when that was spilled, not found in its backlog yet
        self.settled: list[tuple[int, int, str]] = []

    def publish(self, number: int, lane: str, now: float, claims: list[tuple[int, tuple[int, ...]]], spill: int | None) -> None:
        row = Row(number, lane, now, len(self.declared) - sum(len(ids) for _, ids in claims))
        row.owed = tuple(sorted((*self.declared, *(who.trigger_id for who in self.mode))))
        for who, mode in self.mode.items():
            duty = Duty(who, (who.trigger_id,), "queued")
            if mode == "offline":
                assert spill is not None
                duty.state, duty.kind, duty.seqs = "waiting", "spilled", {spill}
            row.duties.append(duty)
        for seq, ids in claims:
            row.duties.append(Duty(None, ids, "waiting", "fired", {seq}))
            row.derived = True
        self.rows.append(row)

    def duties(self, who: Subscriber) -> list[tuple[Row, Duty]]:
        return [(row, duty) for row in self.rows for duty in row.duties if duty.who is who]

    def at(self, who: Subscriber) -> tuple[Row, Duty] | None:
        """What it is at and has not answered."""
        place = self.place.get(who)
        return place if place is not None and place[1].state == "open" else None

    def begin(self, who: Subscriber, now: float) -> object:
        self.end(who)
        live = self.mode.get(who) == "live"
        for state in ("held", "queued") if live else ("held",):
            for row, duty in self.duties(who):
                if duty.state == state:
                    duty.state = "open"
                    self.place[who], self.begun[who] = (row, duty), now
                    return row.number
        return None

    def begin_from_backlog(self, who: Subscriber, kept: int, now: float) -> None:
        row = Row(f"kept {kept}", "kept", now, is_kept=True, kept=kept, duties=[Duty(who, (who.trigger_id,), "open")])
        self.rows.append(row)
        self.place[who], self.begun[who] = (row, row.duties[0]), now

    def end(self, who: Subscriber) -> None:
        at = self.at(who)
        self.place.pop(who, None)
        if at is not None:
            at[1].state = "waiting"
            self._settle(*at)

    def bind(self, who: Subscriber, seq: int) -> None:
        at = self.at(who)
        assert at is not None
        at[1].seqs.add(seq)
        at[0].derived = True
        if at[1].kind == "filtered":
            at[1].kind = "fired"

    def confirm(self, seq: int) -> None:
        for row in self.rows:
            for duty in row.duties:
                if seq in duty.seqs:
                    duty.seqs.discard(seq)
                    self._settle(row, duty)

    def mark(self, seq: int) -> None:
        for row in self.rows:
            for duty in row.duties:
                if seq in duty.seqs and duty.kind != "rejected":
                    duty.kind = "dead_lettered"

    def reject(self, who: Subscriber) -> bool:
        at = self.at(who)
        if at is not None:
            self._finish(*at, "rejected")
        return at is not None

    def dead_letter(self, who: Subscriber, seq: int, kind: str) -> None:
        at = self.at(who)
        assert at is not None
        at[1].state, at[1].kind, at[1].seqs = "waiting", kind, {seq}

    def requeue(self, who: Subscriber) -> object:
        at = self.at(who)
        self.place.pop(who, None)
        if at is None:
            return None
        row, duty = at
        if row.is_kept:
            self.rows = [other for other in self.rows if other is not row]
            if self.moved.get(who) is row:
                del self.moved[who]
        else:
            duty.state, duty.kind, duty.seqs = "held", "filtered", set()
        return row.number

    def spill(self, readers: Sequence[Subscriber], now: float, *, stop: bool) -> list[tuple[object, list[Subscriber]]]:
        """Return what is spilled, and by whom; the seqs are told by `spilled`."""
        for who in readers:
            if stop:
                self.requeue(who)
            elif (at := self.at(who)) is not None and not at[0].is_kept:
                self._move(who, *at, now)
            self.mode[who] = "offline"
        spilled = []
        for row in self.rows:
            who_spills = [duty.who for duty in row.duties if duty.who in readers and duty.state in ("queued", "held")]
            if who_spills:
                spilled.append((row.number, [who for who in readers if who in who_spills]))
        return spilled

    def _move(self, who: Subscriber, row: Row, duty: Duty, now: float) -> None:
        """It goes on with a copy, which is in no lane; the original is to be spilled."""
        copy = Row(row.number, "kept", now, is_kept=True, duties=[Duty(who, duty.ids, "open", duty.kind, duty.seqs)])
        duty.state, duty.kind, duty.seqs = "held", "filtered", set()
        self.rows.append(copy)
        self.place[who] = (copy, copy.duties[0])
        self.moved[who] = copy

    def found(self, who: Subscriber, number: int) -> None:
        row = self.moved.pop(who, None)
        if row is not None:
            row.kept = number
            if row.resolved:
                self.settled.append((who.trigger_id, number, row.duties[0].kind))

    def spilled(self, number: object, readers: Sequence[Subscriber], seq: int) -> None:
        row = next(row for row in self.rows if row.number == number and not row.is_kept)
        for duty in row.duties:
            if duty.who is not None and duty.who in readers:
                duty.state, duty.kind, duty.seqs = "waiting", "spilled", {seq}

    def leave(self, who: Subscriber) -> None:
        self.mode.pop(who, None)
        self.end(who)
        for row, duty in self.duties(who):
            if duty.state == "queued":
                self._finish(row, duty, "failed")

    def fail(self, who: Subscriber) -> None:
        self._end_all(who, "failed")

    def drop(self, who: Subscriber) -> None:
        self._end_all(who, "dropped")
        self.rows = [row for row in self.rows if not row.is_kept or row.duties[0].kind != "dropped"]

    def overdue(self, now: float) -> set[Subscriber]:
        return {who for who, due in self._due() if due <= now}

    def deadline(self) -> float | None:
        return min((due for _, due in self._due()), default=None)

    def ready(self) -> dict[str, list[Row]]:
        """For each lane that is not busy, its resolved beginning."""
        found: dict[str, list[Row]] = {}
        for lane in {row.lane for row in self.rows if not row.is_kept}:
            rows = [row for row in self.rows if row.lane == lane and not row.advanced]
            if any(row.taken for row in rows):
                continue
            beginning: list[Row] = []
            for row in rows:
                if not row.resolved:
                    break
                beginning.append(row)
            if beginning:
                found[lane] = beginning
        return found

    def _end_all(self, who: Subscriber, kind: str) -> None:
        self.mode.pop(who, None)
        self.place.pop(who, None)
        for row, duty in self.duties(who):
            if not duty.done:
                self._finish(row, duty, kind)

    def _due(self) -> Iterable[tuple[Subscriber, float]]:
        for row in self.rows:
            for duty in row.duties:
                who = duty.who
                if who is not None and not duty.done and (not who.registered or duty.state in ("queued", "held")):
                    yield who, row.published + self.timeout
        for who in self.place:
            if who.registered:
                yield who, self.begun[who] + self.timeout

    def _settle(self, row: Row, duty: Duty) -> None:
        if duty.state == "waiting" and not duty.seqs:
            self._finish(row, duty, duty.kind)

    def _finish(self, row: Row, duty: Duty, kind: str) -> None:
        duty.state, duty.kind, duty.seqs = "done", kind, set()
        if row.kept is not None and duty.who is not None and kind != "dropped":
            self.settled.append((duty.who.trigger_id, row.kept, kind))
