"""Short ways to spill, drain, settle, record receipts and audit, straight on a store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from headrace.store import Store
from headrace.store.queries.audit import audit
from headrace.store.tables.custody import lanes
from headrace.wire.custody.backlog import Answer, BacklogItem, SettleBacklog, Settled, SpillItem
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.custody.events import DeadLetterItem, EventBatch
from headrace.wire.custody.receipts import Answers, Audit, Receipt, TriggerAudit
from support.processes.store import Holder

STREAM = "folder"
LANE = "a.jsonl"


def spill(position: int, *triggers: int, raw: str | None = None, lane: str = LANE) -> SpillItem:
    text = f'{{"n": {position}}}' if raw is None else raw
    return SpillItem(stream=STREAM, lane=lane, position=position, raw=text, triggers=list(triggers) or [1])


def keep(owner: Holder, *spills: SpillItem) -> list[str]:
    batch = EventBatch(epochs=owner.epochs, spills=list(spills))
    return list(owner.store.log.append(owner.job_id, batch).spills)


def bury(owner: Holder, *letters: DeadLetterItem) -> list[str]:
    return owner.append(dead_letters=list(letters))


def waiting(owner: Holder, trigger: int = 1, *, after: int = 0, limit: int = 100) -> list[BacklogItem]:
    return owner.store.backlog.page(owner.job_id, trigger, after=after, limit=limit).items


def positions(owner: Holder, trigger: int = 1) -> list[int | None]:
    return [item.position for item in waiting(owner, trigger)]


def settle(owner: Holder, answer: Answer = "fired", *numbers: int, trigger: int = 1, reason: str | None = None) -> None:
    """Settle these, or all that waits."""
    named = numbers or tuple(item.number for item in waiting(owner, trigger))
    settled = [Settled(number=number, answer=answer, reason=reason) for number in named]
    owner.store.backlog.settle(owner.job_id, trigger, SettleBacklog(epoch=owner.epochs[trigger], settled=settled))


def receipt(
    after: int | None, last: int, read: int, *answers: Answers, owed: tuple[int, ...] = (1, 2), lane: str = LANE, stream: str = STREAM
) -> Receipt:
    return Receipt(stream=stream, lane=lane, after=after, last=last, read=read, owed=list(owed), answers=list(answers))


def answered(trigger: int, **counts: int) -> Answers:
    return Answers(trigger_id=trigger, **counts)


def status(owner: Holder, *receipts: Receipt) -> list[str]:
    return list(owner.store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, receipts=list(receipts))).receipts)


def record(owner: Holder, *receipts: Receipt) -> None:
    assert set(status(owner, *receipts)) <= {"stored", "duplicate"}


def marks(owner: Holder, stream: str = STREAM) -> dict[str, int]:
    with owner.store.reading() as connection:
        named = list(connection.execute(select(lanes.c.lane).where(lanes.c.stream == stream)).scalars())
    return {mark.lane: mark.last for mark in owner.store.receipts.recorded_offsets(owner.job_id, stream, named).offsets}


def books(store: Store, stream: str | None = None) -> Audit:
    with store.reading() as connection:
        return audit(connection, store.now(), stream)


def balance(store: Store, trigger: str = "first") -> TriggerAudit:
    return next(one for stream in books(store).streams for one in stream.triggers if one.trigger == trigger)


def counts(store: Store, trigger: str = "first") -> dict[str, int]:
    """Return what is not nothing in a trigger's books, which must balance."""
    found = balance(store, trigger)
    assert found.balanced
    answers = found.fired + found.filtered + found.rejected + found.dead_lettered + found.failed + found.dropped + found.pending
    assert answers == found.read
    return {name: n for name, n in found.model_dump(exclude={"trigger", "balanced"}).items() if n}


def some(*ids: str, **filters: Any) -> DeadLetterSelection:
    return DeadLetterSelection(ids=list(ids), by="somebody", **filters)
