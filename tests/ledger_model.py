"""The ledger as plainly as it can be written: every obligation is one row, and every question looks at all rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.outcome import AdvanceOutcome


@dataclass
class Duty:
    """One reader's or one claim's obligation to one entry. `state`: queued, open, waiting, acked, rejected, failed."""

    who: object
    weight: int
    state: str
    seqs: set[int] = field(default_factory=set)
    marked: bool = False
    done: bool = False


@dataclass
class Row:
    number: int
    lane: str
    published: float
    bystanders: int
    duties: list[Duty] = field(default_factory=list)
    derived: bool = False
    taken: bool = False
    advanced: bool = False

    @property
    def resolved(self) -> bool:
        return all(duty.done for duty in self.duties)

    @property
    def outcome(self) -> AdvanceOutcome:
        def total(state: str) -> int:
            return sum(duty.weight for duty in self.duties if duty.state == state)

        return AdvanceOutcome(total("acked") + self.bystanders, total("failed"), total("rejected"))


class Model:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.rows: list[Row] = []
        self.live: list[object] = []

    def publish(self, lane: str, now: float, claims: list[tuple[int, int]], bystanders: int) -> None:
        row = Row(len(self.rows), lane, now, bystanders)
        row.duties = [Duty(who, 1, "queued") for who in self.live]
        for seq, weight in claims:
            row.duties.append(Duty("claim", weight, "waiting", {seq}))
            row.derived = True
        self.rows.append(row)

    def duties(self, who: object) -> list[tuple[Row, Duty]]:
        return [(row, duty) for row in self.rows for duty in row.duties if duty.who is who]

    def at(self, who: object) -> tuple[Row, Duty] | None:
        return next(((row, duty) for row, duty in self.duties(who) if duty.state == "open"), None)

    def begin(self, who: object) -> int | None:
        self.end(who)
        for row, duty in self.duties(who):
            if duty.state == "queued":
                duty.state = "open"
                return row.number
        return None

    def end(self, who: object) -> None:
        at = self.at(who)
        if at is not None:
            at[1].state = "waiting"
            self._settle(at[1])

    def bind(self, who: object, seq: int) -> None:
        at = self.at(who)
        assert at is not None
        at[1].seqs.add(seq)
        at[0].derived = True

    def confirm(self, seq: int) -> None:
        for row in self.rows:
            for duty in row.duties:
                if seq in duty.seqs and not duty.done:
                    duty.seqs.discard(seq)
                    self._settle(duty)

    def mark(self, seq: int) -> None:
        for row in self.rows:
            for duty in row.duties:
                if seq in duty.seqs:
                    duty.marked = True

    def reject(self, who: object) -> bool:
        at = self.at(who)
        if at is None:
            return False
        self._finish(at[1], "rejected")
        return True

    def leave(self, who: object) -> None:
        self.live = [other for other in self.live if other is not who]
        self.end(who)
        for _, duty in self.duties(who):
            if duty.state == "queued":
                self._finish(duty, "failed")

    def fail(self, who: object) -> None:
        self.live = [other for other in self.live if other is not who]
        for _, duty in self.duties(who):
            if not duty.done:
                self._finish(duty, "failed")

    def overdue(self, now: float) -> set[object]:
        return {who for row, who in self._owing() if row.published + self.timeout <= now}

    def deadline(self) -> float | None:
        return min((row.published + self.timeout for row, _ in self._owing()), default=None)

    def ready(self) -> dict[str, list[Row]]:
        """For each lane that is not busy, its resolved beginning."""
        found: dict[str, list[Row]] = {}
        for lane in {row.lane for row in self.rows}:
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

    def _owing(self) -> list[tuple[Row, object]]:
        return [(row, duty.who) for row in self.rows for duty in row.duties if duty.who != "claim" and not duty.done]

    def _settle(self, duty: Duty) -> None:
        if duty.state == "waiting" and not duty.seqs:
            self._finish(duty, "rejected" if duty.marked else "acked")

    @staticmethod
    def _finish(duty: Duty, state: str) -> None:
        duty.state, duty.done = state, True
        duty.seqs = set()
